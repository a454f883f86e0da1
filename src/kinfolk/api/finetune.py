"""Fine-tuning for any task: a file in; a trained, evaluated, saved model out (experiment.py says what is written)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from kinfolk.api.experiment import Sides, Trained, begin, without_dev
from kinfolk.api.fitting import Fitted, fit_finetuning
from kinfolk.api.frozen import SETTINGS as FROZEN
from kinfolk.api.frozen import FrozenExperiment, FrozenHeadConfig, frozen_config
from kinfolk.api.supervised import SupervisedExperiment
from kinfolk.checkpoints.folder import TextModel, open_encoder, pick_device
from kinfolk.data.examples import AnyExample, ReadResult, check_examples, stratified_split, to_example
from kinfolk.data.summary import Summary
from kinfolk.errors import InputError, check_choice, check_collection, check_int, shorten_list
from kinfolk.tasks.task import FILES, Columns, TaskOptions, guess_task, make_task, read_for
from kinfolk.text.windows import Windows
from kinfolk.training.distributed import world
from kinfolk.training.runs import Callbacks, tensorboard_log
from kinfolk.training.settings import TrainSettings, refuse_two_lengths

LabelledData = str | Path | Sequence[AnyExample] | Sequence[tuple[Any, ...]]


def finetune(
    model: str | Path | TextModel,
    train: LabelledData,
    output: str | Path,
    dev: LabelledData | None = None,
    task: str | None = None,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    header: Sequence[str] | None = None,
    class_weights: str | Mapping[str, float] | None = None,
    crf: bool = False,
    frozen: str | FrozenHeadConfig | None = None,
    layers: str | Sequence[int] | None = None,
    dropout: float | None = None,
    window: int | None = None,
    stride: int | None = None,
    max_bad_rows: int = 0,
    seeds: int = 1,
    device: str = "auto",
    settings: TrainSettings | None = None,
    callbacks: Callbacks | None = None,
    tensorboard: bool = False,
    report: bool = True,
    allow_pickle: bool = False,
    **training: Any,
) -> Trained:
    """Fine-tune a model on labelled texts, tagged sentences, questions or choices.

    `train` and `dev` are files, or lists: of `(text, label)`, of `(text, pair, label)`, or of data/examples.py's.
    `model` may be loaded already; it is not changed. `task` is classify, multilabel, regress, tag, answer or choose;
    without it the form of the data tells (tasks/task.py). Without `dev`, a tenth of `train` is held out; an empty list
    holds nothing out, and the last weights are kept. `dropout` replaces the model's own. The same call on the same
    folder goes on where it stopped; other data or settings are refused. How to train is said by name, as in `epochs=5,
    learning_rate=1e-4, batch_size=16` (all names: TrainSettings and OptimizerSettings), or by `settings`. `tensorboard`
    also writes the log as TensorBoard reads it; without `report` there is none. `allow_pickle` is as in `kinfolk.load`.

    With `frozen` the encoder stays as it is, and a head learns on its features: linear, bilstm, linear-crf, bilstm-crf
    or logistic, of the `layers` that `embed` knows by name or number, or of a learned "mix" of all (frozen.py).
    """
    train, dev = _source("train", train), None if dev is None else _source("dev", dev)
    columns = Columns(text, pair, label, header)
    check_int("max_bad_rows", max_bad_rows, 0)
    check_int("seeds", seeds)
    task = guess_task(train, columns) if task is None else check_choice("task", task, FILES)
    named = [*(training if settings is None else settings.changed()), *["seeds"] * (seeds > 1)]
    if frozen is None and layers is not None:
        raise InputError("layers are chosen for a frozen encoder; say frozen as well, such as linear")
    head = None if frozen is None else frozen_config(task, frozen, layers, crf, dropout, named)
    if settings is not None and training:
        raise InputError(f"{shorten_list(training)}: say it in settings, or leave those out and name them all")
    refuse_two_lengths(training)
    said = settings is not None
    settings = settings or (TrainSettings() if head is None else FROZEN).but(**training)
    output = Path(output)
    options = TaskOptions(class_weights, crf if head is None else head.crf, Windows(window, stride))
    used = model.device if isinstance(model, TextModel) else pick_device(device)
    session = begin(output, settings, used, callbacks)
    encoder = model if isinstance(model, TextModel) else open_encoder(model, device, allow_pickle)
    split = partial(stratified_split, seed=settings.seed)
    sides = Sides.read(train, dev, lambda side: _read(side, task, columns, max_bad_rows), split)
    fitted = Fitted()
    if head is None and not said:
        fitted = fit_finetuning(len(sides.train), encoder.model.config.width, training)
        settings = settings.but(**fitted.values)
        if fitted.rows:
            session.callbacks.plan(str(Summary(fitted.rows)))
    if not sides.dev:
        if seeds > 1:
            raise InputError("the best of several seeds is chosen on a dev set; give one, or use seeds=1")
        settings = without_dev(settings)
    own = (encoder, make_task(task, sides.train, options), sides, settings, output)
    experiment = SupervisedExperiment(*own, dropout) if head is None else FrozenExperiment(*own, frozen=head)
    experiment.identity["chosen"] = dict(fitted.reasons)
    with ExitStack() as stack:
        if tensorboard and world().is_main:
            log = tensorboard_log(output / "tensorboard", session.callbacks, seeds > 1)
            session = replace(session, callbacks=stack.enter_context(log))
        return experiment.run(session, sides.notes, seeds, report)


def _source(name: str, source: LabelledData) -> str | Path | list[AnyExample]:
    """A file as it is named, examples as a list: what can be read only once is read here."""
    if isinstance(source, str | Path):
        return source
    if hasattr(source, "columns"):
        advice = 'list(zip(table["text"], table["label"]))'
        raise InputError(f"{name} is a table: give the file it came from, or its rows, as in {advice}")
    listed = check_collection(source, f"{name} to be a file or a list of examples")
    return [to_example(example, index) for index, example in enumerate(listed)]


def _read(source: str | Path | list[AnyExample], kind: str, columns: Columns, max_bad_rows: int) -> ReadResult[Any]:
    if isinstance(source, str | Path):
        return read_for(kind, source, columns, max_bad_rows)
    return ReadResult(check_examples(source, kind), 0, ())
