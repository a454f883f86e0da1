"""The family: public model types and the files that describe them. A new relative adds one line here."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from kinfolk.errors import ConfigError, InputError, did_you_mean
from kinfolk.models.family import Family, Preset

FILES = {
    "kinfolk-seq2seq": "kinfolk.models.seq2seq",
    "kinfolk-attention": "kinfolk.models.attention_seq2seq",
    "kinfolk-transformer": "kinfolk.models.transformer",
    "marian": "kinfolk.models.marian",
    "openai-gpt": "kinfolk.models.gpt",
    "gpt2": "kinfolk.models.gpt2",
    "bert": "kinfolk.models.bert",
    "roberta": "kinfolk.models.roberta",
    "albert": "kinfolk.models.albert",
    "distilbert": "kinfolk.models.distilbert",
    "mpnet": "kinfolk.models.mpnet",
    "kinfolk-recurrent-lm": "kinfolk.models.recurrent_lm",
}


@cache
def family(name: str) -> Family:
    """The family of a public model type."""
    if name not in FILES:
        known = ", ".join(FILES)
        raise ConfigError(f'model type "{name[:60]}" is not one of kinfolk\'s ({known}){did_you_mean(name, FILES)}')
    record: Family = import_module(FILES[name]).FAMILY
    return record


def all_families() -> list[Family]:
    return [family(name) for name in FILES]


def preset(name: str, conditional: bool | None = None) -> tuple[Family, Preset]:
    """The family and settings of a model with a name, among those that are (not) conditional where that matters."""
    families = [record for record in all_families() if conditional in (None, record.is_conditional)]
    owners = {preset_name: record for record in families for preset_name in record.presets}
    if name not in owners:
        raise InputError(f'no preset is called "{name}"{did_you_mean(name, owners)}')
    return owners[name], owners[name].presets[name]
