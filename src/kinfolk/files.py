"""Reading files that are not trusted, and writing files that are never half there.

Every write is: temporary file in the same folder, flush, fsync, rename, fsync of the folder. A reader therefore
sees the old file or the new one, whatever happens in between.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from kinfolk.errors import FolderError

if TYPE_CHECKING:
    from filelock import BaseFileLock

LONGEST_SHOWN = 400  # characters of a path in a message
LARGEST_JSON = 256 * 2**20  # tokenizer.json of the largest public vocabularies is about 20 MB


def inside(folder: Path, name: str) -> Path:
    """`folder / name`, refused when the name is absolute, climbs out, or is a link that leads out. Hub caches store
    every file as a link into their own `blobs` folder, so a link may end there as well."""
    parts = Path(name).parts
    if not name or "\0" in name or Path(name).is_absolute() or ".." in parts or name.startswith("~"):
        raise FolderError(f"{folder}: the name {name[:80]!r} leaves the folder; refused")
    path = folder / name
    try:
        root, target = folder.resolve(), path.resolve()
    except (OSError, RuntimeError, ValueError):  # a link that leads to itself; a name that no disk can hold
        raise FolderError(f"{folder}: the name {name[:80]!r} cannot be followed; refused") from None
    blobs = root.parent.parent / "blobs" if root.parent.name == "snapshots" else None
    if target.is_relative_to(root) or (blobs is not None and target.parent == blobs):
        return path
    raise FolderError(f"{path} is a link that leaves the folder; refused")


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Any refusal by the system in this block becomes a FolderError about `path`."""
    try:
        yield
    except OSError as error:
        shown = str(path)[:LONGEST_SHOWN]  # it may be a name from a hostile index
        raise FolderError(f"{shown}: cannot be read ({error.strerror or error})") from None


def require_file(path: Path, what: str = "file") -> Path:
    """`path` if a regular file is there, else a FolderError that names it."""
    with reading(path):
        if not path.exists():
            raise FolderError(f"{path}: no such {what}")
        if not path.is_file():
            raise FolderError(f"{path}: expected a {what}, found something else (a folder or a device)")
    return path


def read_bytes(path: Path, max_bytes: int = LARGEST_JSON) -> bytes:
    require_file(path)
    with reading(path):
        size = path.stat().st_size
        if size > max_bytes:
            raise FolderError(f"{path}: {size:,} bytes, more than the {max_bytes:,} allowed for such a file")
        return path.read_bytes()


def read_text(path: Path) -> str:
    """A UTF-8 file, its byte-order mark removed."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FolderError(f"{path}: not UTF-8 text (byte {error.start})") from None


def parse_json(text: str, location: str) -> Any:
    """JSON without duplicate keys, NaN, infinities or deep nesting; else a FolderError that names the location."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) != len(pairs):
            (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
            raise FolderError(f"{location}: duplicate key {twice[:80]!r}")
        return content

    def finite(digits: str) -> float:
        if not math.isfinite(float(digits)):
            raise FolderError(f"{location}: the number {digits[:80]} is not finite")
        return float(digits)

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=finite, parse_float=finite)
    except RecursionError:
        raise FolderError(f"{location}: nested too deeply to be a real file") from None
    except ValueError as error:  # JSONDecodeError, and integers with too many digits
        raise FolderError(f"{location}: not valid JSON ({error})") from None


def read_json(path: Path) -> Any:
    return parse_json(read_text(path), str(path))


def read_object(path: Path) -> dict[str, Any]:
    """As `read_json`, and the file must hold an object."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise FolderError(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content


def read_optional(path: Path) -> dict[str, Any]:
    """As `read_object`; nothing where there is no such file."""
    return read_object(path) if path.exists() else {}


def sha256(path: Path) -> str:
    with reading(require_file(path)), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_not_same_file(source: str | Path, output: str | Path) -> None:
    """The output must not overwrite the input."""
    with contextlib.suppress(OSError):  # one of them is not there, or its name is too long: reported where it is opened
        if Path(source).samefile(output):
            raise FolderError(f"{output} is the input itself; choose another name for the output")


@contextlib.contextmanager
def _replacing(path: Path, needs: int) -> Iterator[Path]:
    """A fresh hidden name in the same folder; what the caller makes there becomes `path`, or is removed on an error.
    The caller creates it, so the process's umask applies by itself."""
    temporary = path.parent / f".{path.name}.{secrets.token_hex(6)}.part"
    with writing(path, needs):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            os.replace(temporary, path)
            sync_folder(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            with contextlib.suppress(OSError):
                temporary.unlink()


@contextlib.contextmanager
def atomic_write(path: Path, needs: int = 0) -> Iterator[BinaryIO]:
    """A binary stream whose content replaces `path` when the block ends well, and vanishes otherwise. `needs` is the
    number of bytes to come, where it is known: for the message about a full disk."""
    with _replacing(path, needs) as temporary, temporary.open("x+b") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` by `content`, wholly or not at all."""
    with atomic_write(path, len(content)) as stream:
        stream.write(content)


def write_json(path: Path, content: Any) -> None:
    """Replace `path` by `content` as indented JSON, wholly or not at all."""
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except ValueError as error:  # NaN, or a lone surrogate: `read_json` would refuse the file
        raise FolderError(f"{path}: the content cannot be written as JSON ({error})") from None
    write_bytes(path, text)


@contextlib.contextmanager
def atomic_folder(path: Path, needs: int = 0) -> Iterator[Path]:
    """A temporary folder that becomes `path` when the block ends well; an existing, non-empty `path` is refused.
    `needs`: the bytes to come, without room for which nothing is begun. Messages name files by their final path."""
    with _replacing(path, needs) as temporary:
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise FolderError(f"{path} already exists and is not an empty folder; choose another name or remove it")
        if needs > shutil.disk_usage(path.parent).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        temporary.mkdir()
        try:
            yield temporary
        except FolderError as error:
            raise type(error)(str(error).replace(str(temporary), str(path))) from None
        sync_folder(temporary)


def lock_file(path: Path) -> BaseFileLock:
    """Lock `path` for this process until `release()` or its end; a FolderError names the process that holds it already.
    The file holds the process id of whoever locked it last; on Windows it cannot be read while it is locked."""
    from filelock import FileLock, Timeout  # 10 ms that only training needs

    # a soft lock is a mere file: it would outlive a killed process, so a disk without locks is an error
    lock = FileLock(path, thread_local=False, fallback_to_soft=False)
    with writing(path):
        try:
            lock.acquire(blocking=False)
        except Timeout:
            holder = "another process"
            with contextlib.suppress(OSError, ValueError):
                holder = f"process {int(path.read_text(encoding='utf-8'))}"
            raise FolderError(f"{path.parent}: {holder} is at work there; wait, or choose another folder") from None
    with contextlib.suppress(OSError):
        path.write_text(str(os.getpid()), encoding="utf-8")
    return lock


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; Windows, which opens no folders, is left to do so by itself."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def writing(path: Path, needs: int = 0) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        amount = f"{needs:,} bytes are needed, " if needs else ""
        advice = f"; {amount}the disk is full: free some space or choose another disk" if full else ""
        raise FolderError(f"{path}: cannot be written ({error.strerror or error}){advice}") from None
