"""Damage to files, and what may come of it: a TokenizerError of one line, or a tokenizer that works."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kinfolk.errors import TokenizerError
from surroundings import RAN

Damage = Callable[[bytes, random.Random], bytes]

VALUES: list[Any] = [
    None, True, 0, -1, 2**31, 10**30, 1.5, "", "a", "\ud800", "(", "(a+)+$", "\0", [], {}, ["a"], [1, 2], "x" * 5000,
    {"Regex": "("}, {"String": ""}, {"type": "Sequence", "normalizers": []}, "Isolated", "▁▁",
]  # fmt: skip


def spots(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to values in a JSON document, a few of each long list."""
    paths = [path] if path else []
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, inner in list(items)[:12]:
        paths += spots(inner, (*path, name))
    return paths


def damage_json(raw: bytes, generator: random.Random) -> bytes:
    content = json.loads(raw)
    for _ in range(generator.choice((1, 1, 2))):
        path = generator.choice(spots(content))
        inner = content
        for step in path[:-1]:
            inner = inner[step]
        if generator.random() < 0.2:
            del inner[path[-1]]
        else:
            inner[path[-1]] = generator.choice(VALUES)
        if not spots(content):
            break
    return json.dumps(content).encode()


def damage_bytes(raw: bytes, generator: random.Random) -> bytes:
    content = bytearray(raw)
    for _ in range(generator.choice((1, 1, 2, 5, 20))):
        index, kind = generator.randrange(len(content) + 1), generator.random()
        if kind < 0.5:
            content[index : index + 1] = generator.randbytes(1)
        elif kind < 0.7:
            del content[index : index + generator.randrange(1, 20)]
        elif kind < 0.8:
            del content[index:]
        else:
            start = generator.randrange(len(content) + 1)
            content[index:index] = content[start : start + generator.randrange(1, 200)]
    return bytes(content)


def is_refused_or_works(file: Path, damage: Damage, times: int, seed: str, use: Callable[[], object]) -> None:
    """`use` opens the folder of the file and puts it to work."""
    whole, generator, refused = file.read_bytes(), random.Random(seed), []
    for _ in range(times):
        file.write_bytes(damage(whole, generator))
        try:
            use()
        except TokenizerError as error:
            refused.append(str(error))
    RAN["mutated files"] += times
    assert 0 < len(refused) < times
    assert [message for message in refused if "\n" in message] == []
