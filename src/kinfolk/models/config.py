"""Settings of a model: frozen dataclasses under our own names, and their table of public (Hugging Face) ones.

A relative states its fields, their defaults and what is special. Checks that all share are written once here: types,
sizes, layers, booleans, choices.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from kinfolk.errors import ConfigError, did_you_mean

MAX_LAYERS = 1_000
MAX_SETTINGS = 1_000
MAX_SIZE = 2**24  # no width, vocabulary or table of positions comes near it

# Public names of activations, and ours. `gelu_new` and its relatives are one formula.
HF_ACTIVATIONS = {name: name for name in ("gelu", "relu", "silu", "tanh")}
HF_ACTIVATIONS |= {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh", "swish": "silu"}


def renamed(hf_names: Mapping[str, str], absent: str, **public: str) -> dict[str, str]:
    """The public names of a parent, without its settings `absent` and with other names for some."""
    return {name: theirs for name, theirs in hf_names.items() if name not in absent.split()} | public


@dataclass(frozen=True)
class Config:
    """What every relative has. Subclasses add fields, defaults and the tables of public names."""

    vocabulary_size: int = 30_522
    width: int = 768
    positions: int = 512
    dropout: float = 0.1
    pad_id: int = 0

    hf_names: ClassVar[dict[str, str]] = {}  # our field: the public one; empty: all fields keep their names
    hf_required: ClassVar[dict[str, Any]] = {}  # public settings that change the model, and the one value we build
    hf_values: ClassVar[dict[str, dict[str, str]]] = {"activation": HF_ACTIVATIONS}  # field: public values and ours
    hf_defaults: ClassVar[dict[str, Any]] = {}  # what a public file means by leaving a setting out, where not ours
    hf_repeats: ClassVar[dict[str, str]] = {}  # public settings that we write as another one where a folder has none
    sizes: ClassVar[tuple[str, ...]] = ("vocabulary_size", "width", "positions")  # fields that are at least 1
    choices: ClassVar[dict[str, Sequence[str]]] = {}  # fields with a list of values

    # Does the state of generation hold all that came before? Then texts are one stream with an end before each, and a
    # prompt may be of any length; else the context is all that a token sees.
    carries_state: ClassVar[bool] = False

    @classmethod
    def public_names(cls) -> dict[str, str]:
        return cls.hf_names or {field.name: field.name for field in dataclasses.fields(cls)}

    @property
    def first_position(self) -> int:
        return 0

    @property
    def context(self) -> int:
        """How many tokens a text may have, specials included."""
        return self.positions - self.first_position

    @property
    def table_width(self) -> int:
        return self.width

    @property
    def target_vocabulary(self) -> int:
        return self.vocabulary_size

    @classmethod
    def make(cls, **settings: Any) -> Self:
        known = [field.name for field in dataclasses.fields(cls)]
        for name in settings:
            if name not in known:
                raise ConfigError(f'{cls.__name__} has no setting "{name}"{did_you_mean(name, known)}')
        return cls(**settings)

    @classmethod
    def from_hf(cls, hf_config: Mapping[str, Any], location: str) -> Self:
        """Read a public config.json. Names we do not know are left alone unless they look like a misspelling."""
        for name, value in cls.hf_required.items():
            if (actual := hf_config.get(name)) not in (value, None):
                raise ConfigError(f"{location}: {name}={str(actual)[:60]!r} is not supported here (only {value!r} is)")
        public = cls.public_names()
        ours = {theirs: name for name, theirs in public.items()}
        if len(hf_config) > MAX_SETTINGS:
            raise ConfigError(f"{location}: {len(hf_config):,} settings are more than a config has")
        absent = [name for name in ours if name not in hf_config]
        for name in hf_config:
            close = [] if name in ours else difflib.get_close_matches(name, absent, 1, cutoff=0.9)
            if close:
                raise ConfigError(f'{location}: unknown setting "{name[:60]}"; did you mean "{close[0]}"?')
        present = {ours[name]: value for name, value in hf_config.items() if name in ours and value is not None}
        settings = cls.hf_defaults | present
        for name in cls.hf_values.keys() & present.keys():
            if not isinstance(present[name], str) or present[name] not in cls.hf_values[name]:
                raise ConfigError(f"{location}: unknown {name} {str(present[name])[:80]!r}")
            settings[name] = cls.hf_values[name][present[name]]
        types = {field.name: field.type for field in dataclasses.fields(cls)}
        try:
            for name, value in present.items():
                _check_type(public[name], types[name], value)  # as the file calls it
            return cls(**settings)
        except ConfigError as error:
            raise ConfigError(f"{location}: {error}") from None

    def to_hf(self) -> dict[str, Any]:
        names = self.public_names()
        settings = {theirs: getattr(self, name) for name, theirs in names.items()}
        for name in self.hf_values.keys() & names.keys():
            public = {ours: theirs for theirs, ours in reversed(self.hf_values[name].items())}
            settings[names[name]] = public[getattr(self, name)]
        return settings | self.hf_required

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_type(field.name, field.type, getattr(self, field.name))
            if field.name.endswith("layers") and getattr(self, field.name) > MAX_LAYERS:
                raise ConfigError(f"{field.name}={getattr(self, field.name):,} is more than {MAX_LAYERS:,}")
        for name in self.sizes:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1")
        for name, values in self.choices.items():
            if (value := getattr(self, name)) not in values:
                raise ConfigError(f"{name} {value[:60]!r} is not known; choose one of {', '.join(values)}")
        if self.context < 1:
            raise ConfigError(f"{self.positions} positions leave no room for a text from {self.first_position}")

    def check_ids(self, *names: str) -> None:
        for name in names:
            if (token := getattr(self, name)) >= self.target_vocabulary:
                raise ConfigError(f"{name}={token:,} is not an id of a vocabulary of {self.target_vocabulary:,}")


@dataclass(frozen=True)
class TranslationConfig(Config):
    """What models from a source to a target add: a second vocabulary, and the ids that frame a target."""

    vocabulary_size: int = 37_000
    target_vocabulary_size: int = 0  # 0: as large as the source's
    start_id: int = 1  # stands before a target
    end_id: int = 2  # ends a source and a target
    shared_tables: bool = True  # one table for the tokens of source and target

    @property
    def target_vocabulary(self) -> int:
        return self.target_vocabulary_size or self.vocabulary_size

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_ids("pad_id", "start_id", "end_id")
        source, target = self.vocabulary_size, self.target_vocabulary
        if self.shared_tables and target != source:
            raise ConfigError(f"one table cannot serve {source:,} source and {target:,} target tokens")


def _check_type(name: str, kind: Any, value: Any) -> None:
    if kind == "int":
        valid, expected = type(value) is int and 0 <= value <= MAX_SIZE, f"a whole number between 0 and {MAX_SIZE:,}"
    elif kind == "float":
        number = isinstance(value, int | float) and not isinstance(value, bool)
        valid, expected = number and 0 <= value < 1, "a number from 0 to below 1"
    elif kind == "bool":
        valid, expected = type(value) is bool, "true or false"
    else:
        valid, expected = isinstance(value, str), "a string"
    if not valid:
        raise ConfigError(f"{name}={str(value)[:60]} is not {expected}")
