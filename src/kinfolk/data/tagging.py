"""Tagged sentences: CoNLL files, slot folders, and the schemes in which tags mark spans.

A CoNLL file has one word per line with its columns; a slot folder has the files seq.in, seq.out and label. Span tags
are returned in IOB2 whatever scheme the file has. A sentence with an error is one bad row, named by the line of the
error, and is skipped as a whole: without one of its words it would be another sentence.

IOB2   B starts every span                                  B-PER I-PER O B-LOC
IOB1   B only where a span follows another of its type      I-PER I-PER O I-LOC
IOBES  E ends a span, S is one of a single word             B-PER E-PER O S-LOC
BILOU  the same with L and U                                B-PER L-PER O U-LOC
plain  tags that mark no spans, such as parts of speech

In each scheme a tag is valid or not after the one before it, so a file is checked by its pairs of neighbours.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from kinfolk.data.examples import ReadResult, Sentence, read_result
from kinfolk.data.formats import is_utf8, raw_lines
from kinfolk.errors import DataError, InputError, RowErrors, check_choice

SCHEMES = ("IOB2", "IOB1", "IOBES", "BILOU")
PLAIN = "plain"
OUTSIDE = "O"
UNTYPED = "_"  # the type of a bare B or I
MARKED = re.compile(r"([BIESLU])-(.+)|([BI])")
IOBES_PREFIXES = {"L": "E", "U": "S"}  # of BILOU's
Entity = tuple[int, int, str]  # first word, word after the last, type

SLOT_FILE = "seq.in"
DOCUMENT = "-DOCSTART-"
BLANKS = re.compile("[ \t]+")
Row = tuple[int, list[str]]  # the number of a line and its columns


@lru_cache(maxsize=4096)
def split_tag(tag: str) -> tuple[str, str]:
    """(prefix, type) of a tag: ("B", "PER"); ("O", "") outside, ("", tag) for a tag that marks no span."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    match = MARKED.fullmatch(tag)
    if match is None:
        return "", tag
    return (match[1], match[2]) if match[1] else (match[3], UNTYPED)


def detect_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """The scheme that the tags violate least; `plain` when most tags mark no span."""
    pairs: Counter[tuple[str, str]] = Counter()
    for tags in sentences:
        pairs.update(pairwise([OUTSIDE, *tags, OUTSIDE]))
    unmarked = sum(count for (_, tag), count in pairs.items() if not split_tag(tag)[0])
    inside = sum(count for (_, tag), count in pairs.items() if tag != OUTSIDE)
    if unmarked > inside / 2:
        return PLAIN
    violations = {name: sum(count for pair, count in pairs.items() if not _is_valid(*pair, name)) for name in SCHEMES}
    return min(SCHEMES, key=violations.__getitem__)


def has_spans(labels: Iterable[str]) -> bool:
    """Do a model's tags mark spans?"""
    return detect_scheme((label,) for label in labels) != PLAIN


def scheme_errors(tags: Sequence[str], scheme: str) -> Iterator[tuple[int, str]]:
    """(index, reason) of each tag that is invalid in; a span without an end is reported at the last tag."""
    if check_choice("scheme", scheme, (*SCHEMES, PLAIN)) == PLAIN:
        return
    for index, (before, tag) in enumerate(pairwise([OUTSIDE, *tags, OUTSIDE])):
        if not _is_valid(before, tag, scheme):
            after = f"after {before}" if index else "at the start"
            reason = f"{tag} {after}" if index < len(tags) else f"{before} at the end"
            yield min(index, len(tags) - 1), f"the tag {reason} is invalid in {scheme}"


