"""The family: public model types and the files that describe them. A new relative adds one line here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import TypeVar

from kinfolk.errors import ConfigError, InputError, did_you_mean
from kinfolk.models.model import Family, Preset
from kinfolk.models.text_to_text import TextToText, TextToTextPreset

FILES = {  # encoders
    "bert": "kinfolk.models.bert",
    "roberta": "kinfolk.models.roberta",
    "albert": "kinfolk.models.albert",
    "distilbert": "kinfolk.models.distilbert",
    "mpnet": "kinfolk.models.mpnet",
    "kinfolk-recurrent-lm": "kinfolk.models.recurrent_lm",
}
TEXT_TO_TEXT = {
    "kinfolk-seq2seq": "kinfolk.models.seq2seq",
    "kinfolk-attention": "kinfolk.models.attention_seq2seq",
    "kinfolk-transformer": "kinfolk.models.transformer",
    "marian": "kinfolk.models.marian",
}

Kin = TypeVar("Kin", bound=Family | TextToText)


@cache
def family(name: str) -> Family:
    """The family of a public model type.

    >>> family("albert").parent
    'bert'
    """
    if name not in FILES:
        raise ConfigError(
            f'model type "{name[:60]}" is not one of kinfolk\'s ({", ".join(FILES)}){did_you_mean(name, FILES)}'
        )
    found: Family = import_module(FILES[name]).FAMILY
    return found


def families() -> list[Family]:
    """All families, parents first."""
    return [family(name) for name in FILES]


def preset(name: str) -> tuple[Family, Preset]:
    """The family and settings of a published model.

    >>> preset("bert-large-uncased")[1].config.layers
    24
    """
    found = owner(name, families())
    return found, found.presets[name]


@cache
def text_to_text(name: str) -> TextToText:
    """The text-to-text family of a public model type.

    >>> text_to_text("marian").parent
    'kinfolk-transformer'
    """
    if name not in TEXT_TO_TEXT:
        listed = ", ".join(TEXT_TO_TEXT)
        raise ConfigError(
            f'model type "{name[:60]}" is not one that writes texts ({listed}){did_you_mean(name, TEXT_TO_TEXT)}'
        )
    found: TextToText = import_module(TEXT_TO_TEXT[name]).FAMILY
    return found


def text_to_text_families() -> list[TextToText]:
    """All families that turn a text into a text, parents first."""
    return [text_to_text(name) for name in TEXT_TO_TEXT]


def text_to_text_preset(name: str) -> tuple[TextToText, TextToTextPreset]:
    """The family and settings of a text-to-text model with a name.

    >>> text_to_text_preset("transformer-big")[1].config.width
    1024
    """
    found = owner(name, text_to_text_families())
    return found, found.presets[name]


def owner(name: str, relatives: Sequence[Kin]) -> Kin:
    """The one of the relatives that has a preset of this name."""
    known = {preset_name: relative for relative in relatives for preset_name in relative.presets}
    if name not in known:
        raise InputError(f'no preset is called "{name}"{did_you_mean(name, known)}')
    return known[name]


def all_families() -> list[TextToText | Family]:
    """All families of both kinds, parents first."""
    return [*text_to_text_families(), *families()]
