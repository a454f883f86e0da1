"""Settings that suit the data, where the user names none: rules, each with the reason that is printed.

The rules follow from trials; `recipes/minutes.py` measures what they are worth.
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
    """Values of the settings that nobody gave beside those that were given, and why."""

    values: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    def choose(self, name: str, value: Any, reason: str) -> None:
        """Unless there is a value."""
        if self[name] is None:
            self.values[name], self.reasons[name] = value, reason

    @property
    def rows(self) -> list[tuple[str, str]]:
        """As they are printed."""
        return [("chosen", f"{name} {self.values[name]}: {reason}") for name, reason in self.reasons.items()]


def fit_translator(pairs: Sequence[Pair], recurrent: bool, named: Mapping[str, Any]) -> Fitted:
    """What suits these pairs, for each name in `named` whose value is None; the others are as they are given."""
    fitted = Fitted(dict(named))
    if not pairs:
        return fitted
    corpus = _fit_vocabulary(pairs, fitted)
    letters = fitted["vocabulary_kind"] == "characters"
    if letters:
        fitted.choose("size", "tiny", "characters are few, and so is what one must know of each")
        fitted.choose("label_smoothing", 0.0, "the next character is often certain")
    fitted.choose("size", "tiny" if corpus < SMALL_CORPUS else "small", f"{corpus:,} words of text")
    if recurrent and fitted["size"] == "tiny":
        fitted.choose("learning_rate", 2e-3, "one recurrent layer bears it")
    if len(pairs) < FEW_PAIRS:
        fitted.choose("dropout", 0.3, f"{len(pairs):,} pairs are seen often")
    return fitted


def _fit_vocabulary(pairs: Sequence[Pair], fitted: Fitted) -> int:
    """Characters or pieces of words, and how many; the number of words of both sides."""
    sides = [[pair.source for pair in pairs], [pair.target for pair in pairs]]
    words = [mean(len(text.split()) for text in side) for side in sides]
    short, least, corpus = max(mean(map(len, side)) for side in sides) <= SHORT, min(words), sum(words) * len(pairs)
    if fitted["vocabulary_size"] is not None and fitted["vocabulary_kind"] is None:
        fitted.values["vocabulary_kind"] = DEFAULT_KIND  # who asks for a size means pieces
    if short and least < FEW_WORDS:
        side = "source" if words[0] == least else "target"
        fitted.choose("vocabulary_kind", "characters", f"a {side} has {least:.1f} words: its letters matter")
    elif short and len(pairs) < FEW_PAIRS:
        fitted.choose("vocabulary_kind", "characters", f"{len(pairs):,} pairs are too few to learn pieces from")
    fitted.choose("vocabulary_kind", DEFAULT_KIND, f"{corpus:,.0f} words of text to learn pieces from")
    if fitted["vocabulary_kind"] not in ("characters", "words") and corpus < WORDS_A_PIECE * DEFAULT_SIZE:
        size = max(FEWEST_PIECES, round(corpus / WORDS_A_PIECE / 100) * 100)
        fitted.choose("vocabulary_size", size, f"so that a piece is seen {WORDS_A_PIECE} times")
    return round(corpus)


def fit_finetuning(examples: int, width: int, named: Mapping[str, Any]) -> Fitted:
    """What suits so many examples and a model of this width, of epochs, learning_rate and min_steps."""
    fitted = Fitted(dict(named))
    if not examples:
        return fitted
    if not {"epochs", "minutes", "steps"} & named.keys():
        enough = min(MOST_EPOCHS, float(-(-ENOUGH_STEPS * FEW_EXAMPLES_A_BATCH // examples)))
        if enough > USUAL_EPOCHS:
            fitted.choose("epochs", enough, f"{examples:,} examples are few")
    if "optimization" not in named and width < NARROW:
        fitted.choose("learning_rate", 1e-4, f"a model of width {width:,} bears it")
    if not {"min_steps", "batch_size", "batch_tokens", "steps"} & named.keys():
        fitted.choose("min_steps", ENOUGH_STEPS, "batches become smaller, down to an eighth, where there are fewer")
    return fitted


def fit_pretraining(tokens: int, parameters: int, continued: bool, named: Mapping[str, Any]) -> Fitted:
    """What suits a corpus of so many tokens and a model of so many parameters, of dropout; where it is `continued`, of
    learning_rate."""
    fitted = Fitted(dict(named))
    if continued:
        fitted.choose("learning_rate", 1e-4, "low, so that the checkpoint keeps what it knows")
    if tokens > parameters:
        fitted.choose("dropout", 0.0, f"{parameters:,} parameters cannot learn {tokens:,} tokens by heart")
    return fitted
