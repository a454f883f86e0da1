"""Holding out a part of the examples where there is no file for it: seeded, fair to classes, without leaks.

Examples with the same text (`origin`: for questions the whole context, so that no paragraph is on both sides) stay
together; case and the width of blanks do not count. Classes keep their shares, numbers the shares of their tenths;
examples with several labels, choices, tagged sentences and questions are drawn without regard to labels. The first
text of every class stays in the training part, so that no class is only held out. File order is kept on both sides.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence

from kinfolk.data.examples import AnyExample, Example, Item, fingerprint, numbers_of
from kinfolk.errors import DataError, InputError

TENTHS = 10


def stratified_split(examples: Sequence[Item], share: float = 0.1, seed: int = 0) -> tuple[list[Item], list[Item]]:
    """(to train on, held out): about `share` of the examples is held out, at least one text."""
    if not 0 < share < 1:
        raise InputError(f"share={share} is not between 0 and 1")
    strata = _strata(examples)
    held = _held_out(strata, share, random.Random(f"{seed} split"))
    if not held:
        largest = max(strata, key=len, default=[])
        if len(largest) < 2:
            raise DataError(f"{len(examples)} examples are too few to hold some out; give a file of others")
        smallest: list[int] = min(largest, key=len)
        held = set(smallest)
    kept = [example for number, example in enumerate(examples) if number not in held]
    return kept, [examples[number] for number in sorted(held)]


def _strata(examples: Sequence[Item]) -> list[list[list[int]]]:
    """Numbers of the examples: for each stratum its groups of the same text. A group is where its first example is."""
    groups: dict[bytes, list[int]] = {}
    for number, example in enumerate(examples):
        groups.setdefault(fingerprint(example.origin), []).append(number)
    cuts = _cuts(examples)
    strata: dict[str, list[list[int]]] = {}
    for group in groups.values():
        strata.setdefault(_stratum(examples[group[0]], cuts), []).append(group)
    return [strata[name] for name in sorted(strata)]


def _cuts(examples: Sequence[AnyExample]) -> list[float]:
    """Where the tenths of the numbers lie."""
    numbers = sorted(numbers_of(examples))
    return [numbers[len(numbers) * tenth // TENTHS] for tenth in range(1, TENTHS)] if numbers else []


def _stratum(example: AnyExample, cuts: Sequence[float]) -> str:
    label = example.label if isinstance(example, Example) else None
    if isinstance(label, float):
        return str(bisect_right(cuts, label))
    return label if isinstance(label, str) else ""


def _held_out(strata: list[list[list[int]]], share: float, draw: random.Random) -> set[int]:
    """Walk through the shuffled groups, stratum by stratum; take one whenever too few are held out so far."""
    held: set[int] = set()
    seen = draw.random() / share  # where the walk begins, so that no stratum is always rounded down
    for groups in strata:
        draw.shuffle(groups)
        for place, group in enumerate(groups):
            seen += len(group)
            if (place or len(strata) == 1) and len(held) + len(group) <= share * seen:
                held.update(group)
    return held
