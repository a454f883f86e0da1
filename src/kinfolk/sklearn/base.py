"""What the estimators share: models kept between fits, pickles, and training in a temporary folder."""

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
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from kinfolk.api.finetune import finetune
from kinfolk.api.loaded import Encoder, load_encoder
from kinfolk.checkpoints.folder import SentenceRecipe, pick_device
from kinfolk.checkpoints.weights import divide, fill, sources, tensors_from_bytes, tensors_to_bytes
from kinfolk.data.examples import AnyExample, stratified_split
from kinfolk.errors import DataError, FolderError, InputError, StopSignalError
from kinfolk.files import reading
from kinfolk.models.family import Family, Model, Source
from kinfolk.models.family import family as family_of
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.training.runs import Callbacks, Progress
from kinfolk.training.settings import TrainSettings, settings_fields

CACHED_MODELS = 2


def loaded(model: str | Path, device: str = "auto", allow_pickle: bool = False) -> Encoder:
    """As `load_encoder`, but a model that is still in memory is used again, unless a file of its folder has changed.

    The last two models are kept; `forget_models()` lets them go.
    """
    folder = Path(model).expanduser()
    with reading(folder):
        local = folder.is_dir()  # else it is "demo" or a hub name, whose files nobody edits
        name = str(folder.resolve()) if local else str(model)
        paths = sorted({*folder.glob("*"), *folder.glob("*/config.json")}) if local else []
        # Size and time of change of the files that a model may be read from.
        stamp = tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths if path.is_file())
        return _load_once(name, pick_device(device).type, bool(allow_pickle), stamp)


@lru_cache(maxsize=CACHED_MODELS)
def _load_once(name: str, device: str, allow_pickle: bool, stamp: tuple[object, ...]) -> Encoder:
    return load_encoder(name, device, allow_pickle)


forget_models = _load_once.cache_clear


class TextEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose X holds texts, and whose fitted model is `encoder_`.

    A pickle of it holds the model as safetensors bytes beside settings and tokenizer, and nothing of torch: it works
    where the model folder is absent. One made with device="cuda" runs on the CPU where CUDA is not. `needs_heads` says
    whether it learned something, and so holds more than the body.
    """

    needs_heads = True
    device: str
    encoder_: Encoder

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "encoder_" in state:
            state["encoder_"] = _to_plain(state["encoder_"], self.needs_heads)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "encoder_" in state:
            device = state["device"] if torch.cuda.is_available() else "cpu"
            state = state | {"encoder_": _from_plain(state["encoder_"], device, f"pickled {type(self).__name__}")}
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.target_tags.required = self.needs_heads
        return tags


def _to_plain(encoder: Encoder, heads: bool) -> dict[str, Any]:
    """An encoder as strings, numbers and bytes, tensors under their public names; only the body without `heads`."""
    model, kept = encoder.model, encoder.model.state_dict()
    outputs = {name: kept.get(f"heads.{name}.output.weight", ()) for name in model.heads} if heads else {}
    labels = {name: len(weight) for name, weight in outputs.items()}
    pooler = heads and any(name.startswith("body.pooler.") for name in kept)
    empty, public_names = _empty(model.family, model.config, labels, pooler)
    return {
        "family": model.family.name,
        "config": model.config.to_hf(),
        "weights": tensors_to_bytes(divide({name: kept[name] for name in empty.state_dict()}, public_names)),
        "tokenizer": encoder.tokenizer.to_json(),
        "recipe": dataclasses.asdict(encoder.recipe) if encoder.recipe is not None else None,
        "heads": labels,
        "pooler": pooler,
        "public": encoder.hf_config if heads else {},
    }


def _from_plain(plain: Mapping[str, Any], device: str, name: str) -> Encoder:
    """The inverse; version 0.1.0 wrote no heads."""
    try:
        family = family_of(plain["family"])
        config = family.config.from_hf(plain["config"], name)
        model, public_names = _empty(family, config, plain.get("heads", {}), plain.get("pooler", False))
        tensors = tensors_from_bytes(plain["weights"], name)
        recipe = SentenceRecipe(**plain["recipe"]) if plain["recipe"] is not None else None
        tokenizer, public = Tokenizer.from_json(plain["tokenizer"]), dict(plain.get("public", {}))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FolderError(f"{name}: not a pickle of this estimator ({type(error).__name__}: {error})") from None
    fill(model, family.title, public_names, tensors)
    return Encoder(model.eval().to(pick_device(device)), tokenizer, public, recipe=recipe, name=name)


def _empty(family: Family, config: Any, heads: Mapping[str, int], pooler: bool) -> tuple[Model, dict[str, Source]]:
    """The model without weights, and their public names: the body's have a prefix where heads stand beside them."""
    with torch.device("meta"):
        model = Model(family, config, heads, pooler)
    return model, sources(family, config, model.state_dict(), f"{family.prefix}." if heads else "")


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

    Texts longer than the model's context are read in windows. Nothing is written outside a temporary folder.
    Attributes after `fit`: `encoder_`, a kinfolk.Encoder (`encoder_.save(folder)` writes what kinfolk and transformers
    load), `validation_metrics_` and `notes_`.
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

    def _train(self, task: str, examples: Sequence[AnyExample], **options: Any) -> None:
        """Fine-tune; `options` are class weights and the like."""
        seed = self._seed()
        names = [setting.name for setting in settings_fields() if hasattr(self, setting.name)]
        values = ((name, getattr(self, name)) for name in names)  # searches give numpy's numbers
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in values}
        settings = TrainSettings().but(seed=seed, **plain)
        callbacks = Callbacks(lambda summary, initialized: print(summary), _print_evaluation, print)
        options |= {"window": self.window, "stride": self.stride, "callbacks": callbacks if self.verbose else None}
        train, options["dev"] = self._split(examples, seed)
        encoder = loaded(self.model, self.device)
        with tempfile.TemporaryDirectory(prefix="kinfolk-") as folder:
            run = Path(folder) / "run"
            try:
                result = finetune(encoder, train, run, task=task, settings=settings, report=False, **options)
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
        share = self.validation_fraction
        if share == 0:
            return list(examples), []
        if not 0 < share < 1:
            raise InputError(f"validation_fraction={share!r} is not a share of the texts, from 0 up to 1")
        try:
            return stratified_split(examples, share, seed)
        except DataError:
            few = f"{len(examples)} texts are too few to hold some of them out"
            raise InputError(f"{few}; give more, or use validation_fraction=0") from None


def _print_evaluation(seed: int, progress: Progress) -> None:
    if progress.metrics is not None:
        print(progress)
