"""A dev set held out of the training examples: seeded, stratified by label, without leaks.

Examples with the same text (`origin`: for questions the whole context, so that no paragraph is on both sides) stay
together; case and the width of spaces do not count. Classes keep their shares, numbers the shares of their deciles;
examples with several labels, choices, tagged sentences and questions are not stratified. The first
text of every class stays in the training part, and so does the last one there with any label or tag, so that nothing
is only held out. File order is kept on both sides.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from kinfolk.data.examples import AnyExample, Example, Item, Sentence, fingerprint, numeric_labels
from kinfolk.errors import DataError, InputError

DECILES = 10


def stratified_split(examples: Sequence[Item], share: float = 0.1, seed: int = 0) -> tuple[list[Item], list[Item]]:
    """(train, dev): about `share` of the examples is held out, at least one text."""
    if not 0 < share < 1:
        raise InputError(f"share={share} is not between 0 and 1")
    strata = _strata(examples)
    spare = _Spare(examples, strata)
    dev = _draw_dev(strata, share, spare, random.Random(f"{seed} split"))
    if not dev:
        largest = max(strata, key=len, default=[])
        spared = [group for group in largest if spare.covers(group)]
        if len(largest) < 2 or not spared:
            single = 2 * len(strata) > len(examples) > 1  # most classes have one example
            hint = "most labels occur once (numbers are --task regress; is it the right column?), or " if single else ""
            raise DataError(f"{len(examples)} examples are too few to hold some out: {hint}give a file of others")
        smallest: list[int] = min(spared, key=len)
        dev = set(smallest)
    train = [example for index, example in enumerate(examples) if index not in dev]
    return train, [examples[index] for index in sorted(dev)]


def _strata(examples: Sequence[Item]) -> list[list[list[int]]]:
    """Indices of the examples: for each stratum its groups of equal texts. A group's stratum is its first example's."""
    groups: dict[bytes, list[int]] = {}
    for index, example in enumerate(examples):
        groups.setdefault(fingerprint(example.origin), []).append(index)
    cuts = _deciles(examples)
    strata: dict[str, list[list[int]]] = {}
    for group in groups.values():
        strata.setdefault(_stratum(examples[group[0]], cuts), []).append(group)
    return [strata[name] for name in sorted(strata)]


def _deciles(examples: Sequence[AnyExample]) -> list[float]:
    """The deciles of the numbers."""
    numbers = sorted(numeric_labels(examples))
    return [numbers[len(numbers) * decile // DECILES] for decile in range(1, DECILES)] if numbers else []


def _stratum(example: AnyExample, cuts: Sequence[float]) -> str:
    label = example.label if isinstance(example, Example) else None
    if isinstance(label, float):
        return str(bisect_right(cuts, label))
    return label if isinstance(label, str) else ""


class _Spare:
    """Which groups the training part can spare: those whose every label or tag it has in another group too."""

    def __init__(self, examples: Sequence[AnyExample], strata: list[list[list[int]]]):
        self.examples = examples
        self.left = Counter(name for groups in strata for group in groups for name in self.names(group))

    def names(self, group: list[int]) -> set[str]:
        return {name for index in group for name in _names(self.examples[index])}

    def covers(self, group: list[int]) -> bool:
        return all(self.left[name] > 1 for name in self.names(group))

    def take(self, group: list[int]) -> None:
        self.left.subtract(self.names(group))


def _names(example: AnyExample) -> tuple[str, ...]:
    label = example.label if isinstance(example, Example) else None
    tags = example.tags if isinstance(example, Sentence) else None
    return label if isinstance(label, tuple) else (label,) if isinstance(label, str) else tags or ()


def _draw_dev(strata: list[list[list[int]]], share: float, spare: _Spare, generator: random.Random) -> set[int]:
    """Walk through the shuffled groups, stratum by stratum; take one whenever too few are held out so far."""
    dev: set[int] = set()
    seen = generator.random() / share  # where the walk begins, so that no stratum is always rounded down
    for groups in strata:
        generator.shuffle(groups)
        for index, group in enumerate(groups):
            seen += len(group)
            due = (index or len(strata) == 1) and len(dev) + len(group) <= share * seen
            if due and spare.covers(group):
                dev.update(group)
                spare.take(group)
    return dev
