"""Multiple choice: every option is read beside the context, and the one with the highest score is chosen.

A pair that is longer than the model is read in windows; its score is their mean, weighted by the tokens that belong to
each. Where both texts are long the shorter one is cut, as text/windows.py says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from torch import Tensor

from kinfolk.checkpoints.folder import TextModel
from kinfolk.data.examples import Choice
from kinfolk.errors import InputError
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.objectives.supervised import ChoiceBatch, MultipleChoice, Options
from kinfolk.tasks.task import Dataset, EvalResult, Mistake, Task, TaskOptions, most_confident, refuse, require_head
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.windows import DEFAULT_WINDOWS, CutCount, TokenCounts, Windows
from kinfolk.training.metrics import softmax


@dataclass(frozen=True)
class Chosen:
    """The option that fits best, its index and probability; and the probabilities of all options."""

    option: str
    index: int
    probability: float
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class ChoiceTask(Task):
    """One of several options, however many an example has."""

    windows: Windows = DEFAULT_WINDOWS

    kind = "choose"
    head = "choose"
    labels = ("score",)
    chunk = 512

    @classmethod
    def saved(cls, text_model: TextModel) -> Self:
        require_head(text_model, "choose", "multiple-choice head", "kinfolk finetune --task choose")
        return cls(Windows.from_hf(text_model.hf_config))

    @classmethod
    def of(cls, kind: str, examples: Sequence[Choice], options: TaskOptions) -> Self:
        refuse(options, kind, "class_weights", "crf")
        return cls(options.windows)

    def objective(self, model: Model) -> Objective:
        return MultipleChoice(model.config.segments)

    def dataset(
        self, tokenizer: Tokenizer, examples: Sequence[Choice], context: int, counts: TokenCounts | None = None
    ) -> Dataset:
        """A sample for each choice, with all its options; cuts are told by a CutWarning."""
        samples, cut = [], CutCount()
        for index, choice in enumerate(examples):
            pairs = [(choice.context, option) for option in choice.options]
            name = partial("{}: option {}".format, choice.location)
            windows = self.windows.split(tokenizer, pairs, context, name, cut, counts, pair=True)
            totals = np.bincount([part.text for part in windows], [part.weight for part in windows])
            options = Options(
                tuple(len(part.encoding) for part in windows),
                tuple(part.text for part in windows),
                tuple(part.weight / float(totals[part.text]) for part in windows),
                choice.answer or 0,
            )
            ids = [id for part in windows for id in part.encoding.ids]
            segments = [segment for part in windows for segment in part.encoding.segments]
            samples.append(Sample(ids, segments, options, index))
        cut.report()
        return Dataset(samples, examples)

    def split(self, dataset: Dataset, indices: list[int], batch: ChoiceBatch, scores: Tensor) -> Iterable[Tensor]:
        return batch.choices.split(scores)

    def chosen(self, model: Model, dataset: Dataset) -> list[Chosen]:
        """What the model takes of each choice."""
        rows = [softmax(row[None].astype(np.float64))[0] for row in self.sample_scores(model, dataset)]
        pairs = ((choice.options, row, int(row.argmax())) for choice, row in zip(dataset.examples, rows, strict=True))
        return [Chosen(options[best], best, float(row[best]), tuple(row.tolist())) for options, row, best in pairs]

    def evaluate(self, model: Model, dataset: Dataset) -> EvalResult:
        """The share of right choices."""
        wrong = [
            Mistake(choice.location, choice.context, choice.options[choice.answer], taken.option, taken.probability)
            for taken, choice in zip(self.chosen(model, dataset), dataset.examples, strict=True)
            if choice.answer is not None and taken.index != choice.answer
        ]
        return EvalResult({"accuracy": 1 - len(wrong) / len(dataset.examples)}, mistakes=most_confident(wrong))

    def columns(self, prediction: Chosen) -> dict[str, Any]:
        probability = round(prediction.probability, 6)
        return {"choice": prediction.index, "option": prediction.option, "probability": probability}


def choose(text_model: TextModel, choices: Iterable[Choice]) -> Iterator[Chosen]:
    """The most probable option of each choice; their answers are not looked at. Streamed: memory stays flat."""
    task = ChoiceTask.saved(text_model)
    for dataset in task.datasets(text_model, choices):
        yield from task.chosen(text_model.model, dataset)


def make_choice(pair: Any, index: int) -> Choice:
    """A context with two or more options, as a user gave it; `index` counts from 1."""
    if isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[1], tuple | list):
        context, options = pair[0], tuple(pair[1])
        if len(options) > 1 and all(isinstance(text, str) for text in (context, *options)):
            return Choice(context, options, None, f"choice {index}")
    raise InputError(f"choice {index}: expected a context and two or more options, found {str(pair)[:60]!r}")


TASK = ChoiceTask
