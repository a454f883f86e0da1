"""Settings: our names and the public ones, checked at once, and the same defaults as the reference's."""

from __future__ import annotations

from typing import Any

import pytest
import transformers

from kinfolk.errors import ConfigError, InputError
from kinfolk.models.bert import BertConfig
from kinfolk.models.family import Family, Model, all_families, family, init_normal, preset
from support.tiny import is_public

PUBLIC = [family for family in all_families() if not family.is_conditional and is_public(family)]
every_family = pytest.mark.parametrize("family", PUBLIC, ids=lambda family: family.name)


@every_family
def test_public_settings_survive_the_way_there_and_back(family: Family) -> None:
    for published in family.presets.values():
        public = published.config.to_hf()
        assert family.config.from_hf(public, "here") == published.config


@every_family
def test_the_reference_reads_the_settings_we_write(family: Family) -> None:
    config = family.config.make(width=24, heads=3, layers=5, inner_width=32, vocabulary_size=50, activation="relu")
    theirs = transformers.AutoConfig.for_model(family.name, **config.to_hf())
    assert (theirs.hidden_size, theirs.num_attention_heads, theirs.num_hidden_layers) == (24, 3, 5)
    assert family.config.from_hf(theirs.to_dict(), "here") == config


@every_family
def test_a_setting_left_out_means_what_it_means_to_the_reference(family: Family) -> None:
    theirs = transformers.AutoConfig.for_model(family.name).to_dict()
    assert family.config.from_hf({}, "here") == family.config.from_hf(theirs, "here")


@every_family
def test_a_misspelt_setting_is_refused_with_the_nearest_name(family: Family) -> None:
    with pytest.raises(ConfigError, match=r'"vocabulary_sise"; .*"vocabulary_size"'):
        family.config.make(vocabulary_sise=3)
    theirs = family.config.public_names()["vocabulary_size"]
    with pytest.raises(ConfigError, match=f'"{theirs}s"; .*"{theirs}"'):
        family.config.from_hf({f"{theirs}s": 3}, "here")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "width "),
        ({"width": 12.0}, "width=12.0 "),
        ({"width": True}, "width=True "),
        ({"layers": 1001}, "layers=1,001"),
        ({"heads": 5}, "width 768 .*5 heads"),
        ({"dropout": 1.0}, "dropout=1.0 "),
        ({"activation": "gelu_new"}, "activation 'gelu_new' .*gelu, gelu_tanh"),
        ({"activation": 3}, "activation=3 "),
    ],
)
def test_an_impossible_setting_is_refused_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BertConfig.make(**settings)


def test_settings_of_relatives_are_checked_too() -> None:
    with pytest.raises(ConfigError, match="groups "):
        family("albert").config.make(groups=0)
    with pytest.raises(ConfigError, match="multiple of 4"):
        family("mpnet").config.make(distance_buckets=30)
    with pytest.raises(ConfigError, match="2 positions "):
        family("roberta").config.make(positions=2)


def test_unknown_families_and_presets_are_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match='did you mean "roberta"'):
        family("robberta")
    with pytest.raises(InputError, match='did you mean "bert-base-uncased"'):
        preset("bert-base-uncasd")


def test_a_new_model_starts_as_the_paper_says_and_the_same_each_time() -> None:
    config = BertConfig.make(vocabulary_size=400, width=64, layers=2, heads=4, inner_width=128, positions=32)
    models = [Model(family("bert"), config, {"masked_lm": 0}, True) for _ in range(2)]
    for model in models:
        init_normal(model, seed=3)
    first, second = (model.state_dict() for model in models)
    assert all(tensor.equal(second[name]) for name, tensor in first.items())
    for name, tensor in first.items():
        if "norm" in name:
            assert tensor.unique().tolist() == [1.0 if name.endswith("weight") else 0.0]
        elif name.endswith("bias"):
            assert tensor.count_nonzero() == 0
        else:
            assert 0.018 < float(tensor.std()) < 0.022
            assert abs(float(tensor.mean())) < 0.002
