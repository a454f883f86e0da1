"""What there is to know about labelled data before a training run: class balance, lengths, duplicates, likely mistakes.

Does the model know the language? Two numbers tell, measured on nine public vocabularies (WordPiece, byte-level BPE, BPE
and unigram) over articles, reviews, captions, questions and news. A word is a run of letters and digits, a punctuation
mark, or one character of a script that writes no spaces.

  subwords per word   own language 1.00 to 1.30, up to 1.45 for lower-case names in a cased vocabulary;
  (fertility)         another language in the same script 1.47 to 2.45; Chinese in an English byte BPE 2.07 to 2.15
  unknown tokens      own language at most 0.4 %; Chinese in other English vocabularies 40 % and more
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from kinfolk.data.examples import AnyExample, Sentence, fingerprint, label_names, numeric_labels, to_number
from kinfolk.errors import shorten_list
from kinfolk.text.encoding import UNSPACED
from kinfolk.text.windows import TokenCounts

MAX_SUBWORDS_PER_WORD = 1.46
MAX_UNKNOWN_RATE = 0.05
MIN_WORDS = 100  # with fewer the two rates say nothing
FEW_EXAMPLES = 5  # of a class
MANY_CLASSES = 10
SHOWN = 3

WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]")
Counts = tuple[tuple[str, int], ...]  # most frequent first


@dataclass(frozen=True, slots=True)
class TokenStats:
    """What the tokenizer makes of the texts; lengths include special tokens."""

    median: int
    p95: int
    longest: int
    over_limit: float  # share of sequences that are longer than the model's limit
    subwords_per_word: float
    unknown_rate: float
    words: int

    @property
    def foreign(self) -> bool:
        """Do the texts look like a language that the vocabulary was not made for?"""
        split = self.unknown_rate > MAX_UNKNOWN_RATE or self.subwords_per_word > MAX_SUBWORDS_PER_WORD
        return self.words >= MIN_WORDS and split


@dataclass(frozen=True, slots=True)
class Duplicates:
    """How many examples repeat an earlier text, and the first of them: (location, location of the earlier one)."""

    count: int
    first: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        shown = ", ".join(f"{PurePath(again).name} = {PurePath(before).name}" for again, before in self.first)
        more = ", …" if self.count > len(self.first) else ""
        return f"{self.count:,} ({shown}{more})" if self.count else "0"


@dataclass(frozen=True)
class Summary:
    """What there is to know before training; `str` is what is printed."""

    rows: Sequence[tuple[str, str]]

    def __str__(self) -> str:
        return "\n".join(f"{name:<11} {text}" for name, text in self.rows if text)


@dataclass(frozen=True)
class DataSummary(Summary):
    examples: int
    dev_examples: int
    labels: Counts
    tags: Counts  # of words
    numbers: tuple[float, float, float] | None  # of regression: minimum, median, maximum
    tokens: TokenStats
    limit: int
    duplicates: Duplicates  # within train
    overlap: Duplicates  # dev examples that train has too
    warnings: tuple[str, ...]


def summarize(
    train: Sequence[AnyExample], dev: Sequence[AnyExample], counts: TokenCounts, limit: int, description: str = ""
) -> DataSummary:
    """Statistics of the examples, at least one of them to train on; `dev` may be empty. `counts` are those of the
    training texts, `limit` is the longest sequence of the model, `description` says the task and what was read."""
    tags = Counter(name for example in train if isinstance(example, Sentence) for name in label_names(example))
    labels = Counter(name for example in train for name in label_names(example)) - tags
    values = sorted(numeric_labels(train))
    numbers = (values[0], values[len(values) // 2], values[-1]) if values else None
    tokens, seen = _token_stats(train, counts, limit), dict[bytes, str]()
    duplicates, overlap = _duplicates(train, seen, adding=True), _duplicates(dev, seen, adding=False)
    warnings = *_label_warnings(labels + tags, dev), *_text_warnings(train, tokens)
    lengths = f"median {tokens.median}, 95% up to {tokens.p95}, longest {tokens.longest}"
    rows = [
        ("read", description),
        ("examples", f"{len(train):,} train, {len(dev):,} dev"),
        ("labels", _balance(labels, numbers) if labels or not tags else ""),
        ("tags", _balance(tags) if tags else ""),
        ("tokens", f"{lengths}; {tokens.over_limit:.1%} above the limit of {limit}"),
        ("subwords", f"{tokens.subwords_per_word:.2f} per word, {tokens.unknown_rate:.1%} unknown"),
        ("duplicates", f"{duplicates} in train; train/dev overlap {overlap}"),
        *(("warning", warning) for warning in warnings),
    ]
    sizes, balance = (len(train), len(dev)), (tuple(labels.most_common()), tuple(tags.most_common()))
    return DataSummary(rows, *sizes, *balance, numbers, tokens, limit, duplicates, overlap, warnings)


def _balance(counts: Counter[str], numbers: tuple[float, float, float] | None = None) -> str:
    if numbers is not None:
        return "numbers from {0:g} to {2:g}, median {1:g}".format(*numbers)
    shares = (f"{name} {count / counts.total():.1%} ({count:,})" for name, count in counts.most_common())
    return shorten_list(shares, 12) or "none"


def _token_stats(train: Iterable[AnyExample], counts: TokenCounts, limit: int) -> TokenStats:
    words = 0
    for example in train:
        first, *others = example.content
        read = (len(others) or 1) * len(WORD.findall(first))  # each option of a choice is read beside its context
        words += read + sum(len(WORD.findall(other)) for other in others)
    lengths = sorted(counts.lengths)
    median, p95 = lengths[len(lengths) // 2], lengths[(95 * len(lengths) - 1) // 100]
    over_limit = sum(length > limit for length in lengths) / len(lengths)
    rates = counts.subwords / max(words, 1), counts.unknown / max(counts.subwords, 1)
    return TokenStats(median, p95, lengths[-1], over_limit, *rates, words)


def _duplicates(examples: Iterable[AnyExample], seen: dict[bytes, str], adding: bool) -> Duplicates:
    repeats: list[tuple[str, str]] = []
    for example in examples:
        key = fingerprint(example.content)
        if key in seen:
            repeats.append((example.location, seen[key]))
        elif adding:
            seen[key] = example.location
    return Duplicates(len(repeats), tuple(repeats[:SHOWN]))


def _label_warnings(counts: Counter[str], dev: Iterable[AnyExample]) -> Iterator[str]:
    absent = sorted(set[str]().union(*map(label_names, dev)) - counts.keys())
    if absent:
        yield f"in dev but not in train, so they can never be predicted: {shorten_list(absent, 12)}"
    numbers = all(to_number(name, texts=True) is not None for name in counts)
    if numbers and len(counts) > MANY_CLASSES and 2 * len(counts) > counts.total():
        yield "most labels are distinct numbers, each taken as a class; if they are values, use the task regress"
        return
    rare = [f"{name} ({count})" for name, count in reversed(counts.most_common()) if count < FEW_EXAMPLES]
    if rare:
        yield f"fewer than {FEW_EXAMPLES} examples in train: {shorten_list(rare, 12)}"


def _text_warnings(train: Iterable[AnyExample], tokens: TokenStats) -> Iterator[str]:
    empty = [example.location for example in train if not all(text.strip() for text in example.content)]
    if empty:
        yield f"empty text in {len(empty):,} examples: {shorten_list(empty, SHOWN)}"
    if tokens.foreign:
        unknown = f"{tokens.unknown_rate:.0%} of the tokens are unknown to the vocabulary"
        split = f"words are split into {tokens.subwords_per_word:.2f} subwords on average (1.0 to 1.3 is usual)"
        reason = unknown if tokens.unknown_rate > MAX_UNKNOWN_RATE else split
        yield f"{reason}: the model may not know the language, spelling or case; choose one that does"
