"""The command `kinfolk`. Its commands stand in the other files of this folder.

Results go to stdout, everything else to stderr. A fault of the user's is one line, `kinfolk: …`, and exit code 2.
Nothing heavy is imported before a command runs, so that `--help` answers at once; typer's rich help would double its
time.
"""

from __future__ import annotations

import functools
import inspect
import io
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer

from kinfolk import __version__
from kinfolk.cli import embed, evaluate, finetune, generate, info, pretrain, translate
from kinfolk.cli.output import log_line, silence
from kinfolk.errors import KinfolkError, StopSignalError

AS_IT_IS = "\b\n"  # a paragraph whose lines are not wrapped
USER_FAULT, INTERRUPTED, BROKEN_PIPE, SIGNALLED = 2, 130, 1, 128

UsageError: Any = typer.BadParameter.__base__  # typer has a copy of click, or depends on it, and exports no more of it

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=f"{AS_IT_IS}Example:\n  kinfolk embed --model demo --input lines.txt --output vectors.npy",
)


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"kinfolk {__version__}")
        raise typer.Exit


@app.callback()
def kinfolk(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """BERT and friends, one family: use, convert and understand the models."""


def add(function: Callable[..., None], computes: bool) -> None:
    """Make a function a command by its name, its docstring the help, whose examples come last.

    Commands that run a model have the process prepared for it.
    """

    @functools.wraps(function)
    def command(**arguments: Any) -> None:
        if computes:
            prepare_process()
        function(**arguments)

    description, _, example = (inspect.getdoc(function) or "").partition("\n\nExample")
    epilog = f"{AS_IT_IS}Example{example}"
    app.command(function.__name__.replace("_", "-"), help=description, epilog=epilog)(command)


for module in (embed, generate, finetune, evaluate, pretrain, translate, info):
    for function in module.COMMANDS:
        add(function, computes=module is not info)


def prepare_process() -> None:
    """The process is our own here, so its allocator may be set."""
    from kinfolk.machine import limit_kernel_cache, tune

    limit_kernel_cache()
    tune()


def main() -> None:
    """Entry point of the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a letter that the terminal lacks is no reason to fail
    signal.signal(signal.SIGTERM, end)
    sys.exit(run(sys.argv[1:]))


def end(number: int, frame: object) -> NoReturn:
    """SIGTERM as an exception, so that files which are half written are cleared away."""
    raise SystemExit(SIGNALLED + number)


def run(arguments: Sequence[str]) -> int:
    """Run one command and give its exit code."""
    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("default")
        warnings.showwarning = functools.partial(show_warning, warnings.showwarning)
        try:
            code = call(arguments)
            if sys.stdout is not None:  # closed by whoever started us
                sys.stdout.flush()
        except KinfolkError as error:
            log_line(f"kinfolk: {error}")
            return USER_FAULT
        except StopSignalError as stop:
            log_line(f"kinfolk: {stop}")
            return SIGNALLED + stop.signum
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:  # the reader of our output had enough
            silence(sys.stdout)
            return BROKEN_PIPE
        except OSError as error:  # of our own streams: faults of files are a KinfolkError
            log_line(f"kinfolk: {error.strerror or error}")
            silence(sys.stdout)
            return USER_FAULT
    return code


def call(arguments: Sequence[str]) -> int:
    """The exit code of a command; wrong usage, four lines of typer's, is one line, as every other fault."""
    try:
        code = app(args=list(arguments) or ["--help"], prog_name="kinfolk", standalone_mode=False)
    except SystemExit as ended:
        code = ended.code
    except UsageError as error:
        hint = "" if error.ctx is None else f"; see {error.ctx.command_path} --help"
        log_line(f"kinfolk: {' '.join(error.format_message().split()).rstrip('.')}{hint}")
        return USER_FAULT
    except typer.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def show_warning(default: Callable[..., None], message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
    """Our own warnings in one line without the line of source; those of libraries only for those who ask with -W."""
    if category.__module__.startswith("kinfolk."):
        log_line(f"kinfolk: {message}")
    elif sys.warnoptions:
        default(message, category, *rest, **more)
