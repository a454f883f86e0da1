"""What the trained estimators share: settings, a run in a temporary folder, the model that comes of it."""

from __future__ import annotations

import dataclasses
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import check_random_state

from kinfolk.api.experiment import Callbacks
from kinfolk.api.finetune import finetune
from kinfolk.api.loaded import Encoder, load_encoder
from kinfolk.data.examples import AnyExample
from kinfolk.data.split import stratified_split
from kinfolk.data.summary import DataSummary
from kinfolk.errors import DataError, InputError, StopSignalError
from kinfolk.sklearn.models import loaded
from kinfolk.sklearn.pickled import CarriesEncoder
from kinfolk.training.settings import OptimizerSettings, TrainSettings
from kinfolk.training.trainer import Progress

Number = TypeVar("Number", int, float)


class TextLearner(CarriesEncoder):
    """Trains a copy of `model` on examples. The parameters:

    model                 a folder, a hub name, or "demo"; a process keeps the last two it loaded
    epochs, minutes       passes over the data, or instead of them as long as that
    rate, schedule        peak learning rate and its course (linear, cosine, constant, …)
    batch_size            texts per step
    layer_decay           rate of a layer over that of the next one above it
    freeze                1 freezes the embeddings, 2 the first layer too, and so on
    gradual_unfreezing                  share of the run over which layers thaw from the top
    window, stride        tokens read at once, and those that neighbouring windows of a long text share
    validation_fraction   held out to choose the best of four states of the model; 0 trains on everything to the end
    random_state          a number: the same one gives the same model; None: another one each time
    device                "auto", "cpu" or "cuda"
    verbose               print what there is to know of the data, and each evaluation

    Texts longer than the model are read in windows. Nothing is written outside a temporary folder. A pickle carries
    the trained weights and works anywhere (see pickled.py). Attributes after `fit`: `encoder_`, a kinfolk.Encoder
    (`encoder_.save(folder)` writes what kinfolk and transformers load), `validation_metrics_` and `notes_`.
    """

    model: str | Path
    epochs: float
    minutes: float | None
    learning_rate: float
    batch_size: int
    schedule: str
    layer_decay: float
    freeze: int
    gradual_unfreezing: float
    window: int | None
    stride: int | None
    validation_fraction: float
    random_state: Any
    verbose: bool | int

    encoder_: Encoder
    validation_metrics_: dict[str, float]
    notes_: list[str]

    def _learn(
        self,
        task: str,
        examples: Sequence[AnyExample],
        class_weights: str | Mapping[str, float] | None = None,
        crf: bool = False,
    ) -> None:
        seed = self._seed()
        learned, held = self._divided(examples, seed)
        with tempfile.TemporaryDirectory(prefix="kinfolk-") as folder:
            try:
                found = finetune(
                    loaded(self.model, self.device),
                    learned,
                    Path(folder) / "run",
                    dev=held,
                    task=task,
                    class_weights=class_weights,
                    crf=crf,
                    window=self.window,
                    stride=self.stride,
                    settings=self._settings(seed),
                    callbacks=Callbacks(_tell_survey, _tell_evaluation) if self.verbose else None,
                    report=False,
                )
            except StopSignalError as stop:
                signal.raise_signal(stop.number)  # the folder is gone, so there is nothing to go on with
                raise
            self.encoder_ = dataclasses.replace(load_encoder(found.folder, self.device), name=str(self.model))
        self.validation_metrics_ = dict(found.metrics)
        self.notes_ = list(found.notes)
        if self.verbose:
            print(*(f"note: {note}" for note in self.notes_), sep="\n", end="\n" * bool(self.notes_))

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        try:
            return int(check_random_state(self.random_state).randint(2**31))
        except ValueError as error:
            raise InputError(f"random_state: {error}") from None

    def _divided(self, examples: Sequence[Any], seed: int) -> tuple[list[Any], list[Any]]:
        """(to learn from, to choose by)"""
        share = self.validation_fraction
        if not isinstance(share, int | float) or not 0 <= share < 1:
            raise InputError(f"validation_fraction={share!r} is not a share of the texts, from 0 up to 1")
        if share == 0:
            return list(examples), []
        try:
            return stratified_split(examples, share, seed)
        except DataError:
            few = f"{len(examples)} texts are too few to hold some of them out"
            raise InputError(f"{few}; give more, or use validation_fraction=0") from None

    def _settings(self, seed: int) -> TrainSettings:
        return TrainSettings(
            seed=seed,
            epochs=self._number("epochs", float),
            minutes=None if self.minutes is None else self._number("minutes", float),
            batch_size=self._number("batch_size", int),
            schedule=self.schedule,
            gradual_unfreezing=self._number("gradual_unfreezing", float),
            optimizer=OptimizerSettings(
                learning_rate=self._number("learning_rate", float),
                layer_decay=self._number("layer_decay", float),
                freeze=self._number("freeze", int),
            ),
        )

    def _number(self, name: str, kind: type[Number]) -> Number:
        """A parameter as Python's own number; searches give numpy's."""
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or kind(value) != value:
            raise InputError(f"{name}={value!r} is not a {'whole ' if kind is int else ''}number")
        return kind(value)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.target_tags.required = True
        return tags


def _tell_survey(survey: DataSummary, fresh: Sequence[str]) -> None:
    print(survey)


def _tell_evaluation(seed: int, progress: Progress) -> None:
    if progress.metrics is not None:
        figures = "".join(f", {name} {value:.4f}" for name, value in progress.metrics.items())
        print(f"step {progress.step:,} of {progress.total:,}, loss {progress.loss:.3f}{figures}")
