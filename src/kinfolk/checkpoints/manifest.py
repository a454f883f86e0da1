"""kinfolk.json: the sizes and hashes of a folder's files, so that damage is noticed before it is used.

Written last, so a folder with a manifest is a whole folder. It covers every file of the folder and its sub-folders but
itself, the model card (README.md, which people edit) and hidden ones (names that begin with a dot: caches, leftovers of
a killed write), and seals itself: `sha256` is the hash of the manifest's own text with that value left empty.

Files that were added later (a README, notes, pictures, a whole new sub-folder) are the user's business; what kinfolk
could take for a part of the model (READ_SUFFIXES and READ_NAMES), beside files that the manifest lists, is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from kinfolk import __version__
from kinfolk.errors import FolderError
from kinfolk.files import inside, parse_json, read_text, reading, require_file, sha256, write_bytes

NAME = "kinfolk.json"
CARD = "README.md"
FORMAT = 1
READ_SUFFIXES = {".json", ".safetensors", ".bin", ".pt", ".model", ".spm", ".hdf5"}
READ_NAMES = {"vocab.txt", "merges.txt"}


def write_manifest(folder: Path) -> None:
    """Describe the folder as it is now; call it when everything else is written."""
    names = []  # of all files that are not hidden, nor in a hidden folder
    for parent, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(parent) / name for name in files if not name.startswith("."))
        names += [path.relative_to(folder).as_posix() for path in paths]
    listed = {name: require_file(inside(folder, name)) for name in sorted(names) if name not in (NAME, CARD)}
    sizes = {name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for name, path in listed.items()}
    content = {"format": FORMAT, "kinfolk": __version__, "files": sizes, "sha256": ""}
    text = json.dumps(content, indent=2) + "\n"  # escaped, because a file name need not be valid Unicode
    text = text.replace('"sha256": ""', f'"sha256": "{_text_hash(text)}"')
    write_bytes(folder / NAME, text.encode())


def check_manifest(folder: Path) -> bool:
    """True when all files are as they were written, False when there is no manifest, else a FolderError."""
    path = inside(folder, NAME)
    with reading(folder):
        if not path.exists():
            return False
        files = _listed(path)
        for name, expected in files.items():
            file = inside(folder, name)
            size = require_file(file).stat().st_size if file.exists() else None
            if size is None:
                fault = f"missing, although {NAME} lists it"
            elif size != expected.get("bytes"):
                fault = f"of another size: {size} bytes, {NAME} says {expected.get('bytes')}"
            elif sha256(file) != expected.get("sha256"):
                fault = f"of another content than {NAME} says (same size, other sha256)"
            else:
                continue
            raise FolderError(f"{file}: {fault}; get the folder again or use another copy")
        # Refuse an unlisted file that kinfolk might read, in the folders that hold listed files.
        parents = {folder, *((folder / name).parent for name in files)}
        for path in sorted(path for parent in parents for path in parent.iterdir()):
            listed = path.name.startswith(".") or path.relative_to(folder).as_posix() in (*files, NAME)
            if not listed and not path.is_dir() and (path.suffix in READ_SUFFIXES or path.name in READ_NAMES):
                raise FolderError(f"{path}: added after {NAME} was written, and kinfolk could read it; remove it")
    return True


def _refuse(error: OSError) -> None:
    raise FolderError(f"{error.filename}: cannot be read ({error.strerror})")


def _text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _listed(path: Path) -> dict[str, dict[str, Any]]:
    """The `files` of a manifest whose form and seal are right."""
    text = read_text(path)
    manifest = parse_json(text, str(path))
    if not isinstance(manifest, dict) or type(manifest.get("format")) is not int:
        raise FolderError(f"{path}: not a manifest of kinfolk; remove it if it is a file of your own")
    if manifest["format"] != FORMAT:
        raise FolderError(f"{path}: format {manifest['format']} is not known to kinfolk {__version__}; update kinfolk")
    seal, files = manifest.get("sha256"), manifest.get("files")
    if not isinstance(seal, str) or not seal or _text_hash(text.replace(seal, "", 1)) != seal:
        raise FolderError(f"{path}: the manifest itself was changed after it was written; get the folder again")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise FolderError(f'{path}: "files" must give each file its bytes and its sha256')
    return files
