"""The command `kinfolk`. Its commands stand in the other files of this folder.

Results go to stdout, everything else to stderr. A fault of the user's is one line, `kinfolk: …`, and exit code 2.
Nothing heavy is imported before a command runs, so that `--help` answers at once; typer's rich help would double its
time.
"""

from __future__ import annotations

import functools
import io
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer

from kinfolk import __version__
from kinfolk.cli import convert, embed, fill, finetune, info, pretrain, search, tokenize, translate
from kinfolk.cli.output import log_line, silence
from kinfolk.errors import KinfolkError, StopSignalError

AS_IT_IS = "\b\n"  # a paragraph whose lines are not wrapped
USER_FAULT, INTERRUPTED, BROKEN_PIPE, SIGNALLED = 2, 130, 1, 128

UsageError: Any = typer.BadParameter.__base__  # typer has a copy of click, or depends on it, and exports no more of it

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=AS_IT_IS + embed.EXAMPLE,
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


def add(name: str, function: Callable[..., None], example: str, computes: bool) -> None:
    """Make a function a command; those that run a model have the process prepared for it."""

    @functools.wraps(function)
    def command(**arguments: Any) -> None:
        if computes:
            prepare_process()
        function(**arguments)

    app.command(name, epilog=AS_IT_IS + example)(command)


add("embed", embed.embed, embed.EXAMPLE, computes=True)
add("fill-mask", fill.fill_mask, fill.EXAMPLE, computes=True)
add("search", search.search, search.EXAMPLE, computes=True)
add("finetune", finetune.finetune, finetune.FINETUNE_EXAMPLE, computes=True)
add("predict", finetune.predict, finetune.PREDICT_EXAMPLE, computes=True)
add("evaluate", finetune.evaluate, finetune.EVALUATE_EXAMPLE, computes=True)
add("train-translator", translate.train_translator, translate.TRAIN_EXAMPLE, computes=True)
add("pretrain", pretrain.pretrain, pretrain.PRETRAIN_EXAMPLE, computes=True)
add("generate", pretrain.generate, pretrain.GENERATE_EXAMPLE, computes=True)
add("translate", translate.translate, translate.TRANSLATE_EXAMPLE, computes=True)
add("align", translate.align, translate.ALIGN_EXAMPLE, computes=True)
add("tokenize", tokenize.tokenize, tokenize.EXAMPLE, computes=False)
add("info", info.info, info.EXAMPLE, computes=False)
add("convert", convert.convert, convert.EXAMPLE, computes=False)


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
            return SIGNALLED + stop.number
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:  # the reader of our output had enough
            silence(sys.stdout)
            return BROKEN_PIPE
        except OSError as error:  # of our own streams: files are told as a KinfolkError
            log_line(f"kinfolk: {error.strerror or error}")
            silence(sys.stdout)
            return USER_FAULT
    return code


def call(arguments: Sequence[str]) -> int:
    """typer would tell wrong usage in four lines; here it is one, as every other fault."""
    try:
        code = app(args=list(arguments) or ["--help"], prog_name="kinfolk", standalone_mode=False)
    except SystemExit as ended:
        code = ended.code
    except UsageError as error:
        help_told = "" if error.ctx is None else f"; see {error.ctx.command_path} --help"
        log_line(f"kinfolk: {' '.join(error.format_message().split()).rstrip('.')}{help_told}")
        return USER_FAULT
    except typer.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def show_warning(usual: Callable[..., None], message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
    """Our own warnings in one line without the line of source; those of libraries only for those who ask with -W."""
    if category.__module__.startswith("kinfolk."):
        log_line(f"kinfolk: {message}")
    elif sys.warnoptions:
        usual(message, category, *place, **more)
