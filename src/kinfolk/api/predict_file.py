"""Files in, files out: the predictions of a trained model for every row of a file, whatever its task.

texts      tables, or one text per line: the same rows with label and probability (labels and probabilities, or value)
tag        CoNLL (a word per line) gives the same lines with one more column, seq.in (a sentence per line) or its folder
           the lines of a seq.out; texts give .jsonl with their entities, or words and tags where tags mark no spans
answer     SQuAD's JSON gives {id: answer} as SQuAD's scorer reads it, "" for no answer; tables with the columns
           question and context, or SQuAD's JSON, give a table with answer, start, end and probability
choose     .jsonl with context and options gives the same rows with choice, option and probability

A table is read twice. The first pass finds bad rows, and rows that the output could not hold, before anything is
computed; the second computes and writes chunk by chunk, and the output appears when it is complete. Standard input can
be read only once, so there it ends at the first bad row.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, TypeVar

from kinfolk.checkpoints.folder import TextModel
from kinfolk.data import formats
from kinfolk.data.batching import chunks
from kinfolk.data.examples import Choice, Question
from kinfolk.data.formats import PARQUET, STDIN, TEXT_COLUMN, Row, display_name, is_table, raw_lines
from kinfolk.data.tables import TableColumns, choice_rows, find_columns, read_squad
from kinfolk.data.tagging import OUTSIDE, SLOT_FILE, ConllRow, conll_blocks, split_blanks, split_columns, split_tag
from kinfolk.data.writers import OnDone, TableFormat, table_format
from kinfolk.errors import DataError, InputError, RowErrors
from kinfolk.files import atomic_write, check_not_same_file
from kinfolk.machine import trim_memory
from kinfolk.tasks.answer import AnswerTask, answer
from kinfolk.tasks.choice import choose
from kinfolk.tasks.tag import tag
from kinfolk.tasks.task import CHUNK_TEXTS, Columns, refuse, saved_task
from kinfolk.tasks.text import classify
from kinfolk.text.tokenizer import Text
from kinfolk.text.windows import CutCount

CHECKED_ROWS = 4096  # at once, in the first pass
NO_COLUMNS = ("text", "pair", "header")
SNIFFED_LINES = 200  # of a .txt file, which tell whether it is CoNLL
NO_TYPES: Mapping[str, type] = {}
Input = TypeVar("Input")
Reader = Callable[[RowErrors], Iterator[tuple[int, Row, Input]]]  # of each good row: its line, the row, the input


@dataclass(frozen=True)
class WrittenRows:
    """How many rows were written, and how many bad ones left out."""

    rows: int
    bad: int = 0


def text_reader(
    source: str | Path, text: str | None = None, pair: str | None = None, header: Sequence[str] | None = None
) -> Reader[tuple[Text, str]]:
    """Reads the rows of a table, or the lines of a text file: the text or pair of each, and its location, file:line.

    Columns that are not named are guessed; `pair=""` says that there is none.
    """

    def read(errors: RowErrors) -> Iterator[tuple[int, Row, tuple[Text, str]]]:
        if not is_table(source):
            if text or pair or header:
                raise DataError(f"{errors.location}: plain lines have no columns, so none can be named")
            for line, content in formats.numbered_lines(source, errors):
                yield line, {TEXT_COLUMN: content}, (content, f"{errors.location}:{line}")
            return
        columns: TableColumns | None = None
        for line, row in formats.numbered_rows(Path(source), errors, header=header):
            columns = columns or find_columns(str(source), list(row), text, pair, None, needs_label=False)
            with formats.note_bad(errors, line):
                first, second = columns.content(row)
                yield line, row, (first if second is None else (first, second), f"{source}:{line}")

    return read


def _fitting(
    read: Reader[Input], format: TableFormat, errors: RowErrors, at_once: bool = False
) -> Iterator[tuple[Row, Input]]:
    """The rows that the output can hold, until there are too many others; these are raised together, or `at_once`."""
    for line, row, content in read(errors):
        fault = format.row_error(row)
        if fault:
            errors.add(line, fault)
        elif errors.count <= (errors.allowed or 0):
            yield row, content
        elif at_once:
            break
    errors.raise_if_any()


def _check(source: str | Path, read: Reader[Input], format: TableFormat, max_bad_rows: int | None) -> set[str]:
    """The first pass: raise bad rows, the first twenty together; the columns of all rows."""
    if str(source) == STDIN:
        format.infer_types([{TEXT_COLUMN: ""}])
        return {TEXT_COLUMN}
    names: set[str] = set()
    typed = format.suffix == PARQUET == Path(source).suffix.lower()
    for rows in chunks((row for row, _ in _fitting(read, format, RowErrors(str(source), max_bad_rows))), CHECKED_ROWS):
        names.update(*rows)
        if not typed:
            format.infer_types(rows)
    if typed:
        format.copy_types(Path(source))
    return names


def write_table(
    source: str | Path,
    read: Reader[Input],
    output: str | Path,
    predict: Callable[[Sequence[Input]], Iterable[Row]],
    chunk: int,
    report: OnDone,
    max_bad_rows: int | None = None,
    types: Mapping[str, type] = NO_TYPES,
) -> WrittenRows:
    """Write every row with the columns that `predict` adds, `chunk` rows at a time.

    Up to `max_bad_rows` bad rows are left out (None: the option is not offered). `types` are those of new columns whose
    first value may be missing.
    """
    format, errors = table_format(output), RowErrors(display_name(source), max_bad_rows)
    present, names, done = _check(source, read, format, max_bad_rows), dict[str, str](), 0
    with atomic_write(Path(output)) as stream:
        format.start(stream)
        try:
            for rows in chunks(_fitting(read, format, errors, str(source) == STDIN), chunk):
                predicted = list(predict([content for _, content in rows]))
                if not names:
                    first = predicted[0]
                    names = _new_names(first, present)
                    format.infer_types([{names[name]: types.get(name, type(value))() for name, value in first.items()}])
                pairs = zip(rows, predicted, strict=True)
                format.write([row | {names[name]: added[name] for name in names} for (row, _), added in pairs])
                done += len(rows)
                report(len(rows))
                trim_memory()
        finally:
            format.finish()
        if not done:  # no row, so the columns are unknown
            raise DataError(f"{display_name(source)}: there are no rows")
    return WrittenRows(done, errors.count)


def _new_names(wanted: Iterable[str], taken: Collection[str]) -> dict[str, str]:
    """Names of new columns that overwrite no other: if one name is taken, all get a prefix.

    >>> _new_names(["label", "probability"], ["text", "label"])
    {'label': 'predicted_label', 'probability': 'predicted_probability'}
    """
    prefixes = chain(("", "predicted_"), (f"predicted_{index}_" for index in count(2)))
    free = next(prefix for prefix in prefixes if not any(prefix + name in taken for name in wanted))
    return {name: free + name for name in wanted}


def write_stream(output: str | Path, parts: Iterable[tuple[str, int]], report: OnDone) -> WrittenRows:
    """Write parts of a text file as they are computed, each with the number of its texts."""
    done = 0
    with atomic_write(Path(output)) as stream:
        for content, texts in parts:
            stream.write(content.encode("utf-8", "replace"))
            done += texts
            report(texts)
            trim_memory()
    return WrittenRows(done)


def predict_file(
    encoder: TextModel,
    source: str | Path,
    output: str | Path,
    columns: Columns | None = None,
    max_bad_rows: int = 0,
    report: OnDone = lambda done: None,
    top: int = 1,
) -> WrittenRows:
    """Write the model's prediction for every row of `source`; which files it reads depends on its task.

    `columns` names columns of a table, or as text="0" the words' column of a CoNLL file; `top` is the number of answers
    to each question.
    """
    check_not_same_file(source, output)
    task: Any = saved_task(encoder)  # a model without one is refused before the file is read
    columns = columns or Columns()
    if top > 1 and task.kind != "answer":
        raise InputError(f"top is the number of answers to a question; this model has the task {task.kind}")
    if max_bad_rows and task.kind in ("tag", "answer", "choose"):
        raise InputError(f"max_bad_rows is for tables of texts; the task {task.kind} predicts every row or none")
    refuse(columns, task.kind, *{"tag": ["pair"], "answer": NO_COLUMNS, "choose": NO_COLUMNS}.get(task.kind, ()))
    if task.kind == "tag":
        return _tag_file(encoder, task, source, output, columns, report)
    if task.kind == "answer":
        return _answer_file(encoder, task, source, output, report, top)
    if task.kind == "choose":
        choices: Reader[Choice] = partial(choice_rows, Path(source), needs_label=False)
        return write_table(
            source, choices, output, lambda batch: map(task.columns, choose(encoder, batch)), task.chunk, report
        )
    cut = CutCount()

    def predict(batch: Sequence[tuple[Text, str]]) -> Iterable[Row]:
        predictions = classify(encoder, [text for text, _ in batch], lambda index: batch[index][1], cut)
        return map(task.columns, predictions)

    reader = text_reader(source, columns.text, columns.pair, columns.header)
    written = write_table(source, reader, output, predict, CHUNK_TEXTS, report, max_bad_rows)
    cut.report()
    return written


def _answer_file(
    encoder: TextModel, task: Any, source: str | Path, output: str | Path, report: OnDone, top: int
) -> WrittenRows:
    suffix, squad = Path(output).suffix.lower(), Path(source).suffix.lower() == ".json"
    if top > 1 and suffix != ".jsonl":
        raise InputError(f"{output}: several answers to a question are written to a file that ends in .jsonl")
    if squad and suffix == ".json":
        return write_stream(output, _squad_answers(encoder, read_squad(Path(source)).examples), report)
    if not squad and not is_table(source):
        known = ", ".join(formats.TABLE_SUFFIXES)
        raise InputError(f"{source}: questions are read from .json files (SQuAD's) and tables ({known})")

    def read(errors: RowErrors) -> Iterator[tuple[int, Row, Question]]:
        if squad:
            for index, question in enumerate(read_squad(Path(source)).examples, 1):
                yield index, {"id": question.id, "question": question.question}, question
        else:
            for line, row, (pair, location) in text_reader(source, "question", "context")(errors):
                yield line, row, Question("", pair[0], pair[1], (), location)

    def predict(batch: Sequence[Question]) -> Iterable[Row]:
        return (task.columns(answers, top > 1) for answers in answer(encoder, batch, top))

    return write_table(source, read, output, predict, task.chunk, report, types={"start": int, "end": int})


def _squad_answers(encoder: TextModel, questions: Sequence[Question]) -> Iterator[tuple[str, int]]:
    separator = "{"
    for batch in chunks(questions, AnswerTask.chunk):
        lines = []
        for question, (best,) in zip(batch, answer(encoder, batch), strict=True):
            lines.append(f"{separator}\n  {json.dumps(question.id)}: {json.dumps(best.text)}")
            separator = ","
        yield "".join(lines), len(batch)
    yield "\n}\n", 0


def _tag_file(
    encoder: TextModel, task: Any, source: str | Path, output: str | Path, columns: Columns, report: OnDone
) -> WrittenRows:
    """Standard input and the names .txt, .csv, .tsv, .jsonl and .parquet have texts, others are CoNLL.

    So is a .txt file whose lines end in the model's tags, and any file whose words' column is given.
    """
    if os.path.isdir(source):
        source = Path(source) / SLOT_FILE
    suffix, text = Path(output).suffix.lower(), columns.text
    words = int(text) if text is not None and text.removeprefix("-").isdecimal() else None
    if words is None and _has_texts(source, task.labels):
        if suffix != ".jsonl":
            advice = "" if str(source) == STDIN else "; if the input has a word a line, name its column (--text 0)"
            raise InputError(f"{output}: the entities of texts are written to a file that ends in .jsonl{advice}")

        def predict(batch: Sequence[tuple[Text, str]]) -> Iterable[Row]:
            return map(task.columns, tag(encoder, [str(text) for text, _ in batch]))

        return write_table(source, text_reader(source, text, "", columns.header), output, predict, CHUNK_TEXTS, report)
    if columns.header is not None or (text is not None and words is None):
        raise InputError("text and header name columns of a table; the words' column of a CoNLL file is a number")
    if suffix in (".csv", ".jsonl", PARQUET):
        raise InputError(f"{output}: a CoNLL file keeps its form; give the output another ending than {suffix}")
    if Path(source).name == SLOT_FILE:
        check_not_same_file(source, output)  # which a folder may hide
        return write_stream(output, _slot_tags(encoder, Path(source)), report)
    return write_stream(output, _conll_tags(encoder, source, words or 0), report)


def _has_texts(source: str | Path, labels: Sequence[str]) -> bool:
    """Is it no CoNLL file? A .txt file is one whose first lines have equally many columns, the last of them mostly a
    tag whose type the model knows: files mark spans in several schemes, a model in one."""
    if str(source) == STDIN or is_table(source):
        return True
    if Path(source).suffix.lower() != ".txt":
        return False
    lines = (split_columns(line) for _, line in islice(raw_lines(source), SNIFFED_LINES))
    rows = [row for row in lines if row]
    types = {split_tag(label)[1] for label in labels}
    known = sum(split_tag(row[-1])[1] in types for row in rows)
    return len({len(row) for row in rows}) != 1 or len(rows[0]) < 2 or 2 * known <= len(rows)


def _slot_tags(encoder: TextModel, source: Path) -> Iterator[tuple[str, int]]:
    """A line of tags for each line of words; an empty line stays one."""
    errors = RowErrors(str(source))
    for line in (line for line, text in raw_lines(source) if not formats.is_utf8(text)):
        errors.add(line, "not UTF-8 text")
    errors.raise_if_any()
    for batch in chunks((split_blanks(line) for _, line in raw_lines(source)), CHUNK_TEXTS):
        lines = [f"{' '.join(word.tag for word in tagged.words)}\n" for tagged in tag(encoder, batch)]
        yield "".join(lines), len(batch)


def _conll_tags(encoder: TextModel, source: str | Path, column: int) -> Iterator[tuple[str, int]]:
    if str(source) != STDIN:
        deque(_checked_blocks(source, column), maxlen=0)  # raises bad lines before anything is computed
    for blocks in chunks(_checked_blocks(source, column), CHUNK_TEXTS):
        words = [[row.fields[column] for row in block if row.fields] for block in blocks]
        lines = []
        for block, tagged in zip(blocks, tag(encoder, words), strict=True):
            tags = [word.tag for word in tagged.words] or [OUTSIDE] * len(block)  # between documents there are columns
            for row, label in zip(block, tags, strict=True):
                text = row.text.rstrip(" \t")
                separator = "\t" if "\t" in text else " "
                lines.append(f"{text}{separator}{label}\n" if text else "\n")
        yield "".join(lines), sum(map(bool, words))


def _checked_blocks(source: str | Path, column: int) -> Iterator[list[ConllRow]]:
    """The blocks of a file up to its first bad line; all of its bad lines are raised together."""
    errors, width = RowErrors(display_name(source)), 0
    for block in conll_blocks(source):
        for line, text, fields in block:
            width = width or len(fields)
            if not formats.is_utf8(text):
                errors.add(line, "not UTF-8 text")
            elif fields and not -len(fields) <= column < len(fields):
                errors.add(line, f"{len(fields)} columns, so words={column} is none of them")
            elif fields and not fields[column]:
                errors.add(line, "a word is empty")
            elif fields and len(fields) != width:
                errors.add(line, f"{len(fields)} columns, others have {width}; a file of sentences must end in .txt")
        if not errors.messages:
            yield block
    errors.raise_if_any()
