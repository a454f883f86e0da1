"""What there is to know about labelled data before a training run: class balance, lengths, duplicates, likely mistakes.

Does the model know the language? Two numbers tell, measured on nine public vocabularies (WordPiece, byte-level BPE, BPE
and unigram) over articles, reviews, captions, questions and news. A word is a run of letters and digits, a punctuation
mark, or one character of a script that writes no spaces.

  subwords per word   own language 1.00 to 1.30, up to 1.45 for lower-case names in a cased vocabulary;
  (fertility)         another language in the same script 1.47 to 2.45; Chinese in an English byte BPE 2.07 to 2.15
  unknown tokens      own language at most 0.4 %; Chinese in other English vocabularies 40 % and more
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from kinfolk.data.batching import chunks
from kinfolk.data.examples import AnyExample, Choice, Question, Sentence, fingerprint, numeric_labels
from kinfolk.errors import DataError, shorten_list
from kinfolk.text.encoding import Encoding, Text
from kinfolk.text.tokenizer import Tokenizer

MAX_SUBWORDS_PER_WORD = 1.46
MAX_UNKNOWN_RATE = 0.05
MIN_WORDS = 100  # with fewer the two rates say nothing
FEW_EXAMPLES = 5  # of a class
MANY_CLASSES = 10
SHOWN = 3
CHUNK_TEXTS = 1024

UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Thai, Lao, kana, Chinese characters
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]")
Counts = tuple[tuple[str, int], ...]  # most frequent first


class TokenCounts:
    """Lengths and unknown tokens of sequences, added as they are encoded: here, or where a task encodes them anyway."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.lengths: list[int] = []  # special tokens included
        self.subwords = 0  # without them
        self.unknown = 0

    def add(self, encoding: Encoding, pair: bool) -> None:
        """Count the tokens of one whole text, or of one pair."""
        self.lengths.append(len(encoding))
        self.subwords += len(encoding) - self.tokenizer.special_tokens_count(pair)
        if self.tokenizer.unk_id is not None:
            self.unknown += encoding.ids.count(self.tokenizer.unk_id)


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


@dataclass(frozen=True, slots=True)
class DataSummary:
    """Statistics of labelled data; `str` is what is printed before training."""

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
    description: str = ""  # the task, and what was read of the file

    def __str__(self) -> str:
        tokens = self.tokens
        lines = [
            *([f"read       {self.description}"] if self.description else []),
            f"examples   {self.examples:,} train, {self.dev_examples:,} dev",
            *([f"labels     {self._balance(self.labels)}"] if self.labels or not self.tags else []),
            *([f"tags       {self._balance(self.tags)}"] if self.tags else []),
            f"tokens     median {tokens.median}, 95% up to {tokens.p95}, longest {tokens.longest}; "
            f"{tokens.over_limit:.1%} above the limit of {self.limit}",
            f"subwords   {tokens.subwords_per_word:.2f} per word, {tokens.unknown_rate:.1%} unknown",
            f"duplicates {self.duplicates} in train; train/dev overlap {self.overlap}",
        ]
        return "\n".join(lines + [f"warning    {warning}" for warning in self.warnings])

    def _balance(self, counts: Counts) -> str:
        if self.numbers is not None:
            smallest, median, largest = self.numbers
            return f"numbers from {smallest:g} to {largest:g}, median {median:g}"
        total = sum(count for _, count in counts)
        return shorten_list((f"{name} {count / total:.1%} ({count:,})" for name, count in counts), 12) or "none"


