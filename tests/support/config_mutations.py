"""Faults in a config.json: keys that are gone, misspelt or twice, values of every wrong kind, broken JSON."""

from __future__ import annotations

import json
import random
from typing import Any

HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 10**6, 10**12, 10**30, 2**24, 0.5, 1.5, -0.5, 1e-300, 1e300, "", "x", "bert",
    "gelu", "\ud800", "../..", "x" * 10_000, [], [[]], [None], ["BertModel"], {}, {"a": 1}, [10**9] * 3, {"": [{}]},
]  # fmt: skip


def mutated(text: str, rng: random.Random) -> str:
    """A config.json with one to three faults."""
    settings = json.loads(text)
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(list(settings) or ["model_type"])
        kind = rng.randrange(6)
        if kind == 0:
            settings.pop(name, None)
        elif kind == 1:
            settings[name + rng.choice("sx_")] = settings.get(name)
        elif kind == 2:
            nested = "[" * (depth := rng.choice([3, 500, 100_000])) + "]" * depth
            return text.replace(f'"{name}":', f'"{name}": {nested}, "also":', 1)
        elif kind == 3:
            index = rng.randrange(len(text))
            return text[:index] + rng.choice(['"', "{", "}", "NaN", "1e999", "\0", "9" * 5000]) + text[index:]
        elif kind == 4:
            return text.replace("{", f'{{"{name}": {json.dumps(rng.choice(HOSTILE))},', 1)  # the key stands there twice
        else:
            settings[name] = rng.choice(HOSTILE)
    return json.dumps(settings)
