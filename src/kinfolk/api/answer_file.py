"""Answers for a file of questions.

A file in SQuAD's JSON gives {id: answer} as SQuAD's own scorer reads it, "" where there is no answer. A table with the
columns question and context gives the same rows with the columns answer, start, end and probability; so does SQuAD's
JSON where the output is a table. In a .jsonl file there may be several answers to each question, best first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from kinfolk.api.answer import CHUNK, answer_questions, asked
from kinfolk.api.loaded import Encoder
from kinfolk.api.tables import Inputs, Row, Rows, write_judged
from kinfolk.data.batching import chunks
from kinfolk.data.examples import Question
from kinfolk.data.formats import TABLE_SUFFIXES, is_table
from kinfolk.data.squad import read_squad
from kinfolk.errors import InputError, RowErrors
from kinfolk.files import atomic_write
from kinfolk.machine import trim_memory
from kinfolk.tasks.spans import Answer


def answer_file(
    encoder: Encoder,
    source: str | Path,
    output: str | Path,
    report: Callable[[int], None] = lambda done: None,
    top: int = 1,
) -> int:
    """Answer every question of `source`; how many there were. With `top` above 1, so many answers to each."""
    if top > 1 and Path(output).suffix.lower() != ".jsonl":
        raise InputError(f"{output}: several answers to a question are written to a file that ends in .jsonl")
    squad = Path(source).suffix.lower() == ".json"
    if squad and Path(output).suffix.lower() == ".json":
        return _answer_squad(encoder, Path(source), Path(output), report)
    if not squad and not is_table(source):
        known = ", ".join(TABLE_SUFFIXES)
        raise InputError(f"{source}: questions are read from .json files (SQuAD's) and tables ({known})")
    inputs: Rows[Question] = _Squad(source) if squad else Inputs(source, asked, "question", "context")

    def judge(batch: Sequence[Question]) -> Iterable[Row]:
        return (_added(answers, top) for answers in answer_questions(encoder, batch, top))

    return write_judged(inputs, output, judge, CHUNK, report, types={"start": int, "end": int})


class _Squad(Rows[Question]):
    """The questions of a SQuAD file; a row is the question with its id."""

    def read(self, problems: RowErrors) -> Iterator[tuple[int, Row, Question]]:
        for number, question in enumerate(read_squad(Path(self.source)).examples, 1):
            yield number, {"id": question.id, "question": question.question}, question


def _added(answers: Sequence[Answer], top: int) -> Row:
    told: list[Row] = [
        {"answer": found.text, "start": found.start, "end": found.end, "probability": round(found.probability, 6)}
        for found in answers
    ]
    return told[0] | ({"answers": told} if top > 1 else {})


def _answer_squad(encoder: Encoder, source: Path, output: Path, report: Callable[[int], None]) -> int:
    questions = read_squad(source).examples
    with atomic_write(output) as stream:
        between = "{"
        for batch in chunks(questions, CHUNK):
            for question, (best,) in zip(batch, answer_questions(encoder, batch), strict=True):
                stream.write(f"{between}\n  {json.dumps(question.id)}: {json.dumps(best.text)}".encode())
                between = ","
            report(len(batch))
            trim_memory()
        stream.write(b"\n}\n")
    return len(questions)
