"""The family: public model types and the files that describe them. A new relative adds one line here."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from kinfolk.errors import ConfigError, InputError, nearest
from kinfolk.models.model import Family, Preset

FILES = {
    "bert": "kinfolk.models.bert",
    "roberta": "kinfolk.models.roberta",
    "albert": "kinfolk.models.albert",
    "distilbert": "kinfolk.models.distilbert",
    "mpnet": "kinfolk.models.mpnet",
}


@cache
def family(name: str) -> Family:
    """The family of a public model type.

    >>> family("albert").parent
    'bert'
    """
    if name not in FILES:
        raise ConfigError(
            f'model type "{name[:60]}" is not one of kinfolk\'s ({", ".join(FILES)}){nearest(name, FILES)}'
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
    known = {preset_name: relative for relative in families() for preset_name in relative.presets}
    if name not in known:
        raise InputError(f'no preset is called "{name}"{nearest(name, known)}')
    return known[name], known[name].presets[name]
