"""Files that a test writes by hand."""

from __future__ import annotations

from pathlib import Path


def written(folder: Path, name: str, content: bytes | str) -> Path:
    """A file with just this content."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path