def to_iob2(tags: Sequence[str], scheme: str) -> tuple[str, ...]:
    """The same spans in IOB2; plain tags stay as they are."""
    for index, reason in scheme_errors(tags, scheme):
        raise InputError(f"word {index + 1}: {reason}")
    if scheme in (PLAIN, "IOB2"):
        return tuple(tags)
    begins = {"IOB1": "B", "IOBES": "BS", "BILOU": "BU"}[scheme]
    converted: list[str] = []
    for before, tag in pairwise([OUTSIDE, *tags]):
        prefix, kind = split_tag(tag)
        first = prefix in begins or (scheme == "IOB1" and split_tag(before)[1] != kind)
        tail = tag[1:]  # "-PER", or nothing after a bare prefix
        converted.append(tag if prefix == OUTSIDE else f"{'B' if first else 'I'}{tail}")
    return tuple(converted)


def entities(tags: Sequence[str]) -> list[Entity]:
    """(first word, word after the last, type) of each span, read as seqeval and conlleval read any tags.

    Tags need not follow a scheme: an I after O, or after another type, starts a span. L and U are read as E and S.
    """
    spans: list[Entity] = []
    start, kind, closed = -1, "", True
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, own_type = split_tag(tag)
        prefix = IOBES_PREFIXES.get(prefix, prefix)
        if not closed and (prefix not in ("I", "E") or own_type != kind):
            spans.append((start, index, kind))
            closed = True
        if prefix in ("B", "I", "E", "S") and closed:
            start, kind, closed = index, own_type, False
        if prefix in ("E", "S") and not closed:
            spans.append((start, index + 1, kind))
            closed = True
    return spans


def repair_iob2(tags: Sequence[str]) -> list[str]:
    """The same spans with a B wherever one begins, which a model's predictions may lack."""
    repaired: list[str] = []
    for before, tag in pairwise([OUTSIDE, *tags]):
        prefix, kind = split_tag(tag)
        begins = prefix == "I" and split_tag(before)[1] != kind
        repaired.append(f"B{tag[1:]}" if begins else tag)
    return repaired


@lru_cache(maxsize=65536)  # a file has few pairs of neighbours, and many words
def _is_valid(before: str, tag: str, scheme: str) -> bool:
    """May `tag` follow `before`?"""
    (last, last_kind), (prefix, kind) = split_tag(before), split_tag(tag)
    same = last in ("B", "I") and last_kind == kind
    if scheme == "IOB2":
        return prefix in (OUTSIDE, "B") or (prefix == "I" and same)
    if scheme == "IOB1":
        return prefix in (OUTSIDE, "I") or (prefix == "B" and same)
    end, single = ("E", "S") if scheme == "IOBES" else ("L", "U")
    if last in ("B", "I"):
        return prefix in ("I", end) and same
    return prefix in (OUTSIDE, "B", single)


