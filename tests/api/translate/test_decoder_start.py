"""A decoder that begins as a language model has its weights, its shape and its vocabulary, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import kinfolk
from kinfolk.api.experiment import Callbacks, Summary
from kinfolk.errors import ConfigError, InputError
from kinfolk.text.pairs import PairTokenizer
from small_pairs import pairs, train


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "words-of-the-target"
    texts = [target for _, target in pairs(200)]
    sizes = {"width": 24, "layers": 1, "tied": True}
    kinfolk.pretrain("gru", texts, folder, changes=sizes, vocabulary_size=40, batch_size=4, steps=2, device="cpu")
    return folder


def begun(output: Path, **changes: Any) -> Any:
    """A run of one step that hardly changes a weight."""
    usual = {"kind": "seq2seq", "count": 40, "steps": 1, "learning_rate": 1e-9, "vocabulary_size": 30, "changes": None}
    return train(output, **usual | changes)


def test_the_decoder_takes_shape_weights_and_vocabulary(lm: Path, tmp_path: Path) -> None:
    messages: list[Summary] = []
    begun(tmp_path / "run", init_decoder=lm, callbacks=Callbacks(lambda summary, _: messages.append(summary)))
    result, source = kinfolk.load(tmp_path / "run", device="cpu"), kinfolk.load(lm, device="cpu")
    config = result.model.config
    assert (config.kind, config.width, config.hidden, config.layers, config.tied) == ("gru", 24, 24, 1, True)
    assert result.tokenizer.target.to_json() == source.tokenizer.to_json()
    assert result.tokenizer.source.vocabulary_size == 30
    weights = source.model.state_dict()
    taken = result.model.state_dict()
    for name, weight in weights.items():
        torch.testing.assert_close(taken[name.replace("body.", "body.decoder.")], weight, rtol=0, atol=1e-6)
    count = sum(weight.numel() for weight in weights.values())
    assert f"parameters, {count:,} of them from a language model" in str(messages[0])
    for name in ("report.md", "model/README.md"):
        assert "| decoder initialized from | words-of-the-target |" in (tmp_path / "run" / name).read_text()


def test_a_model_serves_with_its_tokenizer(lm: Path, tmp_path: Path) -> None:
    source = kinfolk.load(lm, device="cpu")
    model = source.model
    with pytest.raises(InputError, match="give the tokenizer"):
        begun(tmp_path / "run", init_decoder=model)
    options = {"tokenizer": PairTokenizer(source.tokenizer), "vocabulary_size": None}
    with pytest.raises(InputError, match="its folder has a tokenizer"):
        begun(tmp_path / "run", init_decoder=lm, **options)
    messages: list[Summary] = []
    begun(
        tmp_path / "run",
        init_decoder=model,
        **options,
        callbacks=Callbacks(lambda summary, _: messages.append(summary)),
    )
    assert "of the source is unknown to the vocabulary" in str(messages[0])
    assert "| decoder initialized from | a language model |" in (tmp_path / "run" / "report.md").read_text()


def test_other_settings_are_possible_where_they_do_not_touch_the_shape(lm: Path, tmp_path: Path) -> None:
    begun(tmp_path / "run", init_decoder=lm, kind="attention", changes={"bidirectional": False, "score": "dot"})
    assert kinfolk.load(tmp_path / "run", device="cpu").model.config.hidden == 24
    with pytest.raises(ConfigError, match=r"kind=lstm .*gru, .*hidden=16 .*24"):
        begun(tmp_path / "other", init_decoder=lm, changes={"hidden": 16, "kind": "lstm", "tied": False})


@pytest.mark.parametrize(
    "asked", [{"vocabulary_size": 45}, {"vocabulary_kind": "bpe"}, {"joint": False}, {"joint": True}]
)
def test_a_vocabulary_cannot_be_asked_for_beside_one_that_is_given(
    asked: dict[str, Any], lm: Path, tmp_path: Path
) -> None:
    words = PairTokenizer(kinfolk.load(lm, device="cpu").tokenizer)
    with pytest.raises(InputError, match="vocabulary_size, vocabulary_kind, whole_numbers and joint"):
        begun(tmp_path / "run", **{"tokenizer": words, "vocabulary_size": None} | asked)
    with pytest.raises(InputError, match="joint"):
        begun(tmp_path / "run", init_decoder=lm, joint=True)
    assert not (tmp_path / "run").exists()


def test_what_cannot_begin_as_a_language_model_is_reported(lm: Path, tiny_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="recurrent language model"):
        begun(tmp_path / "run", init_decoder=lm, kind="transformer")
    with pytest.raises(InputError, match="recurrent language model"):
        begun(tmp_path / "run", init_decoder=tiny_bert)
    assert not (tmp_path / "run").exists()
