"""The predictions of a trained model for every row of a file, whatever its task.

texts      tables, or one text per line: the same rows with label and probability (labels and probabilities, or value)
tag        CoNLL (a word per line) gives the same lines with one more column, seq.in (a sentence per line) or its folder
           the lines of a seq.out; texts give .jsonl with their entities, or words and tags where tags mark no spans
answer     SQuAD's JSON gives {id: answer} as SQuAD's scorer reads it, "" for no answer; tables with the columns
           question and context, or SQuAD's JSON, give a table with answer, start, end and probability
choose     .jsonl with context and options gives the same rows with choice, option and probability

What a task adds to a row is said by the task (`columns`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinfolk.api.table_files import InputRows, Reader, Report, text_reader, write_stream, write_table
from kinfolk.data.batching import chunks
from kinfolk.data.choices import choice_rows
from kinfolk.data.examples import Choice, Question
from kinfolk.data.formats import PARQUET, STDIN, TABLE_SUFFIXES, Row, display_name, is_table, is_utf8, raw_lines
from kinfolk.data.squad import read_squad
from kinfolk.data.tagging import OUTSIDE, SLOT_FILE, split_columns, split_tag, split_words
from kinfolk.errors import InputError, RowErrors
from kinfolk.files import check_not_same_file, is_folder
from kinfolk.tasks.answer import CHUNK_QUESTIONS, answer
from kinfolk.tasks.choice import CHUNK_CHOICES, choose
from kinfolk.tasks.reading import Columns
from kinfolk.tasks.registry import saved_task
from kinfolk.tasks.tag import tag
from kinfolk.tasks.text import CHUNK_TEXTS, classify
from kinfolk.tasks.windows import CutCount
from kinfolk.text.tokenizer import Text

if TYPE_CHECKING:
    from kinfolk.api.loaded import Encoder

SNIFFED_LINES = 200  # of a .txt file, which tell whether it is CoNLL


@dataclass(frozen=True)
class PredictedFile:
    """How many rows were written, and how many bad ones left out."""

    rows: int
    bad: int = 0


def predict_file(
    encoder: Encoder,
    source: str | Path,
    output: str | Path,
    columns: Columns | None = None,
    max_bad_rows: int = 0,
    report: Report = lambda done: None,
    top: int = 1,
) -> PredictedFile:
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
    if task.kind == "tag":
        columns.refuse(task.kind, "pair")
        return PredictedFile(_tag_file(encoder, task, source, output, columns, report))
    if task.kind in ("answer", "choose"):
        columns.refuse(task.kind, "text", "pair", "header")
        work = _answer_file if task.kind == "answer" else _choose_file
        return PredictedFile(work(encoder, task, source, output, report, top))
    cut = CutCount()
    reader = text_reader(source, columns.text, columns.pair, columns.header)
    inputs = InputRows(source, reader, max_bad_rows)

    def predict(batch: Sequence[tuple[Text, str]]) -> Iterable[Row]:
        predictions = classify(encoder, [text for text, _ in batch], lambda index: batch[index][1], cut)
        return map(task.columns, predictions)

    rows = write_table(inputs, output, predict, CHUNK_TEXTS, report)
    cut.report()
    return PredictedFile(rows, inputs.bad)


def _choose_file(encoder: Encoder, task: Any, source: str | Path, output: str | Path, report: Report, top: int) -> int:
    def read(problems: RowErrors) -> Iterator[tuple[int, Row, Choice]]:
        return choice_rows(Path(source), problems, needs_label=False)

    def predict(batch: Sequence[Choice]) -> Iterable[Row]:
        return map(task.columns, choose(encoder, batch))

    return write_table(InputRows(source, read), output, predict, CHUNK_CHOICES, report)


def _answer_file(encoder: Encoder, task: Any, source: str | Path, output: str | Path, report: Report, top: int) -> int:
    suffix = Path(output).suffix.lower()
    if top > 1 and suffix != ".jsonl":
        raise InputError(f"{output}: several answers to a question are written to a file that ends in .jsonl")
    squad = Path(source).suffix.lower() == ".json"
    if squad and suffix == ".json":
        return write_stream(output, _squad_answers(encoder, read_squad(Path(source)).examples), report)
    if not squad and not is_table(source):
        known = ", ".join(TABLE_SUFFIXES)
        raise InputError(f"{source}: questions are read from .json files (SQuAD's) and tables ({known})")

    def predict(batch: Sequence[Question]) -> Iterable[Row]:
        return (task.columns(answers, top > 1) for answers in answer(encoder, batch, top))

    inputs = InputRows(source, _question_reader(source, squad))
    return write_table(inputs, output, predict, CHUNK_QUESTIONS, report, types={"start": int, "end": int})


def _question_reader(source: str | Path, squad: bool) -> Reader[Question]:
    def read_json(problems: RowErrors) -> Iterator[tuple[int, Row, Question]]:
        for index, question in enumerate(read_squad(Path(source)).examples, 1):
            yield index, {"id": question.id, "question": question.question}, question

    def read_table(problems: RowErrors) -> Iterator[tuple[int, Row, Question]]:
        for line, row, (pair, location) in text_reader(source, "question", "context")(problems):
            yield line, row, Question("", pair[0], pair[1], (), location)

    return read_json if squad else read_table


def _squad_answers(encoder: Encoder, questions: Sequence[Question]) -> Iterator[tuple[str, int]]:
    """The parts of a JSON object {id: answer}."""
    separator = "{"
    for batch in chunks(questions, CHUNK_QUESTIONS):
        lines = []
        for question, (best,) in zip(batch, answer(encoder, batch), strict=True):
            lines.append(f"{separator}\n  {json.dumps(question.id)}: {json.dumps(best.text)}")
            separator = ","
        yield "".join(lines), len(batch)
    yield "\n}\n", 0


def _tag_file(
    encoder: Encoder, task: Any, source: str | Path, output: str | Path, columns: Columns, report: Report
) -> int:
    """Standard input and the names .txt, .csv, .tsv, .jsonl and .parquet have texts, others are CoNLL.

    So is a .txt file whose lines end in the model's tags, and any file whose words' column is given.
    """
    if is_folder(Path(source)):
        source = Path(source) / SLOT_FILE
    suffix, text = Path(output).suffix.lower(), columns.text
    words = int(text) if text is not None and text.removeprefix("-").isdecimal() else None
    if words is None and _has_texts(source, task.labels):
        if suffix != ".jsonl":
            advice = "" if str(source) == STDIN else "; if the input has a word a line, name its column (--text 0)"
            raise InputError(f"{output}: the entities of texts are written to a file that ends in .jsonl{advice}")

        def predict(batch: Sequence[tuple[Text, str]]) -> Iterable[Row]:
            return map(task.columns, tag(encoder, [str(text) for text, _ in batch]))

        inputs = InputRows(source, text_reader(source, text, "", columns.header))
        return write_table(inputs, output, predict, CHUNK_TEXTS, report)
    if columns.header is not None or (text is not None and words is None):
        raise InputError("text and header name columns of a table; the words' column of a CoNLL file is a number")
    if suffix in (".csv", ".jsonl", PARQUET):
        raise InputError(f"{output}: a CoNLL file keeps its form; give the output another ending than {suffix}")
    if Path(source).name == SLOT_FILE:
        check_not_same_file(source, output)  # which a folder may hide
        return write_stream(output, _slot_tags(encoder, Path(source)), report)
    return write_stream(output, _conll_tags(encoder, source, words or 0), report)


def _has_texts(source: str | Path, labels: Sequence[str]) -> bool:
    if str(source) == STDIN or is_table(source):
        return True
    return Path(source).suffix.lower() == ".txt" and not _looks_tagged(source, labels)


def _looks_tagged(path: str | Path, labels: Sequence[str]) -> bool:
    """Have the first lines equally many columns, the last of them in most lines a tag whose type the model knows?

    The type: files mark spans in several schemes, a model in one.
    """
    lines = (split_columns(line) for _, line in islice(raw_lines(path), SNIFFED_LINES))
    rows = [row for row in lines if row]
    types = {split_tag(label)[1] for label in labels}
    known = sum(split_tag(row[-1])[1] in types for row in rows)
    return len({len(row) for row in rows}) == 1 and len(rows[0]) > 1 and 2 * known > len(rows)


def _slot_tags(encoder: Encoder, source: Path) -> Iterator[tuple[str, int]]:
    """A line of tags for each line of words; an empty line stays one."""
    problems = RowErrors(str(source))
    for number, line in raw_lines(source):
        if not is_utf8(line):
            problems.add(number, "not UTF-8 text")
    problems.raise_if_any()
    for batch in chunks((split_words(line) for _, line in raw_lines(source)), CHUNK_TEXTS):
        lines = [f"{' '.join(word.tag for word in tagged.words)}\n" for tagged in tag(encoder, batch)]
        yield "".join(lines), len(batch)


@dataclass
class _Block:
    """The lines of a sentence and their words, or a line between sentences, which has no words."""

    lines: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def _conll_tags(encoder: Encoder, source: str | Path, column: int) -> Iterator[tuple[str, int]]:
    if str(source) != STDIN:
        for _ in _blocks(source, column):  # raises bad lines before anything is computed
            pass
    for blocks in chunks(_blocks(source, column), CHUNK_TEXTS):
        lines = []
        for block, tagged in zip(blocks, tag(encoder, [block.words for block in blocks]), strict=True):
            tags = [word.tag for word in tagged.words] or [OUTSIDE]  # the line between documents has columns too
            lines += [_with_column(line, label) for line, label in zip(block.lines, tags, strict=True)]
        yield "".join(f"{line}\n" for line in lines), sum(bool(block.words) for block in blocks)


def _with_column(line: str, label: str) -> str:
    line = line.rstrip(" \t")
    separator = "\t" if "\t" in line else " "
    return f"{line}{separator}{label}" if line else line


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
            continue  # nothing more is tagged, the rest is only checked
        elif fields:
            block.lines.append(line)
            block.words.append(fields[column])
        else:
            yield from (block, _Block([line])) if block.words else (_Block([line]),)
            block = _Block()
    problems.raise_if_any()
    if block.words:
        yield block