@dataclass(frozen=True, slots=True)
class _RawSentence:
    """A sentence with the tags of its file, and the line of each word."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    label: str | None
    lines: tuple[int, ...]


def read_conll(
    path: str | Path, words: int = 0, tags: int | None = -1, max_bad_rows: int | None = 0
) -> ReadResult[Sentence]:
    """The sentences of a file; `words` and `tags` are column indices (-1 is the last), `tags=None` skips tags."""
    path = Path(path)
    errors = RowErrors(str(path), max_bad_rows)
    blocks = _blocks(path)
    sizes = Counter(len(fields) for block in blocks for _, fields in block)
    columns = max(sizes, key=sizes.__getitem__, default=1)
    if blocks:
        _check_columns(path, columns, words, tags)
    picked = [words] if tags is None else [words, tags]
    sentences: list[_RawSentence] = []
    for block in blocks:
        error = next(((line, why) for line, fields in block if (why := _row_error(fields, columns, picked))), None)
        if error:
            errors.add(*error)
            continue
        lines = tuple(line for line, _ in block)
        sentence_tags = () if tags is None else tuple(fields[tags] for _, fields in block)
        sentences.append(_RawSentence(tuple(fields[words] for _, fields in block), sentence_tags, None, lines))
    examples, scheme = _to_examples(sentences, errors, tags is not None)
    description = (
        ""
        if tags is None
        else f"words in column {words % columns}, tags in column {tags % columns}{_converted(scheme)}"
    )
    return read_result(examples, errors, tags is not None, description)


def read_slots(folder: str | Path, max_bad_rows: int | None = 0) -> ReadResult[Sentence]:
    """The sentences of a folder whose files seq.in, seq.out and label belong together line by line."""
    folder = Path(folder)
    names = (SLOT_FILE, "seq.out", "label")
    files = [_lines(folder / name) for name in names]
    if len(set(map(len, files))) > 1:
        counts = ", ".join(f"{name} {len(lines)}" for name, lines in zip(names, files, strict=True))
        raise DataError(f"{folder}: the files have different numbers of lines ({counts}), so lines cannot be matched")
    errors = RowErrors(str(folder / names[0]), max_bad_rows)
    sentences: list[_RawSentence] = []
    for number, (text, tagging, label) in enumerate(zip(*files, strict=True), start=1):
        words, tags = split_words(text), split_words(tagging)
        if not all(map(is_utf8, (text, tagging, label))):
            errors.add(number, "not UTF-8 text here, or in the same line of seq.out or label")
        elif len(words) != len(tags) or not words:
            errors.add(number, f"{len(words)} words here, {len(tags)} tags in seq.out")
        elif not label.strip():
            errors.add(number, "no label in the same line of the file label")
        else:
            sentences.append(_RawSentence(words, tags, label.strip(), (number,) * len(words)))
    examples, scheme = _to_examples(sentences, errors, tagged=True)
    return read_result(examples, errors, description=f"words of seq.in, tags of seq.out{_converted(scheme)}")


def _converted(scheme: str) -> str:
    return f"; spans in {scheme}, converted to IOB2" if scheme not in (PLAIN, "IOB2") else ""


def split_words(line: str) -> tuple[str, ...]:
    """Split at spaces and tabs only: a no-break space is part of a word."""
    return tuple(word for word in BLANKS.split(line) if word)


def _lines(path: Path) -> list[str]:
    lines = [line for _, line in raw_lines(path)]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _blocks(path: Path) -> list[list[Row]]:
    """The lines of each sentence, in columns."""
    blocks: list[list[Row]] = [[]]
    for line_number, line in raw_lines(path):
        fields = split_columns(line)
        if fields:
            blocks[-1].append((line_number, fields))
        elif blocks[-1]:
            blocks.append([])
    return blocks if blocks[-1] else blocks[:-1]


def split_columns(line: str) -> list[str]:
    """The columns of a word's line; none where a sentence or document ends."""
    line = line.rstrip(" \t")
    if not line or line.startswith(DOCUMENT):
        return []
    return [field.strip(" ") for field in line.split("\t")] if "\t" in line else BLANKS.split(line)


def _check_columns(path: Path, columns: int, words: int, tags: int | None) -> None:
    for name, column in (("words", words), ("tags", tags)):
        if column is not None and not -columns <= column < columns:
            raise DataError(f"{path}: there are {columns} columns, so {name}={column} is none of them")
    if tags is not None and words % columns == tags % columns:
        raise DataError(f"{path}: words={words} and tags={tags} are the same of {columns} columns; tags=None for none")


def _row_error(fields: list[str], columns: int, picked: Sequence[int]) -> str | None:
    if len(fields) != columns:
        return f"{len(fields)} columns, most lines have {columns}"
    if not all(map(is_utf8, fields)):
        return "not UTF-8 text"
    return None if all(fields[column] for column in picked) else "a word or tag is empty"


def _to_examples(sentences: list[_RawSentence], errors: RowErrors, tagged: bool) -> tuple[list[Sentence], str]:
    """Sentences with tags checked by the file's scheme and converted to IOB2; and that scheme."""
    scheme = detect_scheme(sentence.tags for sentence in sentences)
    examples: list[Sentence] = []
    for sentence in sentences:
        error = next(scheme_errors(sentence.tags, scheme), None) if tagged else None
        if error:
            errors.add(sentence.lines[error[0]], error[1])
            continue
        tags = to_iob2(sentence.tags, scheme) if tagged else None
        location = f"{errors.location}:{sentence.lines[0]}"
        examples.append(Sentence(sentence.words, tags, sentence.label, location))
    return examples, scheme
