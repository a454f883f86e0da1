"""Recurrent sequence to sequence, with and without attention: training, stepping and searching agree."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kinfolk.errors import ConfigError
from kinfolk.generation.config import DecodingConstraints, Request
from kinfolk.generation.search import greedy
from kinfolk.models.attention_seq2seq import AttentionConfig
from kinfolk.models.family import count_parameters, init_model
from kinfolk.models.family import family as family_of
from kinfolk.models.family import preset as preset_of
from kinfolk.models.seq2seq import Seq2SeqConfig
from kinfolk.nn.packed import pack
from kinfolk.objectives.translation import Translate, pair_sample
from kinfolk.training.distributed import world
from kinfolk.training.settings import TrainSettings
from kinfolk.training.step import TrainStep
from support.tiny import RECURRENT_SIZES as SIZES
from support.tiny import RECURRENTS as VARIANTS
from support.tiny import SOURCES, TARGETS, close, our_seq2seq, pairs, rows, stepped, torch_weights

CPU = torch.device("cpu")
PAIRS = [([3, 4, 5, 2], [7, 6, 2]), ([5, 3, 2], [8, 9, 10, 2]), ([4, 2], [11, 2])]  # sources and their targets
every_variant = pytest.mark.parametrize("variant", VARIANTS)
FAMILIES = ("kinfolk-seq2seq", "kinfolk-attention")


def test_an_lstm_pair_equals_torch_s_own_modules() -> None:
    model, (source, target) = our_seq2seq(bidirectional=False), pairs()
    reader, writer = (nn.LSTM(8, 8, 2).double() for _ in range(2))
    reader.load_state_dict(torch_weights(model.body.encoder))
    writer.load_state_dict(torch_weights(model.body.decoder.stack))
    table = model.body.decoder.table
    with torch.no_grad():
        parts = target.layout.split(model(source, target))
        for index, (one, other) in enumerate(zip(rows(SOURCES), rows(TARGETS, seed=1), strict=True)):
            _, end = reader(table(torch.tensor(one)))
            written, _ = writer(table(torch.tensor(other)), end)
            close(parts[index], written)


def test_both_directions_start_the_decoder_through_a_projection_of_each_layer() -> None:
    model, source = our_seq2seq(), pack(rows(SOURCES))
    reader = nn.LSTM(8, 8, 2, bidirectional=True).double()
    reader.load_state_dict(torch_weights(model.body.encoder))
    assert model.body.bridge is not None
    with torch.no_grad():
        _, first = model.body.read(source)
        for index, row in enumerate(rows(SOURCES)):
            _, end = reader(model.body.decoder.table(torch.tensor(row)))
            for piece in range(2):  # h, c
                for layer in range(2):
                    both = torch.cat([end[piece][2 * layer], end[piece][2 * layer + 1]])
                    projection = model.body.bridge.layers[2 * piece + layer]
                    close(first[piece][layer, index], projection(both))


def test_the_dot_score_reads_both_directions_at_half_the_width() -> None:
    model, source = our_seq2seq(score="dot"), pack(rows(SOURCES))
    reader = nn.LSTM(8, 4, 2, bidirectional=True).double()
    reader.load_state_dict(torch_weights(model.body.encoder))
    with torch.no_grad():
        for number, vectors in enumerate(source.layout.split(model.body.encode(source))):
            close(vectors, reader(model.body.decoder.table(torch.tensor(rows(SOURCES)[number])))[0])


@pytest.mark.parametrize(
    ("settings", "widths"),
    [
        ({"score": "dot"}, (4, 8)),
        ({"score": "dot", "bidirectional": False}, (8, 8)),
        ({"score": "bilinear"}, (8, 16)),
        ({"score": "bilinear", "encoder_hidden": 3}, (3, 6)),
    ],
)
def test_the_encoder_is_as_wide_as_its_score_needs(settings: dict[str, Any], widths: tuple[int, int]) -> None:
    config = AttentionConfig.make(**SIZES | settings)
    assert (config.source_hidden, config.source_width) == widths
    assert AttentionConfig.from_hf(config.to_hf(), "config.json") == config


@every_variant
def test_the_loss_equals_a_loop_of_steps(variant: str) -> None:
    model, objective = our_seq2seq(**VARIANTS[variant]), Translate(start_id=1, smoothing=0.0)
    for index, (source, target) in enumerate(zip(rows(SOURCES), rows(TARGETS, seed=1), strict=True)):
        scores = stepped(model, pack([source]), torch.tensor([[1, *target[:-1]]]))[0]
        expected = F.cross_entropy(scores, torch.tensor(target), reduction="sum")
        batch = objective.prepare([pair_sample(source, target, index)], CPU)
        close(objective.losses(model, batch)["translate"].detach(), expected)


@every_variant
def test_a_pair_has_the_same_vectors_alone_and_in_any_company(variant: str) -> None:
    model, (source, target) = our_seq2seq(**VARIANTS[variant]), pairs()
    with torch.no_grad():
        together = target.layout.split(model(source, target))
        for index, (one, other) in enumerate(zip(rows(SOURCES), rows(TARGETS, seed=1), strict=True)):
            close(together[index], model(pack([one]), pack([other])))


@every_variant
def test_every_weight_learns_and_stands_at_a_depth(variant: str) -> None:
    model, (source, target) = our_seq2seq(**VARIANTS[variant]).train(), pairs()
    model.vocabulary_scores(model(source, target)).square().mean().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []
    layer_ids = model.layer_ids()
    assert layer_ids.keys() == dict(model.named_parameters()).keys()
    assert {depth for name, depth in layer_ids.items() if name.startswith("body.encoder.")} == {1, 2}
    assert {depth for name, depth in layer_ids.items() if name.startswith("body.decoder.stack.")} == {3, 4}
    assert {depth for name, depth in layer_ids.items() if name.startswith("body.bridge.")} <= {2}
    assert {depth for name, depth in layer_ids.items() if name.startswith(("body.look_back.", "heads."))} == {5}
    assert layer_ids["body.decoder.table.weight"] == layer_ids.get("body.source_table.weight", 0) == 0


@pytest.mark.parametrize("name", FAMILIES)
def test_a_fresh_model_learns_pairs_by_heart_and_writes_them(name: str) -> None:
    family = family_of(name)
    config = family.config.make(vocabulary_size=12, width=24, hidden=24, layers=1, dropout=0.0)
    first, second, third = (init_model(family, config, seed).state_dict() for seed in (3, 3, 4))
    assert all(tensor.equal(second[part]) for part, tensor in first.items())
    assert not first["body.encoder.cells.0.weight_hh_l0"].equal(third["body.encoder.cells.0.weight_hh_l0"])
    assert (
        first["body.encoder.cells.0.bias_ih_l0"].tolist() == [0.0] * 24 + [1.0] * 24 + [0.0] * 48
    )  # forget gates are open
    model = init_model(family, config)
    items = [pair_sample(source, target, 0) for source, target in PAIRS]
    settings = TrainSettings().but(learning_rate=2e-2, weight_decay=0.0)
    learner = TrainStep(model, Translate(start_id=1), settings, world())
    for _ in range(40):
        learner.step([items], factor=1.0)
    request = Request(pack([source for source, _ in PAIRS]), 1, [5] * 3, DecodingConstraints(end=2))
    assert [text.ids for text in greedy(model.eval(), request)] == [target[:-1] for _, target in PAIRS]


def test_presets_have_the_sizes_of_the_papers() -> None:
    counts = {}
    for name in ("seq2seq-small", "seq2seq-base", "attention-small", "attention-base"):
        family, preset = preset_of(name)
        counts[name] = count_parameters(family, preset.config)
    assert counts["seq2seq-base"] == pytest.approx(384e6, rel=0.001)  # Sutskever et al. 2014, section 3.4
    assert counts == {
        "seq2seq-small": 6_263_616, "seq2seq-base": 384_144_000, "attention-small": 6_591_552,
        "attention-base": 217_115_000,
    }  # fmt: skip


@pytest.mark.parametrize("variant", ["lstm, both ways", "gru reset before, both ways", "additive, lstm, own tables"])
def test_everything_is_created_on_the_device_of_the_layout(variant: str) -> None:
    model = our_seq2seq(**VARIANTS[variant]).to("meta")
    source, target = pack([*rows(SOURCES[1:]), []], device="meta"), pack(rows(TARGETS), device="meta")
    assert model(source, target).device.type == "meta"
    scores, state = model.step(torch.zeros(12, dtype=torch.long, device="meta"), model.start(source, 2))
    assert scores.device.type == state.memory[0].device.type == "meta"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "mgu"}, "kind 'mgu' .*rnn, lstm, gru, gru_reset_before"),
        ({"hidden": 0}, "hidden "),
        ({"layers": 1001}, "layers=1,001"),
        ({"positions": 0}, "positions "),
        ({"tied": 1}, "tied=1 "),
        ({"hidden": 6}, "tied: .*width 8 .*width 6"),
        ({"target_vocabulary_size": 31}, "30 source and 31 target"),
        ({"score": "cosine"}, "score 'cosine' .*dot, bilinear, additive"),
        ({"score": "dot", "encoder_hidden": 8}, "score dot .* 8 and 16; .*bilinear"),
        ({"score": "dot", "width": 9, "hidden": 9}, "score dot .* 9 and 8; .*bilinear"),
        ({"scroe": "dot"}, 'AttentionConfig .*"scroe"; .*"score"'),
    ],
)
def test_an_impossible_setting_is_refused_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AttentionConfig.make(**SIZES | settings)


@pytest.mark.parametrize("config", [Seq2SeqConfig, AttentionConfig])
def test_every_setting_is_saved(config: type[Seq2SeqConfig]) -> None:
    assert set(config().to_hf()) == {item.name for item in dataclasses.fields(config)}
