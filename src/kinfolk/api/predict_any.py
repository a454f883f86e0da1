"""What a trained model says of a file, whatever it was trained for: classes, numbers, tags, answers, choices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from kinfolk.api.answer_file import answer_file
from kinfolk.api.choose import CHUNK_CHOICES, choose_all
from kinfolk.api.loaded import Encoder
from kinfolk.api.predict_file import Predicted, predict_file
from kinfolk.api.tables import Row, Rows, write_judged
from kinfolk.api.tag_file import tag_file
from kinfolk.data.choices import choice_rows
from kinfolk.data.examples import Choice
from kinfolk.errors import InputError, RowErrors
from kinfolk.files import check_not_same_file
from kinfolk.tasks.reading import Columns
from kinfolk.tasks.registry import saved_task


def predict_any(
    encoder: Encoder,
    source: str | Path,
    output: str | Path,
    columns: Columns,
    max_bad_rows: int = 0,
    report: Callable[[int], None] = lambda done: None,
    top: int = 1,
) -> Predicted:
    """Write what the model says of every row of `source` beside it; what the rows are depends on its task.

    `top` is how many answers a question gets.
    """
    check_not_same_file(source, output)
    kind = saved_task(encoder).kind
    if top > 1 and kind != "answer":
        raise InputError(f"top is about answers to questions; this model is one of the task {kind}")
    if max_bad_rows and kind in ("tag", "answer", "choose"):
        raise InputError(f"max_bad_rows is for tables of texts; a model of the task {kind} judges every row or none")
    if kind == "tag":
        columns.refuse(kind, "pair")
        numbered = columns.text is not None and columns.text.isdecimal()  # a column of a CoNLL file
        text, words = (None, int(str(columns.text))) if numbered else (columns.text, None)
        return Predicted(tag_file(encoder, source, output, text, words, columns.header, report), 0)
    if kind == "answer":
        columns.refuse(kind, "text", "pair", "header")
        return Predicted(answer_file(encoder, source, output, report, top), 0)
    if kind == "choose":
        columns.refuse(kind, "text", "pair", "header")
        return Predicted(write_judged(_Choices(source), output, _chooser(encoder), CHUNK_CHOICES, report), 0)
    return predict_file(encoder, source, output, columns.text, columns.pair, columns.header, max_bad_rows, report)


class _Choices(Rows[Choice]):
    """The rows of a file, each with what is to be chosen from."""

    def read(self, problems: RowErrors) -> Iterator[tuple[int, Row, Choice]]:
        """Each good row with the number of its line."""
        return choice_rows(Path(self.source), problems, needs_label=False)


def _chooser(encoder: Encoder) -> Callable[[Sequence[Choice]], Iterable[Row]]:
    def judge(batch: Sequence[Choice]) -> Iterable[Row]:
        for found in choose_all(encoder, batch):
            yield {"choice": found.number, "option": found.option, "probability": round(found.probability, 6)}

    return judge
