"""Reading files that are not trusted, and writing files that are never half there.

Every write is: temporary file in the same folder, flush, fsync, rename, fsync of the folder. A reader therefore
sees the old file or the new one, whatever happens in between. It stands beside errors.py because every
room of the package reads or writes something.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from kinfolk.errors import FolderError, KinfolkError

LARGEST_JSON = 256 * 2**20  # tokenizer.json of the largest public vocabularies is about 20 MB


def inside(folder: Path, name: str) -> Path:
    """`folder / name`, refused when the name is absolute, climbs out, or is a link that leads out.

    Links are followed once the plain name is clean: hub caches store every file as a link into the cache's own
    `blobs` folder, so a link is allowed to end in `blobs` beside the snapshot's parent and nowhere else outside.
    """
    parts = Path(name).parts
    if not name or "\0" in name or Path(name).is_absolute() or ".." in parts or name.startswith("~"):
        raise FolderError(f"{folder}: the name {name!r} leaves the folder; refused")
    path, root = folder / name, folder.resolve()
    target = path.resolve()
    blobs = root.parent.parent / "blobs" if root.parent.name == "snapshots" else None
    if target.is_relative_to(root) or (blobs is not None and target.parent == blobs):
        return path
    raise FolderError(f"{path} is a link that leaves the folder; refused")


def require_file(path: Path, what: str = "file") -> Path:
    """`path` if a regular file is there, else a FolderError that names it."""
    if not path.exists():
        raise FolderError(f"{path}: no such {what}")
    if not path.is_file():
        raise FolderError(f"{path}: expected a {what}, found something else (a folder or a device)")
    return path


def read_bytes(path: Path, most: int = LARGEST_JSON) -> bytes:
    """The whole of a file of at most `most` bytes."""
    require_file(path)
    try:
        size = path.stat().st_size
        if size > most:
            raise FolderError(f"{path}: {size:,} bytes is more than the {most:,} that such a file may have")
        return path.read_bytes()
    except OSError as error:
        raise FolderError(f"{path}: cannot be read ({error.strerror or error})") from None


def read_text(path: Path, most: int = LARGEST_JSON) -> str:
    """A UTF-8 file, its byte-order mark removed."""
    try:
        return read_bytes(path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FolderError(f"{path}: not UTF-8 text (byte {error.start})") from None


def parse_json(text: str, where: str) -> Any:
    """JSON without duplicate keys, NaN or bottomless nesting; any fault becomes a FolderError that says where."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise FolderError(f"{where}: the key {twice[:80]!r} stands there twice")
        return found

    def refuse(constant: str) -> Any:
        raise FolderError(f"{where}: {constant} is not JSON")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except RecursionError:
        raise FolderError(f"{where}: nested too deeply to be a real file") from None
    except ValueError as error:  # JSONDecodeError, and integers with too many digits
        raise FolderError(f"{where}: not valid JSON ({error})") from None


def read_json(path: Path) -> Any:
    """The content of a JSON file, checked as `parse_json` says."""
    return parse_json(read_text(path), str(path))


def read_object(path: Path) -> dict[str, Any]:
    """As `read_json`, and the file must hold an object."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise FolderError(f"{path}: expected a JSON object, found {type(found).__name__}")
    return found


def sha256(path: Path) -> str:
    """Hash of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A binary stream whose content takes the place of `path` when the block ends well, and vanishes otherwise."""
    with _disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        try:
            with os.fdopen(handle, "w+b") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
            sync_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` by `content`, wholly or not at all."""
    with replacing(path) as stream:
        stream.write(content)


def write_json(path: Path, content: Any) -> None:
    """Replace `path` by `content` as indented JSON, wholly or not at all."""
    write_bytes(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that becomes `path` when the block ends well; an existing, non-empty `path` is refused."""
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise FolderError(f"{path} already exists and is not an empty folder; choose another name or remove it")
    with _disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
        try:
            yield temporary
            os.chmod(temporary, 0o777 & ~_umask())
            sync_folder(temporary)
            os.replace(temporary, path)
            sync_folder(path.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, KinfolkError):
            raise
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "; the disk is full: free some space or choose another place" if full else ""
        raise FolderError(f"{path}: cannot be written ({error.strerror or error}){advice}") from None


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