def summarize(
    train: Sequence[AnyExample],
    dev: Sequence[AnyExample],
    tokenizer: Tokenizer,
    limit: int,
    description: str = "",
    counts: TokenCounts | None = None,
) -> DataSummary:
    """Statistics of the examples; `limit` is the longest sequence of the model, `dev` may be empty.

    `counts` are those of the training texts, where they were tokenized already; else that is done here.
    """
    if not train:
        raise DataError("there are no examples to train on")
    labels = Counter(name for example in train for name in class_labels(example))
    tags = Counter(name for example in train for name in word_tags(example))
    numbers = sorted(numeric_labels(train))
    tokens = _token_stats(train, count_tokens(train, tokenizer) if counts is None else counts, limit)
    seen: dict[bytes, str] = {}
    duplicates = _duplicates(train, seen, adding=True)
    return DataSummary(
        examples=len(train),
        dev_examples=len(dev),
        labels=tuple(labels.most_common()),
        tags=tuple(tags.most_common()),
        numbers=(numbers[0], numbers[len(numbers) // 2], numbers[-1]) if numbers else None,
        tokens=tokens,
        limit=limit,
        duplicates=duplicates,
        overlap=_duplicates(dev, seen, adding=False),
        warnings=(*_label_warnings(labels + tags, dev), *_text_warnings(train, tokens)),
        description=description,
    )


def class_labels(example: AnyExample) -> tuple[str, ...]:
    """What is counted of a whole example: its class or labels, the index of its answer, or whether it has one."""
    if isinstance(example, Choice):
        return () if example.answer is None else (f"option {example.answer}",)
    if isinstance(example, Question):
        return ("with answer",) if example.answers else ("without answer",)
    if isinstance(example, Sentence):  # it is trained on its tags, not on its label
        return ()
    label = example.label
    return (label,) if isinstance(label, str) else label if isinstance(label, tuple) else ()


def word_tags(example: AnyExample) -> tuple[str, ...]:
    """The tags of a sentence's words."""
    return (example.tags or ()) if isinstance(example, Sentence) else ()


def sequences(example: AnyExample) -> Iterator[Text]:
    """The texts and pairs that the model reads of an example."""
    first, *others = example.content
    if others:
        yield from ((first, other) for other in others)
    else:
        yield first


def count_tokens(examples: Iterable[AnyExample], tokenizer: Tokenizer) -> TokenCounts:
    """Tokenize all texts of the examples and count."""
    counts = TokenCounts(tokenizer)
    for texts in chunks((text for example in examples for text in sequences(example)), CHUNK_TEXTS):
        for text, encoding in zip(texts, tokenizer.encode_many(texts), strict=True):
            counts.add(encoding, isinstance(text, tuple))
    return counts


def _token_stats(train: Iterable[AnyExample], counts: TokenCounts, limit: int) -> TokenStats:
    texts = (text for example in train for text in sequences(example))
    parts = (part for text in texts for part in (text if isinstance(text, tuple) else (text,)))
    words = sum(len(WORD.findall(part)) for part in parts)
    lengths = sorted(counts.lengths)
    return TokenStats(
        median=lengths[len(lengths) // 2],
        p95=lengths[(95 * len(lengths) - 1) // 100],
        longest=lengths[-1],
        over_limit=sum(length > limit for length in lengths) / len(lengths),
        subwords_per_word=counts.subwords / max(words, 1),
        unknown_rate=counts.unknown / max(counts.subwords, 1),
        words=words,
    )


def _duplicates(examples: Iterable[AnyExample], seen: dict[bytes, str], adding: bool) -> Duplicates:
    count = 0
    first: list[tuple[str, str]] = []
    for example in examples:
        key = fingerprint(example.content)
        if key in seen:
            count += 1
            if len(first) < SHOWN:
                first.append((example.location, seen[key]))
        elif adding:
            seen[key] = example.location
    return Duplicates(count, tuple(first))


def _label_warnings(counts: Counter[str], dev: Iterable[AnyExample]) -> Iterator[str]:
    absent = sorted({name for example in dev for name in class_labels(example) + word_tags(example)} - counts.keys())
    if absent:
        yield f"in dev but not in train, so they can never be predicted: {shorten_list(absent, 12)}"
    if len(counts) > MANY_CLASSES and 2 * len(counts) > counts.total() and all(map(_is_number, counts)):
        yield "most labels are distinct numbers, each taken as a class; if they are values, use the task regress"
        return
    rare = [f"{name} ({count})" for name, count in reversed(counts.most_common()) if count < FEW_EXAMPLES]
    if rare:
        yield f"fewer than {FEW_EXAMPLES} examples in train: {shorten_list(rare, 12)}"


def _is_number(label: str) -> bool:
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False


def _text_warnings(train: Iterable[AnyExample], tokens: TokenStats) -> Iterator[str]:
    empty = [example.location for example in train if not all(text.strip() for text in example.content)]
    if empty:
        yield f"empty text in {len(empty):,} examples: {shorten_list(empty, SHOWN)}"
    if tokens.foreign:
        unknown = f"{tokens.unknown_rate:.0%} of the tokens are unknown to the vocabulary"
        split = f"words are split into {tokens.subwords_per_word:.2f} subwords on average (1.0 to 1.3 is usual)"
        reason = unknown if tokens.unknown_rate > MAX_UNKNOWN_RATE else split
        yield f"{reason}: the model may not know the language, spelling or case; choose one that does"
