"""Which column is what: the user's word first, then the names that public data sets use, else an error with a list.

A guess is made only where one reading fits. A second text is taken only as the partner of the first (`sentence1` and
`sentence2`), never by itself. Case does not matter in guesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kinfolk.data.readers import no_column
from kinfolk.errors import DataError, InputError, first_few

PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("#1 string", "#2 string"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("question", "sentence"),
    ("question", "passage"),
    ("question", "answer"),
    ("query", "passage"),
)
TEXTS = ("text", "sentence", "review", "content", "document", "comment", "tweet", "utterance")
LABELS = (
    *("label", "labels", "gold_label", "class", "category", "stars", "rating", "score"),
    *("is_duplicate", "quality", "target", "sentiment", "intent"),
)


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of the columns to read."""

    text: str
    pair: str | None
    label: str | None
    others: tuple[str, ...] = field(default=(), compare=False)  # that nobody reads

    @property
    def told(self) -> str:
        """`text "review", label "stars"; not read: id`."""
        roles = (("text", self.text), ("pair", self.pair), ("label", self.label))
        read = ", ".join(f'{role} "{name}"' for role, name in roles if name is not None)
        return read + (f"; not read: {first_few(self.others, 12)}" if self.others else "")

    @property
    def named(self) -> list[str]:
        return [name for name in (self.text, self.pair, self.label) if name is not None]


def find_columns(
    where: str, present: Sequence[str], text: str | None, pair: str | None, label: str | None, needs_label: bool
) -> Columns:
    """The columns of a table: those named, and guesses for those not. `pair=""` says that there is no second text.

    A label that is not needed is read only where its column is named.
    """
    for name in filter(None, (text, pair, label)):
        if name not in present:
            raise DataError(f"{where}: {no_column(name, present)}")
    taken = [name for name in (text, pair, label) if name]
    if len(set(taken)) < len(taken):
        raise InputError(f'{where}: text, pair and label must be different columns, not "{first_few(taken)}"')
    if label is None and needs_label:
        label = _one(where, present, [name for name in _known(present, LABELS) if name not in taken], "label")
    text = text or _text(where, [name for name in present if name not in (pair, label)], present)
    if pair is None:
        partners = _partners(text, [name for name in present if name != label])
        pair = _one(where, present, partners, "pair") if partners else None
    others = tuple(name for name in present if name not in (text, pair, label))
    return Columns(text, pair or None, label, others)


def _known(present: Sequence[str], names: Sequence[str]) -> list[str]:
    return [name for name in present if name.lower() in names]


def _partners(text: str, free: Sequence[str]) -> list[str]:
    return _known(free, [second for first, second in PAIRS if first == text.lower()])


def _text(where: str, free: Sequence[str], present: Sequence[str]) -> str:
    """The one column with the name of a text that is not another's partner."""
    named = _known(free, (*TEXTS, *(first for first, _ in PAIRS)))
    seconds = [partner for name in named for partner in _partners(name, free)]
    return _one(where, present, [name for name in named if name not in seconds], "text")


def _one(where: str, present: Sequence[str], candidates: list[str], role: str) -> str:
    if len(candidates) == 1:
        return candidates[0]
    why = f"{' and '.join(candidates)} could be" if candidates else "no column has a name that says it is"
    listed = first_few(present, most=12) or "none"
    no_header = "" if candidates else "; a file without a header line needs --header"
    raise DataError(f"{where}: {why} the {role}; the columns are: {listed}; name one with --{role}{no_header}")
