"""What there is to know about labelled data before a training run: balance, lengths, repeats, and what looks wrong.

Does the model know the language? Two numbers tell, measured on nine public vocabularies (WordPiece, byte BPE, BPE and
unigram) over articles, reviews, captions, questions and news. A word is a run of letters and digits, a mark, or one
character of a script that writes no blanks.

  pieces per word   own language 1.00 to 1.30, up to 1.45 for lower-case names in a vocabulary with capitals;
                    another language in the same letters 1.47 to 2.45; Chinese in an English byte BPE 2.07 to 2.15
  unknown pieces    own language at most 0.4 %; Chinese in other English vocabularies 40 % and more
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from kinfolk.data.batching import chunks
from kinfolk.data.examples import AnyExample, Choice, Question, Sentence, fingerprint, numbers_of
from kinfolk.errors import DataError, shorten_list
from kinfolk.text.encoding import Text
from kinfolk.text.tokenizer import Tokenizer

MAX_SUBWORDS_PER_WORD = 1.46  # per word
MAX_UNKNOWN_RATE = 0.05  # of all pieces
MIN_WORDS = 100  # below it the two numbers above say nothing
FEW_EXAMPLES = 5  # of a class
MANY_CLASSES = 10
SHOWN = 3
AT_ONCE = 1024

UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Thai, Lao, kana, Chinese characters
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]")
Counts = tuple[tuple[str, int], ...]  # most frequent first


@dataclass(frozen=True, slots=True)
class Pieces:
    """What the tokenizer makes of the texts; lengths count special tokens."""

    median: int
    most: int  # 95 of 100 sequences are not longer
    longest: int
    above: float  # share of sequences that are longer than the model's limit
    per_word: float
    unknown: float
    words: int


@dataclass(frozen=True, slots=True)
class Repeats:
    """How many examples have a text that stood before, and the first of them: (where, where it stood before)."""

    count: int
    first: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        shown = ", ".join(f"{PurePath(again).name} = {PurePath(before).name}" for again, before in self.first)
        more = ", …" if self.count > len(self.first) else ""
        return f"{self.count:,} ({shown}{more})" if self.count else "0"


@dataclass(frozen=True, slots=True)
class DataSummary:
    """The state of labelled data; `str` is what is printed before training."""

    examples: int
    dev_examples: int
    labels: Counts
    tags: Counts  # of words
    numbers: tuple[float, float, float] | None  # smallest, median, largest
    pieces: Pieces
    limit: int
    repeats: Repeats  # within train
    shared: Repeats  # of dev in train
    warnings: tuple[str, ...]
    read: str = ""  # the task, and what was read of the file

    def __str__(self) -> str:
        pieces = self.pieces
        lines = [
            *([f"read       {self.read}"] if self.read else []),
            f"examples   {self.examples:,} to train on, {self.dev_examples:,} for dev",
            *([f"labels     {self._balance(self.labels)}"] if self.labels or not self.tags else []),
            *([f"tags       {self._balance(self.tags)}"] if self.tags else []),
            f"tokens     median {pieces.median}, 95% up to {pieces.most}, longest {pieces.longest}; "
            f"{pieces.above:.1%} above the limit of {self.limit}",
            f"pieces     {pieces.per_word:.2f} per word, {pieces.unknown:.1%} unknown",
            f"repeats    within train: {self.repeats}",
            f"           of dev in train: {self.shared}",
        ]
        return "\n".join(lines + [f"warning    {warning}" for warning in self.warnings])

    def _balance(self, counts: Counts) -> str:
        if self.numbers is not None:
            smallest, median, largest = self.numbers
            return f"numbers from {smallest:g} to {largest:g}, median {median:g}"
        total = sum(count for _, count in counts)
        return shorten_list((f"{name} {count / total:.1%} ({count:,})" for name, count in counts), 12) or "none"


def summarize(
    train: Sequence[AnyExample], dev: Sequence[AnyExample], tokenizer: Tokenizer, limit: int, read: str = ""
) -> DataSummary:
    """Look through the examples; `limit` is the longest sequence of the model, `dev` may be empty."""
    if not train:
        raise DataError("there are no examples to train on")
    labels = Counter(name for example in train for name in labels_of(example))
    tags = Counter(name for example in train for name in tags_of(example))
    numbers = sorted(numbers_of(train))
    pieces = _pieces(train, tokenizer, limit)
    seen: dict[bytes, str] = {}
    repeats = _repeats(train, seen, adding=True)
    return DataSummary(
        examples=len(train),
        dev_examples=len(dev),
        labels=tuple(labels.most_common()),
        tags=tuple(tags.most_common()),
        numbers=(numbers[0], numbers[len(numbers) // 2], numbers[-1]) if numbers else None,
        pieces=pieces,
        limit=limit,
        repeats=repeats,
        shared=_repeats(dev, seen, adding=False),
        warnings=(*_label_warnings(labels + tags, dev), *_text_warnings(train, pieces)),
        read=read,
    )


def labels_of(example: AnyExample) -> tuple[str, ...]:
    """What is counted of a whole example: its class or labels, the place of its answer, or whether it has one."""
    if isinstance(example, Choice):
        return () if example.answer is None else (f"option {example.answer}",)
    if isinstance(example, Question):
        return ("with answer",) if example.answers else ("without answer",)
    if isinstance(example, Sentence):  # its tags are learned, not what it says as a whole
        return ()
    label = example.label
    return (label,) if isinstance(label, str) else label if isinstance(label, tuple) else ()


def tags_of(example: AnyExample) -> tuple[str, ...]:
    """The tags of a sentence's words."""
    return (example.tags or ()) if isinstance(example, Sentence) else ()


