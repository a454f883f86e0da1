"""Every exception that kinfolk raises on purpose, and how it warns. Each is one line: what is wrong, where, what to do.

KinfolkError                  caught by the command line: one line on stderr, exit code 2
├── InputError                a text, option or argument that has no meaning here
│   └── TooLongError          a text longer than the model, under on_long="error"
├── DataError                 a row of the user's file, as file:line: reason
├── FolderError               a file or folder that is missing, damaged or not to be trusted
│   ├── ConfigError           settings that are unknown, of the wrong kind or impossible
│   ├── TokenizerError        a vocabulary or tokenizer file that cannot be used
│   └── WeightsError          tensors that are missing, unexpected, misshapen or not finite
├── HubError                  a hub name that cannot be reached (offline, unknown, no such file)
├── MissingHeadError          the checkpoint does not carry the part that the verb needs
└── TrainingError             a run that cannot go on: a loss that is not a number

StopSignalError               not an error: SIGINT or SIGTERM ended a training run after a checkpoint
"""

from __future__ import annotations

import contextlib
import difflib
import math
import operator
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

MAX_MESSAGES = 20  # about bad rows


class KinfolkError(Exception):
    """Base of all; `str(error)` is one line for a person."""

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))


class InputError(KinfolkError): ...


class TooLongError(InputError): ...


class DataError(KinfolkError): ...


class FolderError(KinfolkError): ...


class ConfigError(FolderError): ...


class TokenizerError(FolderError): ...


class WeightsError(FolderError): ...


class HubError(KinfolkError): ...


class MissingHeadError(KinfolkError): ...


class TrainingError(KinfolkError): ...


class StopSignalError(Exception):
    """SIGINT or SIGTERM asked for a stop; a checkpoint was written, and the same command goes on from it."""

    def __init__(self, signum: int):
        self.signum = signum
        super().__init__(f"stopped by {signal.Signals(signum).name}; run the same command again to resume")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a message: `; did you mean "hidden_size"?`, or nothing when no known name is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""


def shorten_list(names: Iterable[str], limit: int = 5) -> str:
    """`a, b, c and 12 more`: a list short enough for one line."""
    all_names = list(names)
    shown = ", ".join(all_names[:limit])
    return shown if len(all_names) <= limit else f"{shown} and {len(all_names) - limit} more"


def type_name(value: object) -> str:
    """The type of a value, with its article: "a list", "an int", "bytes"."""
    name = type(value).__name__
    return name if name.endswith("s") else f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"


def check_int(name: str, value: object, minimum: int = 1) -> int:
    """`value` if it is an integer of at least `minimum` (NumPy's too), else an InputError."""
    with contextlib.suppress(TypeError):
        if not isinstance(value, bool) and operator.index(value) >= minimum:  # type: ignore[arg-type]
            return operator.index(value)  # type: ignore[arg-type]
    raise InputError(f"{name}={str(value)[:60]} is not a whole number of {minimum} or more")


def check_collection(values: object, expected: str) -> Iterable[Any]:
    """`values` if it is an ordered collection, else an InputError: not a text, a mapping, a set or a DataFrame."""
    single = isinstance(values, str | bytes | Mapping) or getattr(values, "shape", None) == ()  # a NumPy scalar
    if single or not isinstance(values, Iterable) or isinstance(values, set | frozenset):
        raise InputError(f"expected {expected}, found {type_name(values)}; give a list, which has an order")
    if hasattr(values, "columns"):  # iterating over a DataFrame gives the names of its columns
        raise InputError(f'expected {expected}, found a table; give one of its columns, as in table["text"]')
    return values


def check_texts(texts: Iterable[object]) -> Iterator[str]:
    """The texts, each checked when it is reached: an InputError for anything else, and for one text instead of many."""
    for index, text in enumerate(check_collection(texts, "a collection of texts")):
        if not isinstance(text, str):
            raise InputError(f"text {index} is {type_name(text)}, expected a string")
        yield text


def check_number(name: str, value: object, low: float, high: float, allowed: str, inclusive: bool = False) -> float:
    """`value` if it is a number above `low` (or that, `inclusive`) and at most `high`; `allowed` says so in words."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if low < number <= high or (inclusive and number == low):
        return number
    raise InputError(f"{name}={str(value)[:60]} must be {allowed}")


def missing_extra(need: str, error: ImportError, extra: str = "train") -> KinfolkError:
    """The error for a package of an extra that is not installed; kinfolk is installed from its folder."""
    return KinfolkError(f'{need} ({error}); run in the folder of kinfolk: pip install ".[{extra}]"')


def check_choice(name: str, value: object, known: Iterable[str]) -> str:
    """`value` if it is one of the known names, else an InputError that lists them."""
    options = list(known)
    if isinstance(value, str) and value in options:
        return value
    close = did_you_mean(str(value), options)
    raise InputError(f"{name}={value!r} is not known; choose one of {', '.join(options)}{close}")


class RowErrors:
    """The bad rows of a file: all are counted, up to `allowed` may be left out."""

    def __init__(self, location: str, allowed: int | None = None):
        if allowed is not None:
            check_int("max_bad_rows", allowed, 0)
        self.location, self.allowed, self.count = location, allowed, 0
        self.messages: list[str] = []

    def add(self, line: int | str, reason: str) -> None:
        """Note a bad row, by its line or another name; reading ends here when nothing more would be allowed."""
        self.count += 1
        if len(self.messages) < MAX_MESSAGES:
            self.messages.append(f"{self.location}:{line}: {reason}")
        if self.count >= MAX_MESSAGES:
            self.raise_if_any()

    def raise_if_any(self) -> None:
        if self.count > (self.allowed or 0):
            more = f"; and {self.count - len(self.messages):,} more" if self.count > len(self.messages) else ""
            limit = "" if self.allowed is None else "; correct them, or allow more (--max-bad-rows)"
            raise DataError("; ".join(self.messages) + more + limit)

    def stop(self, line: int | str, reason: str) -> NoReturn:
        """Raise at once: after this error no row can be read."""
        raise DataError("; ".join([*self.messages[: MAX_MESSAGES - 1], f"{self.location}:{line}: {reason}"]))


def json_type(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return "a number" if type(value) in (int, float) else names.get(type(value), f"a {type(value).__name__}")


def missing_column(column: str, present: Sequence[str]) -> str:
    known = shorten_list(present, limit=12) or "none"
    return f'no column "{column}"; there are: {known}{did_you_mean(column, present)}'


def warn(warning: Warning) -> None:
    """Issue a warning that points to the line which called this package."""
    frame = sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("kinfolk."):
        frame = frame.f_back
    # Without a registry: Python would leave out a second warning that happens to have the same words.
    module = str(frame.f_globals.get("__name__", "<string>"))  # code that was run by exec may have none
    warnings.warn_explicit(warning, None, frame.f_code.co_filename, frame.f_lineno, module)
