"""What the three training commands share: options made from the trainer's settings, progress, and the result."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import Field
from typing import Annotated, Any, get_type_hints

from typer import Option

from kinfolk.cli.output import log_line, print_json, print_table, training_progress
from kinfolk.training.settings import OptimizerSettings, TrainSettings, settings_fields

Command = Callable[..., None]

TYPES = get_type_hints(TrainSettings) | get_type_hints(OptimizerSettings)
SHORT = {"learning_rate": ["--lr"]}
PYTHON_ONLY = ("betas", "epsilon")
PRETRAINED_ONLY = ("layer_decay", "freeze", "gradual_unfreezing")


def training_options(exclude: Sequence[str] = (), **defaults: Any) -> Callable[[Command], Command]:
    """Give a command the settings of the trainer as options, in place of its parameter `training`.

    Help shows the command's own `defaults`. `training` receives by name what was given on the command line, nothing
    else. Options that the command declares itself, and those in `exclude`, are left out.
    """

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters
        options = {
            setting.name: _parameter(setting, defaults.get(setting.name, setting.default))
            for setting in settings_fields()
            if setting.name not in (*own, *exclude, *PYTHON_ONLY)
        }

        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            named = {name: arguments.pop(name) for name in options}
            command(**arguments, training={name: value for name, value in named.items() if value is not None})

        parameters: list[inspect.Parameter] = []
        for name, parameter in own.items():
            parameters += options.values() if name == "training" else [parameter]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def _parameter(setting: Field[Any], default: Any) -> inspect.Parameter:
    """An option whose absence is None, so that only what is given is passed on."""
    kind = TYPES[setting.name]
    choices = f" {', '.join(setting.metadata['choices'])}." if "choices" in setting.metadata else ""
    shown = "" if default is None or kind is bool else f"  [default: {default}]"
    names = [f"--{setting.name.replace('_', '-')}", *SHORT.get(setting.name, ())]
    option = Option(*names, help=setting.metadata["help"] + choices + shown)
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def run_training(train: Callable[..., Any], callbacks: Callable[..., Any], /, **arguments: Any) -> Any:
    """The result of a training with progress on stderr; None in all but one of several processes under torchrun."""
    from kinfolk.training.distributed import world

    is_main = world().is_main
    with training_progress() if is_main else nullcontext(lambda seed, progress: None) as step:
        result = train(**arguments, callbacks=callbacks(show_data, step))
    return result if is_main else None


def show_data(summary: Any, initialized: Sequence[str] = ()) -> None:
    """What there is to know before training."""
    log_line(str(summary))
    if initialized:
        log_line(f"newly initialised parameters: {', '.join(initialized)}")


def show_result(result: Any, json: bool, header: Sequence[str], rows: Sequence[Sequence[Any]], **more: Any) -> None:
    """Notes, then metrics on the dev set as a table or, with `more`, as JSON; and where the model is."""
    for note in result.notes:
        log_line(f"note: {note}")
    if json:
        print_json({"folder": str(result.folder), "metrics": dict(result.metrics), **more})
        return
    if rows:
        print_table(header, rows)
    log_line(f"the model is in {result.folder / 'model'}, its report in {result.folder / 'report.md'}")