def _sequences(example: AnyExample) -> Iterator[Text]:
    """The texts and pairs that the model reads of an example."""
    first, *others = example.content
    if others:
        yield from ((first, other) for other in others)
    else:
        yield first


def _pieces(train: Iterable[AnyExample], tokenizer: Tokenizer, limit: int) -> Pieces:
    lengths: list[int] = []
    words = unknown = 0
    own = 0  # pieces without special tokens
    for texts in chunks((text for example in train for text in _sequences(example)), AT_ONCE):
        for text, encoding in zip(texts, tokenizer.encode_many(texts), strict=True):
            parts = text if isinstance(text, tuple) else (text,)
            words += sum(len(WORD.findall(part)) for part in parts)
            lengths.append(len(encoding))
            own += len(encoding) - tokenizer.special_tokens_count(len(parts) == 2)
            unknown += encoding.ids.count(tokenizer.unk_id) if tokenizer.unk_id is not None else 0
    lengths.sort()
    count = len(lengths)
    return Pieces(
        median=lengths[count // 2],
        most=lengths[(95 * count - 1) // 100],
        longest=lengths[-1],
        above=sum(length > limit for length in lengths) / count,
        per_word=own / max(words, 1),
        unknown=unknown / max(own, 1),
        words=words,
    )


def _repeats(examples: Iterable[AnyExample], seen: dict[bytes, str], adding: bool) -> Repeats:
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
    return Repeats(count, tuple(first))


def _label_warnings(counts: Counter[str], dev: Iterable[AnyExample]) -> Iterator[str]:
    absent = sorted({name for example in dev for name in labels_of(example) + tags_of(example)} - counts.keys())
    if absent:
        yield f"in dev but not in train, so they can never be predicted: {shorten_list(absent, 12)}"
    if len(counts) > MANY_CLASSES and 2 * len(counts) > counts.total() and all(map(_is_number, counts)):
        yield "most labels are different numbers, each a class of its own: for numbers to learn, the task is regress"
        return
    rare = [f"{name} ({count})" for name, count in reversed(counts.most_common()) if count < FEW_EXAMPLES]
    if rare:
        yield f"fewer than {FEW_EXAMPLES} examples in train: {shorten_list(rare, 12)}"


def _is_number(label: str) -> bool:
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False


def _text_warnings(train: Iterable[AnyExample], pieces: Pieces) -> Iterator[str]:
    empty = [example.location for example in train if not all(text.strip() for text in example.content)]
    if empty:
        yield f"an empty text in {len(empty):,} examples: {shorten_list(empty, SHOWN)}"
    advice = "the model may not know their language, spelling or case; choose one that does"
    if pieces.words >= MIN_WORDS and pieces.unknown > MAX_UNKNOWN_RATE:
        yield f"{pieces.unknown:.0%} of the pieces are unknown to the vocabulary: {advice}"
    elif pieces.words >= MIN_WORDS and pieces.per_word > MAX_SUBWORDS_PER_WORD:
        yield f"the words fall into {pieces.per_word:.2f} pieces each, where 1.0 to 1.3 is usual: {advice}"
