"""The rules of the tree: folders import downwards only, no drawers, no long files, no notes to self."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / "src" / "kinfolk"

# A folder imports from itself and from those in earlier rows.
ORDER = (
    ("errors", "files", "machine"),
    ("text",),
    ("nn",),
    ("data",),
    ("objectives",),
    ("models",),
    ("checkpoints",),
    ("generation",),
    ("training",),
    ("tasks",),
    ("demo", "api"),
    ("sklearn", "cli", "show", "serve"),
    ("kinfolk",),  # __init__.py and __main__.py, which only hand out what the others hold
)
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
WITHOUT_TORCH = ("errors", "files", "text", "kinfolk")
MOST_LINES = 400


def room_of(file: Path, source: Path) -> str:
    """`text` for text/train.py, `errors` for errors.py, `kinfolk` for the files of the package itself."""
    first = file.relative_to(source).parts[0].removesuffix(".py")
    return "kinfolk" if first in ("__init__", "__main__") else first


def imports_of(file: Path, source: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import, wherever it stands; relative ones made absolute."""
    package = ("kinfolk", *file.relative_to(source).parts[:-1])
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *([node.module] if node.module else [])))
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def fault_of(room: str, imported: str) -> str | None:
    """Why this room may not import that name, or None."""
    top, _, rest = imported.partition(".")
    if top == "torch" and room in WITHOUT_TORCH:
        return f"{room} imports torch, which must load only when a model is used"
    if top != "kinfolk" or rest == "__version__":
        return None
    target = rest.split(".")[0] if rest.split(".")[0] in RANK else "kinfolk"
    if RANK[target] > RANK[room] or (RANK[target] == RANK[room] and target == "kinfolk" != room):
        hint = " (for the version: from kinfolk import __version__)" if imported == "kinfolk" else ""
        return f"{room} imports {imported}, which stands above it{hint}"
    return None


def import_faults(source: Path) -> list[str]:
    """`file:line: reason` for every import that breaks the order, and every file in a room the order does not know."""
    faults = []
    for file in sorted(source.rglob("*.py")):
        name, room = file.relative_to(source), room_of(file, source)
        if room not in RANK:
            faults.append(f"{name}:1: {room} has no place in the order of tests/test_imports.py")
            continue
        checked = ((line, fault_of(room, imported)) for line, imported in imports_of(file, source))
        faults.extend(f"{name}:{line}: {fault}" for line, fault in checked if fault)
    return faults


def test_folders_import_only_from_those_before_them() -> None:
    faults = import_faults(SOURCE)
    assert not faults, "\n".join(faults)


def test_a_wrong_import_is_found_wherever_it_hides(tmp_path: Path) -> None:
    (tmp_path / "nn").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "drawer").mkdir()
    (tmp_path / "nn" / "a.py").write_text("def f():\n    from kinfolk.models import bert\n")
    (tmp_path / "nn" / "b.py").write_text("from ..text import c\nfrom .. import api\nfrom kinfolk import load\n")
    (tmp_path / "text" / "c.py").write_text("if TYPE_CHECKING:\n    import torch\n    import kinfolk.errors\n")
    (tmp_path / "drawer" / "d.py").write_text("")
    locations = [fault.split(": ")[0] for fault in import_faults(tmp_path)]
    assert locations == ["drawer/d.py:1", "nn/a.py:2", "nn/b.py:2", "nn/b.py:3", "text/c.py:2"]


def test_no_module_is_a_drawer() -> None:
    assert [file for file in SOURCE.rglob("*") if file.stem in ("util", "utils")] == []


def test_no_source_file_is_long() -> None:
    sizes = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in SOURCE.rglob("*.py")}
    assert {file: size for file, size in sizes.items() if size > MOST_LINES} == {}


def test_no_note_to_self_is_left() -> None:
    note = re.compile(r"\b(TO" r"DO|FIX" r"ME)\b")
    files = [file for room in ("src", "tests", "scripts") for file in (REPOSITORY / room).rglob("*") if file.is_file()]
    left = []
    for file in files:
        if "__pycache__" not in file.parts:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            left.extend(f"{file}:{index}" for index, line in enumerate(lines, 1) if note.search(line))
    assert left == []
