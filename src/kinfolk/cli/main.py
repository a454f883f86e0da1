"""The command `kinfolk`. Its commands stand in the other files of this folder.

Results go to stdout, everything else to stderr. A fault of the user's is one line, `kinfolk: …`, and exit code 2.
Nothing heavy is imported before a command runs, so that `--help` answers at once; typer's rich help would double its
time. A command's file is loaded when that command, or its help, is asked for.
"""

from __future__ import annotations

import functools
import inspect
import io
import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, NoReturn, get_args

import typer
from typer.core import TyperGroup
from typer.models import OptionInfo

from kinfolk import __version__
from kinfolk.cli.output import log_line, silence
from kinfolk.errors import InputError, KinfolkError, StopSignalError, did_you_mean

FILES = {  # of this folder, and the commands in each
    "embed": ("embed", "search"),
    "generate": ("fill-mask", "generate"),
    "evaluate": ("predict", "evaluate"),
    "train": ("finetune", "pretrain", "train-translator"),
    "translate": ("translate", "align"),
    "info": ("info", "tokenize", "convert"),
}
COMMANDS = {command: file for file, commands in FILES.items() for command in commands}
AS_IT_IS = "\b\n"  # a paragraph whose lines are not wrapped
USER_FAULT, INTERRUPTED, BROKEN_PIPE, SIGNALLED = 2, 130, 1, 128

UsageError: Any = typer.BadParameter.__base__  # typer has a copy of click, or depends on it, and exports no more of it


class Commands(TyperGroup):
    """The commands by their names, each loaded when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            return typer.main.get_command(load_command(cmd_name))
        if ctx.resilient_parsing:  # a shell asks for completions
            return None
        raise UsageError(f'no command "{cmd_name}"{did_you_mean(cmd_name, COMMANDS)}', ctx)


def load_command(name: str) -> typer.Typer:
    """A function as an app of one command: its docstring is the help, whose examples come last."""
    function = getattr(import_module(f"kinfolk.cli.{COMMANDS[name]}"), name.replace("-", "_"))
    description, _, example = (inspect.getdoc(function) or "").partition("\n\nExample")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    command = grouped(function, prepare=COMMANDS[name] != "info")
    alone.command(name, help=description, epilog=f"{AS_IT_IS}Example{example}")(command)
    return alone


def grouped(function: Callable[..., None], prepare: bool = False) -> Callable[..., None]:
    """A command whose parameter for a group of options gets those that were given (options.py)."""

    @functools.wraps(function)
    def command(**arguments: Any) -> None:
        if prepare:
            prepare_process()
        name, members = getattr(function, "group", ("", ()))
        values = {member: arguments.pop(member) for member in members}
        if members:
            arguments[name] = {member: value for member, value in values.items() if value is not None}
        try:
            function(**arguments)
        except InputError as error:
            raise InputError(as_typed(str(error), options_of(command))) from error

    return command


def options_of(command: Callable[..., None]) -> list[str]:
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    kinds = {parameter.name: get_args(parameter.annotation)[1:] for parameter in parameters}
    return [name for name, kind in kinds.items() if any(isinstance(part, OptionInfo) for part in kind)]


def as_typed(message: str, options: Sequence[str]) -> str:
    """A message with a command's options as the shell has them: max_tokens=0 is --max-tokens=0."""
    pattern = rf"(?<![\w./'\"-])(?:{'|'.join(options)})(?==)"
    return re.sub(pattern, lambda match: f"--{match[0].replace('_', '-')}", message)


EXAMPLE = f"{AS_IT_IS}Example:\n  kinfolk embed --model demo --input lines.txt --output vectors.npy"
app = typer.Typer(cls=Commands, rich_markup_mode=None, pretty_exceptions_enable=False, epilog=EXAMPLE)


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"kinfolk {__version__}")
        raise typer.Exit


VERSION = typer.Option("--version", help="Show the version and exit.", callback=show_version, is_eager=True)


@app.callback()
def kinfolk(version: Annotated[bool, VERSION] = False) -> None:
    """BERT and friends, one family: use, convert and understand the models."""


def prepare_process() -> None:
    """The process is our own here, so its allocator may be set."""
    from kinfolk.machine import set_environment, tune

    set_environment()
    tune()


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a letter that the terminal lacks is no reason to fail
    signal.signal(signal.SIGTERM, end)
    sys.exit(run(sys.argv[1:]))


def end(number: int, frame: object) -> NoReturn:
    """SIGTERM as an exception, so that files which are half written are cleared away."""
    raise SystemExit(SIGNALLED + number)


def run(arguments: Sequence[str]) -> int:
    """Run one command and give its exit code; wrong usage, four lines of typer's, is one line as every other fault."""
    code: Any = USER_FAULT
    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("default")
        warnings.showwarning = functools.partial(show_warning, warnings.showwarning)
        try:
            try:
                code = app(args=list(arguments) or ["--help"], prog_name="kinfolk", standalone_mode=False)
            except SystemExit as ended:
                code = ended.code
            if sys.stdout is not None:  # closed by whoever started us
                sys.stdout.flush()
        except UsageError as error:
            hint = "" if error.ctx is None else f"; see {error.ctx.command_path} --help"
            log_line(f"kinfolk: {' '.join(error.format_message().split()).rstrip('.')}{hint}")
        except KinfolkError as error:
            log_line(f"kinfolk: {error}")
        except StopSignalError as stop:
            log_line(f"kinfolk: {stop}")
            code = SIGNALLED + stop.signum
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except BrokenPipeError:  # the reader of our output had enough
            silence(sys.stdout)
            code = BROKEN_PIPE
        except OSError as error:  # of our own streams: faults of files are a KinfolkError
            log_line(f"kinfolk: {error.strerror or error}")
            silence(sys.stdout)
            code = USER_FAULT
    return code if isinstance(code, int) else 0


def show_warning(default: Callable[..., None], message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
    """Our own warnings in one line without the line of source; those of libraries only for those who ask with -W."""
    if category.__module__.startswith("kinfolk."):
        log_line(f"kinfolk: {message}")
    elif sys.warnoptions:
        default(message, category, *rest, **more)
