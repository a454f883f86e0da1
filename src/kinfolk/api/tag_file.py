"""Tags for a file, a chunk at a time; the output takes its place when it is whole.

A CoNLL file (a word per line, blank lines between sentences) gives the same lines with the tag as one more column, a
file seq.in (a sentence per line, blanks between words) or its folder the lines of a seq.out.
Plain lines and the text column of a table give .jsonl: each row with its entities or, from a model whose tags mark no
spans, with its words and their tags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from kinfolk.api.classify import CHUNK_TEXTS
from kinfolk.api.loaded import Encoder
from kinfolk.api.predict_file import read_inputs
from kinfolk.api.tables import write_judged
from kinfolk.api.tag import tag, tag_task
from kinfolk.data.batching import chunks
from kinfolk.data.formats import PARQUET, STDIN, Row, display_name, is_table, is_utf8, raw_lines
from kinfolk.data.tagging import OUTSIDE, SLOT_FILE, has_spans, split_columns, split_tag, split_words
from kinfolk.errors import InputError, RowErrors
from kinfolk.files import atomic_write, check_not_same_file, is_folder
from kinfolk.machine import trim_memory
from kinfolk.tasks.tagged import Entity, Tagged

LOOKED_AT = 200  # lines of a .txt file that tell whether it is CoNLL


def tag_file(
    encoder: Encoder,
    source: str | Path,
    output: str | Path,
    text: str | None = None,
    words: int | None = None,
    header: Sequence[str] | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> int:
    """Tag every text or sentence of `source`; how many there were.

    Standard input and names that end in .txt, .csv, .tsv, .jsonl or .parquet are read as texts (`text` names the
    column, `header` all of them), others as CoNLL, and so is a .txt file whose lines end in the model's tags. `words`
    is the column of a CoNLL file's words, 0 the first, and says that the file is one.
    """
    suffix = Path(output).suffix.lower()
    if is_folder(Path(source)):
        source = Path(source) / SLOT_FILE
    labels = tag_task(encoder).labels  # a model without tags is refused before the file is looked through
    if words is None and _has_texts(source, labels):
        if suffix != ".jsonl":
            advice = "" if str(source) == STDIN else "; if the input has a word a line, name its column (--text 0)"
            raise InputError(f"{output}: the entities of texts are written to a file that ends in .jsonl{advice}")
        added = _entities if has_spans(labels) else _words
        inputs = read_inputs(source, text, "", header)
        return write_judged(inputs, output, lambda texts: map(added, tag(encoder, texts)), CHUNK_TEXTS, report)
    if text is not None or header is not None:
        raise InputError(
            "text and header name columns of a table; the column of a CoNLL file's words is given as words="
        )
    if suffix in (".csv", ".jsonl", PARQUET):
        raise InputError(f"{output}: a CoNLL file keeps its form; give the output another ending than {suffix}")
    if Path(source).name == SLOT_FILE:
        return _tag_slots(encoder, Path(source), Path(output), report)
    return _tag_conll(encoder, source, Path(output), words or 0, report)


def _tag_slots(encoder: Encoder, source: Path, output: Path, report: Callable[[int], None]) -> int:
    """Tags with blanks between, a line for each line of `source`; an empty line stays one."""
    check_not_same_file(source, output)  # which a folder may hide
    problems, count = RowErrors(str(source)), 0
    for number, line in raw_lines(source):  # faults are told before anything is computed
        if not is_utf8(line):
            problems.add(number, "not UTF-8 text")
    problems.raise_if_any()
    with atomic_write(output) as stream:
        for some in chunks((split_words(line) for _, line in raw_lines(source)), CHUNK_TEXTS):
            for found in tag(encoder, some):
                stream.write(f"{' '.join(word.tag for word in found.words)}\n".encode("utf-8", "replace"))
            count += len(some)
            report(len(some))
            trim_memory()
    return count


def _has_texts(source: str | Path, labels: Sequence[str]) -> bool:
    if str(source) == STDIN:
        return True
    suffix = Path(source).suffix.lower()
    return is_table(source) or (suffix == ".txt" and not _looks_tagged(source, labels))


def _looks_tagged(path: str | Path, labels: Sequence[str]) -> bool:
    """Have the first lines as many columns each, the last of them a tag whose type the model knows, in most of them?

    The type: files mark spans in several ways, a model in one.
    """
    lines = (split_columns(line) for _, line in islice(raw_lines(path), LOOKED_AT))
    rows = [row for row in lines if row]
    types = {split_tag(label)[1] for label in labels}
    known = sum(split_tag(row[-1])[1] in types for row in rows)
    return len({len(row) for row in rows}) == 1 and len(rows[0]) > 1 and 2 * known > len(rows)


def _entities(found: Tagged) -> Row:
    return {"entities": [_told(entity) for entity in found.entities]}


def _told(entity: Entity) -> Row:
    share = round(entity.probability, 6)
    return {"type": entity.type, "text": entity.text, "start": entity.start, "end": entity.end, "probability": share}


def _words(found: Tagged) -> Row:
    return {"words": [word.text for word in found.words], "tags": [word.tag for word in found.words]}


@dataclass
class _Block:
    """Lines of a sentence and their words, or a line between sentences, which has none."""

    lines: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def _tag_conll(encoder: Encoder, source: str | Path, output: Path, column: int, report: Callable[[int], None]) -> int:
    if str(source) != STDIN:
        for _ in _blocks(source, column):  # faults are told before anything is computed
            pass
    count = 0
    with atomic_write(output) as stream:
        for blocks in chunks(_blocks(source, column), CHUNK_TEXTS):
            for block, found in zip(blocks, tag(encoder, [block.words for block in blocks]), strict=True):
                tags = [word.tag for word in found.words] or [OUTSIDE]  # the line between documents has columns too
                lines = [_with_column(line, tag) for line, tag in zip(block.lines, tags, strict=True)]
                stream.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
            done = sum(bool(block.words) for block in blocks)
            count += done
            report(done)
            trim_memory()
    return count


def _with_column(line: str, tag: str) -> str:
    line = line.rstrip(" \t")
    separator = "\t" if "\t" in line else " "
    return f"{line}{separator}{tag}" if line else line


def _blocks(source: str | Path, column: int) -> Iterator[_Block]:
    """The sentences of a CoNLL file and the lines between them, in order."""
    problems = RowErrors(display_name(source))
    block = _Block()
    width = 0
    for number, line in raw_lines(source):
        fields = split_columns(line)
        if not is_utf8(line):
            problems.add(number, "not UTF-8 text")
        elif fields and not -len(fields) <= column < len(fields):
            problems.add(number, f"{len(fields)} columns, so words={column} is none of them")
        elif fields and not fields[column]:
            problems.add(number, "a word is empty")
        elif fields and len(fields) != (width := width or len(fields)):
            problems.add(number, f"{len(fields)} columns, others have {width}; a file of sentences must end in .txt")
        elif problems.messages:
            continue  # nothing more is tagged, the rest is only looked through
        elif fields:
            block.lines.append(line)
            block.words.append(fields[column])
        else:
            yield from (block, _Block([line])) if block.words else (_Block([line]),)
            block = _Block()
    problems.raise_if_any()
    if block.words:
        yield block
