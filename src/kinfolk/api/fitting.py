"""Settings that suit the data, where the user names none: rules, each with the reason that is printed.

The rules follow from trials that `recipes/minutes.py` makes again: docs/results/minutes.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from kinfolk.data.tables import Pair
from kinfolk.text.train import DEFAULT_KIND, DEFAULT_SIZE

FEW_WORDS = 3.0  # a side with fewer in a text is no language, or its letters matter: dates, names, pronunciations
FEW_PAIRS = 3_000  # too few to learn pieces of words from
SHORT = 100  # characters of a text that may be read one by one
WORDS_A_PIECE = 50  # of the corpus: a piece is to be seen this often, in the mean
FEWEST_PIECES = 500
SMALL_CORPUS = 200_000  # words, of both sides
ENOUGH_STEPS = 150  # to fine-tune in; examples are seen again for it, and batches are smaller
FEW_EXAMPLES_A_BATCH, USUAL_EPOCHS, MOST_EPOCHS = 8, 3.0, 24.0
NARROW = 512  # models below this width bear a higher rate


@dataclass(frozen=True)
class Fitted:
    """Values of the settings that nobody gave, and why."""

    values: Mapping[str, Any] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def rows(self) -> list[tuple[str, str]]:
        """As they are printed."""
        return [("chosen", f"{name} {self.values[name]}: {reason}") for name, reason in self.reasons.items()]


def fit_translator(pairs: Sequence[Pair], kind: str, given: Mapping[str, Any]) -> Fitted:
    """What suits these pairs, for each name in `given` whose value is None; the others are as they are given."""
    sides = [[pair.source for pair in pairs], [pair.target for pair in pairs]]
    words = [mean(len(text.split()) for text in side) for side in sides]
    longest = max(mean(map(len, side)) for side in sides)
    corpus = round(sum(words) * len(pairs))
    values, reasons = dict(given), dict[str, str]()

    def choose(name: str, value: Any, reason: str) -> None:
        if values.get(name) is None:
            values[name], reasons[name] = value, reason

    least = min(words)
    if values["vocabulary_size"] is not None and values["vocabulary_kind"] is None:
        values["vocabulary_kind"] = DEFAULT_KIND  # who asks for a size means pieces
    if least < FEW_WORDS and longest <= SHORT:
        side = "source" if words[0] == least else "target"
        choose("vocabulary_kind", "characters", f"a {side} has {least:.1f} words: its letters matter")
    elif len(pairs) < FEW_PAIRS and longest <= SHORT:
        choose("vocabulary_kind", "characters", f"{len(pairs):,} pairs are too few to learn pieces from")
    else:
        choose("vocabulary_kind", DEFAULT_KIND, f"{corpus:,} words of text to learn pieces from")
    if values["vocabulary_kind"] not in ("characters", "words") and corpus < WORDS_A_PIECE * DEFAULT_SIZE:
        size = max(FEWEST_PIECES, round(corpus / WORDS_A_PIECE, -2))
        choose("vocabulary_size", size, f"so that a piece is seen {WORDS_A_PIECE} times")
    if values["vocabulary_kind"] == "characters":
        choose("size", "tiny", "characters are few, and so is what one must know of each")
    elif corpus < SMALL_CORPUS:
        choose("size", "tiny", f"{corpus:,} words are little text")
    else:
        choose("size", "small", f"{corpus:,} words of text")
    recurrent, tiny = kind != "transformer", values["size"] == "tiny"
    if recurrent and tiny:
        choose("learning_rate", 2e-3, "one recurrent layer bears it")
    if values["vocabulary_kind"] == "characters":
        choose("label_smoothing", 0.0, "the next character is often certain")
    if len(pairs) < FEW_PAIRS:
        choose("dropout", 0.3, f"{len(pairs):,} pairs are seen often")
    return Fitted(values, reasons)


def fit_finetuning(examples: int, width: int, given: Mapping[str, Any]) -> Fitted:
    """What suits so many examples and a model of this width, of epochs, learning_rate and min_steps."""
    values, reasons = dict(given), dict[str, str]()
    if not {"epochs", "minutes", "steps"} & {name for name, value in given.items() if value is not None}:
        enough = min(MOST_EPOCHS, float(-(-ENOUGH_STEPS * FEW_EXAMPLES_A_BATCH // examples)))
        if enough > USUAL_EPOCHS:
            values["epochs"], reasons["epochs"] = enough, f"{examples:,} examples are few"
    if values.get("learning_rate") is None and width < NARROW:
        values["learning_rate"], reasons["learning_rate"] = 1e-4, f"a model of width {width:,} bears it"
    if values.get("min_steps") is None and values.get("batch_size") is None:
        values["min_steps"] = ENOUGH_STEPS
    return Fitted(values, reasons)
