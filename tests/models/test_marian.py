"""Marian against transformers: every layer, the scores, cached steps, attention weights; folders in both directions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from kinfolk.checkpoints.folder import TextModel, read_checkpoint, write_checkpoint
from kinfolk.errors import ConfigError
from kinfolk.models.family import family as family_of
from kinfolk.models.family import init_model
from kinfolk.models.marian import MarianConfig
from kinfolk.nn.packed import Tokens, pack
from kinfolk.nn.trace import PairTrace
from support.tiny import MARIANS, SOURCES, both_marians, close, pairs, rows, stepped, their_marian

every_marian = pytest.mark.parametrize("case", MARIANS)


def padded(theirs: Any, source: Tokens, target: Tokens) -> dict[str, Tensor]:
    """A pair of batches as the reference takes them."""
    pad = theirs.config.pad_token_id
    return {
        "input_ids": source.layout.pad(source.ids, fill=pad),
        "attention_mask": source.layout.pad(torch.ones_like(source.ids)),
        "decoder_input_ids": target.layout.pad(target.ids, fill=pad),
    }


@every_marian
def test_every_layer_weight_and_score_equals_the_reference(case: str, tmp_path: Path) -> None:
    theirs, ours = both_marians(tmp_path, **MARIANS[case])
    (source, target), trace = pairs(), PairTrace()
    inputs = padded(theirs, source, target)
    with torch.no_grad():
        scores = ours.vocabulary_scores(ours(source, target, trace))
        expected = theirs(**inputs, output_hidden_states=True, output_attentions=True)
    close(scores, target.layout.unpad(expected.logits))
    for actual, layers, layout in (
        (trace.source, expected.encoder_hidden_states, source.layout),
        (trace.target, expected.decoder_hidden_states, target.layout),
    ):
        assert len(actual.hidden) == len(layers)
        for ours_at, theirs_at in zip(actual.packed, layers, strict=True):
            close(ours_at, layout.unpad(theirs_at))
    for actual, layers in ((trace.target, expected.decoder_attentions), (trace.across, expected.cross_attentions)):
        for ours_at, theirs_at in zip(actual.weights, layers, strict=True):
            for index, weights in enumerate(ours_at):
                close(weights, theirs_at[index, :, : weights.shape[1], : weights.shape[2]])


@every_marian
def test_cached_steps_equal_the_reference_s(case: str, tmp_path: Path) -> None:
    theirs, ours = both_marians(tmp_path, **MARIANS[case])
    source = pack(rows(SOURCES))
    written = torch.tensor(rows((6,) * len(SOURCES), seed=3))
    result, past = stepped(ours, source, written), None
    inputs = padded(theirs, source, source)
    with torch.no_grad():
        read = theirs.model.encoder(inputs["input_ids"], inputs["attention_mask"])
        for index in range(6):
            output = theirs(
                attention_mask=inputs["attention_mask"],
                encoder_outputs=read,
                decoder_input_ids=written[:, index : index + 1],
                past_key_values=past,
                use_cache=True,
            )
            past = output.past_key_values
            close(result[:, index], output.logits[:, 0])


@every_marian
def test_the_reference_reads_what_we_write(case: str, tmp_path: Path) -> None:
    _, ours = both_marians(tmp_path / "theirs", **MARIANS[case])
    read = read_checkpoint(tmp_path / "theirs")
    write_checkpoint(tmp_path / "ours", read)
    theirs, report = transformers.MarianMTModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    source, target = pairs()
    with torch.no_grad():
        expected = theirs.double().eval()(**padded(theirs, source, target)).logits
        close(ours.vocabulary_scores(ours(source, target)), target.layout.unpad(expected))
    again = read_checkpoint(tmp_path / "ours")
    assert again.model.config == read.model.config
    before, after = read.model.state_dict(), again.model.state_dict()
    assert before.keys() == after.keys()
    assert all(tensor.equal(after[name]) for name, tensor in before.items())


def test_a_fresh_model_is_one_that_the_reference_can_translate_with(tmp_path: Path) -> None:
    config = MarianConfig.make(vocabulary_size=30, pad_id=29, start_id=29, end_id=5, width=16, heads=4, inner_width=24)
    write_checkpoint(tmp_path, TextModel(init_model(family_of("marian"), config)))
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert type(theirs) is transformers.MarianMTModel
    settings = theirs.generation_config
    assert (settings.num_beams, settings.max_length, settings.bad_words_ids) == (4, 512, [[29]])
    assert (settings.decoder_start_token_id, settings.eos_token_id, settings.forced_eos_token_id) == (29, 5, 5)
    written = theirs.generate(torch.tensor([[7, 8, 5]]), max_length=6)
    assert written[0, 0] == 29
    assert 29 not in written[0, 1:]


def test_our_greedy_choices_equal_the_reference_s(tmp_path: Path) -> None:
    theirs, ours = both_marians(tmp_path)
    ids, written = torch.tensor([29]), []
    state = ours.start(pack([[7, 8, 9]]), 1)
    for _ in range(10):
        scores, state = ours.step(ids, state)
        ids = scores.argmax(-1)
        written.append(int(ids))
    settings = {"max_new_tokens": 10, "num_beams": 1, "do_sample": False, "eos_token_id": None}
    theirs.generation_config.forced_eos_token_id = theirs.config.forced_eos_token_id = None
    assert theirs.generate(torch.tensor([[7, 8, 9]]), **settings)[0].tolist() == [29, *written]


def test_a_setting_left_out_means_what_it_means_to_the_reference() -> None:
    theirs = transformers.MarianConfig().to_dict()
    assert MarianConfig.from_hf({}, "here") == MarianConfig.from_hf(theirs, "here")


def test_public_settings_survive_the_way_there_and_back() -> None:
    for config in (
        MarianConfig(),
        MarianConfig(shared_tables=False, target_vocabulary_size=60_000, activation="relu", inner_dropout=0.2),
    ):
        theirs = transformers.MarianConfig(**config.to_hf())
        assert (theirs.decoder_ffn_dim, theirs.decoder_attention_heads) == (2048, 8)
        assert MarianConfig.from_hf(theirs.to_dict(), "here") == config


@pytest.mark.parametrize(
    ("public", "message"),
    [
        ({"decoder_ffn_dim": 12}, "here: encoder_ffn_dim=4096 .*decoder_ffn_dim=12"),
        ({"tie_word_embeddings": False}, "here: tie_word_embeddings='False'"),
        ({"decoder_vocab_size": 7}, "here: pad_id=58,100 .* 7"),
        ({"d_modell": 3}, 'here: .*"d_modell"; .*"d_model"'),
        ({"eos_token_id": [0]}, r"here: eos_token_id=\[0\]"),
    ],
)
def test_a_public_setting_we_cannot_follow_is_refused(public: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MarianConfig.from_hf(public, "here")


def test_what_marian_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"norm .*'post' .*TransformerConfig"):
        MarianConfig.make(norm="pre")


def test_random_marians_keep_their_sinusoids() -> None:
    assert their_marian().model.encoder.embed_positions.weight[0, :8].tolist() == [0.0] * 8
