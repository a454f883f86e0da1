"""Answers for a file of questions.

A file in SQuAD's JSON gives {id: answer} as SQuAD's own scorer reads it, "" where there is no answer. A table with the
columns question and context gives the same rows with the columns answer, start, end and probability.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kinfolk.data.batching import chunks
from kinfolk.data.examples import Question
from kinfolk.data.parquet import PARQUET
from kinfolk.data.readers import TABLES, is_table
from kinfolk.data.squad import read_squad
from kinfolk.errors import InputError
from kinfolk.files import replacing
from kinfolk.jobs.answer import CHUNK, answer_questions, asked
from kinfolk.jobs.loaded import Encoder
from kinfolk.jobs.spans import Answer
from kinfolk.jobs.tables import Inputs, Row, write_judged
from kinfolk.machine import give_back


def answer_file(
    encoder: Encoder, source: str | Path, output: str | Path, report: Callable[[int], None] = lambda done: None
) -> int:
    """Answer every question of `source`; how many there were."""
    if Path(source).suffix.lower() == ".json":
        return _answer_squad(encoder, Path(source), Path(output), report)
    if not is_table(source) and Path(source).suffix.lower() != PARQUET:
        known = ", ".join((*TABLES, PARQUET))
        raise InputError(f"{source}: questions are read from .json files (SQuAD's) and tables ({known})")
    inputs = Inputs(source, asked, "question", "context")

    def judge(batch: Sequence[Question]) -> Iterable[Row]:
        return map(_added, answer_questions(encoder, batch))

    return write_judged(inputs, output, judge, CHUNK, report, types={"start": int, "end": int})


def _added(answers: Sequence[Answer]) -> Row:
    best = answers[0]
    return {"answer": best.text, "start": best.start, "end": best.end, "probability": round(best.probability, 6)}


def _answer_squad(encoder: Encoder, source: Path, output: Path, report: Callable[[int], None]) -> int:
    if output.suffix.lower() != ".json":
        raise InputError(f"{output}: the answers to a SQuAD file are written to a file that ends in .json")
    questions = read_squad(source).examples
    with replacing(output) as stream:
        between = "{"
        for batch in chunks(questions, CHUNK):
            for question, (best,) in zip(batch, answer_questions(encoder, batch), strict=True):
                stream.write(f"{between}\n  {json.dumps(question.id)}: {json.dumps(best.text)}".encode())
                between = ","
            report(len(batch))
            give_back()
        stream.write(b"\n}\n")
    return len(questions)
