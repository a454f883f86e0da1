"""What the estimators share: models kept between fits, and training in a temporary folder."""

from __future__ import annotations

import dataclasses
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from kinfolk.api.experiment import Callbacks
from kinfolk.api.finetune import finetune
from kinfolk.api.loaded import Encoder, load_encoder
from kinfolk.checkpoints.text_model import pick_device
from kinfolk.data.examples import AnyExample
from kinfolk.data.split import stratified_split
from kinfolk.errors import DataError, InputError, StopSignalError, type_name
from kinfolk.files import reading
from kinfolk.sklearn.pickled import TextEstimator
from kinfolk.training.settings import TrainSettings, settings_fields
from kinfolk.training.trainer import Progress

CACHED_MODELS = 2


def loaded(model: str | Path, device: str = "auto", allow_pickle: bool = False) -> Encoder:
    """As `load_encoder`, but a model that is still in memory is used again, unless a file of its folder has changed.

    The last two models are kept; `forget_models()` lets them go.
    """
    if not isinstance(model, str | Path):
        raise InputError(f"model={str(model)[:60]!r} is {type_name(model)}; give a folder or a hub name")
    folder = Path(model).expanduser()
    with reading(folder):
        local = folder.is_dir()  # else it is "demo" or a hub name, whose files nobody edits
        name = str(folder.resolve()) if local else str(model)
        return _load_once(name, pick_device(device).type, bool(allow_pickle), _stamp(folder) if local else ())


@lru_cache(maxsize=CACHED_MODELS)
def _load_once(name: str, device: str, allow_pickle: bool, stamp: tuple[object, ...]) -> Encoder:
    return load_encoder(name, device, allow_pickle)


forget_models = _load_once.cache_clear


def _stamp(folder: Path) -> tuple[object, ...]:
    """Name, size and time of change of the files that a model may be read from."""
    files = sorted(path for path in (*folder.glob("*"), *folder.glob("*/config.json")) if path.is_file())
    return tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files)


@dataclass(eq=False, repr=False)
class TextLearner(TextEstimator):
    """Trains a copy of `model` on examples. The parameters:

    model                 a folder, a hub name, or "demo"; a process keeps the last two it loaded
    epochs, minutes       passes over the data, or instead of them the training time
    learning_rate         its peak; `schedule` is its course (linear, cosine, constant, …)
    batch_size            texts per step
    layer_decay           layer-wise learning-rate decay
    freeze                1 freezes the embeddings, n the first n - 1 layers as well
    gradual_unfreezing    share of the run over which layers unfreeze, from the top down
    window, stride        tokens per window, and those that neighbouring windows of a long text share
    validation_fraction   held out to select the best of four checkpoints; 0 trains on everything to the end
    random_state          an int: the same one gives the same model; None: another one each time
    device                "auto", "cpu" or "cuda"
    verbose               print a summary of the data, and each evaluation

    Texts longer than the model's context are read in windows. Nothing is written outside a temporary folder. A pickle
    carries the trained weights and works anywhere (see pickled.py). Attributes after `fit`: `encoder_`, a
    kinfolk.Encoder (`encoder_.save(folder)` writes what kinfolk and transformers load), `validation_metrics_`
    and `notes_`.
    """

    model: str | Path = "demo"
    epochs: float = 3.0
    minutes: float | None = None
    learning_rate: float = 5e-5
    batch_size: int = 32
    schedule: str = "linear"
    layer_decay: float = 1.0
    freeze: int = 0
    gradual_unfreezing: float = 0.0
    window: int | None = None
    stride: int | None = None
    validation_fraction: float = 0.1
    random_state: Any = 0
    device: str = "auto"
    verbose: bool | int = False

    def _train(
        self,
        task: str,
        examples: Sequence[AnyExample],
        class_weights: str | Mapping[str, float] | None = None,
        crf: bool = False,
    ) -> None:
        seed = self._seed()
        names = [setting.name for setting in settings_fields() if hasattr(self, setting.name)]
        values = ((name, getattr(self, name)) for name in names)  # searches give numpy's numbers
        settings = {name: value.item() if isinstance(value, np.generic) else value for name, value in values}
        callbacks = Callbacks(lambda summary, initialized: print(summary), _print_evaluation)
        train, dev = self._split(examples, seed)
        with tempfile.TemporaryDirectory(prefix="kinfolk-") as folder:
            try:
                result = finetune(
                    loaded(self.model, self.device),
                    train,
                    Path(folder) / "run",
                    dev=dev,
                    task=task,
                    class_weights=class_weights,
                    crf=crf,
                    window=self.window,
                    stride=self.stride,
                    settings=TrainSettings().but(seed=seed, **settings),
                    callbacks=callbacks if self.verbose else None,
                    report=False,
                )
            except StopSignalError as stop:
                signal.raise_signal(stop.signum)  # the folder is gone, so there is nothing to resume
                raise
            self.encoder_ = dataclasses.replace(load_encoder(result.folder, self.device), name=str(self.model))
        self.validation_metrics_ = dict(result.metrics)
        self.notes_ = list(result.notes)
        if self.verbose:
            print(*(f"note: {note}\n" for note in self.notes_), sep="", end="")

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        try:
            return int(check_random_state(self.random_state).randint(2**31))
        except ValueError as error:
            raise InputError(f"random_state: {error}") from None

    def _split(self, examples: Sequence[Any], seed: int) -> tuple[list[Any], list[Any]]:
        """(train, dev)"""
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _print_evaluation(seed: int, progress: Progress) -> None:
    if progress.metrics is not None:
        metrics = "".join(f", {name} {value:.4f}" for name, value in progress.metrics.items())
        print(f"step {progress.step:,} of {progress.total:,}, loss {progress.loss:.3f}{metrics}")
