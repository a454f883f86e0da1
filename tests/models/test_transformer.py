"""The Transformer against torch's own modules, in the paper's form and with the norm first; and what the paper says."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kinfolk.errors import ConfigError
from kinfolk.models.family import Model, count_parameters, init_model
from kinfolk.models.family import family as family_of
from kinfolk.models.family import preset as preset_of
from kinfolk.models.transformer import TransformerConfig
from kinfolk.nn.embeddings import sinusoids
from kinfolk.nn.packed import Tokens, pack
from kinfolk.objectives.translation import Translate, pair_sample
from kinfolk.training.distributed import world
from kinfolk.training.settings import TrainSettings
from kinfolk.training.step import TrainStep
from support.tiny import SOURCES, TARGETS, close, our_transformer, pairs, rows
from support.tiny import TRANSFORMER_SIZES as SIZES
from support.tiny import TRANSFORMERS as VARIANTS

PAIRS = [([3, 4, 5, 2], [7, 6, 2]), ([5, 3, 2], [8, 9, 10, 2]), ([4, 2], [11, 2])]  # sources and their targets


def torch_s_modules(ours: Model) -> tuple[nn.TransformerEncoder, nn.TransformerDecoder]:
    """torch's encoder and decoder with our weights."""
    config, first = ours.config, ours.config.norm == "pre"
    settings: dict[str, Any] = {
        "d_model": config.width, "nhead": config.heads, "dim_feedforward": config.inner_width, "batch_first": True,
        "norm_first": first, "dtype": torch.float64,
    }  # fmt: skip

    def norm() -> nn.Module | None:
        return nn.LayerNorm(config.width, dtype=torch.float64) if first else None

    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**settings), config.encoder_layers, norm(), enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**settings), config.decoder_layers, norm())
    state = ours.body.state_dict()

    def taken(side: str, theirs: str) -> Tensor:
        if theirs.startswith("norm."):
            return state[f"{side}.final_{theirs}"]
        _, number, part = theirs.split(".", 2)
        mine = f"{side}.blocks.{number}."
        if part.startswith("multihead_attn.in_proj"):
            return torch.cat([state[f"{mine}cross.{name}.{part[23:]}"] for name in ("queries", "keys_values")])
        norms = ["attention_norm", *(["cross_norm"] if side == "decoder" else []), "feed_forward_norm"]
        names = {f"norm{index}": name for index, name in enumerate(norms, 1)} | {
            "self_attn.in_proj_": "attention.qkv.", "self_attn.out_proj": "attention.output",
            "multihead_attn.out_proj": "cross.output", "linear1": "feed_forward.up",
            "linear2": "feed_forward.down",
        }  # fmt: skip
        layer = next(name for name in names if part.startswith(name))
        return state[mine + part.replace(layer, names[layer])]

    for side, module in (("encoder", encoder), ("decoder", decoder)):
        module.load_state_dict({name: taken(side, name) for name in module.state_dict()})
    return encoder.eval(), decoder.eval()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_both_sides_equal_torch_s_modules(norm: str) -> None:
    ours, (source, target) = our_transformer(norm=norm), pairs()
    encoder, decoder = torch_s_modules(ours)

    def embedded(tokens: Tokens) -> Tensor:
        positions = sinusoids(80, 16, "interleaved").double()[tokens.layout.positions]
        return tokens.layout.pad(ours.body.source_table(tokens.ids) * math.sqrt(16) + positions)

    holes = ~source.layout.pad(torch.ones_like(source.ids)).bool()
    longest = max(TARGETS)
    future = torch.ones(longest, longest, dtype=torch.bool).triu(1)
    with torch.no_grad():
        read = encoder(embedded(source), src_key_padding_mask=holes)
        close(ours.body.encode(source), source.layout.unpad(read))
        written = decoder(embedded(target), read, tgt_mask=future, memory_key_padding_mask=holes)
        close(ours(source, target), target.layout.unpad(written))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pair_has_the_same_vectors_alone_and_in_any_company(variant: str) -> None:
    model, (source, target) = our_transformer(**VARIANTS[variant]), pairs()
    with torch.no_grad():
        together = target.layout.split(model(source, target))
        for index, (one, other) in enumerate(zip(rows(SOURCES), rows(TARGETS, seed=1), strict=True)):
            close(together[index], model(pack([one]), pack([other])))
    assert model.vocabulary_scores(together[0]).shape == (TARGETS[0], model.config.target_vocabulary)


def test_a_token_does_not_see_what_comes_after_it() -> None:
    model, source = our_transformer(), pack(rows((5,)))
    with torch.no_grad():
        one, other = (model(source, pack([[3, 4, 5, last]])) for last in (6, 7))
    assert one[:3].equal(other[:3])
    assert not one[3].equal(other[3])


def test_presets_have_the_papers_sizes() -> None:
    family = family_of("kinfolk-transformer")
    counts = {name: count_parameters(family, preset.config) for name, preset in family.presets.items()}
    assert counts == {"transformer-base": 63_082_496, "transformer-big": 214_245_376, "transformer-small": 7_577_600,
        "transformer-tiny": 1_181_696}  # fmt: skip
    for name, published in {"transformer-base": 65e6, "transformer-big": 213e6}.items():
        assert counts[name] == pytest.approx(published, rel=0.04)  # the paper does not say how large its table is


def test_a_fresh_model_starts_as_it_should_and_the_same_each_time() -> None:
    family = family_of("kinfolk-transformer")
    config = TransformerConfig.make(**SIZES | {"vocabulary_size": 400, "width": 64, "inner_width": 256})
    first, second, third = (init_model(family, config, seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(tensor.equal(second[name]) for name, tensor in first.items())
    assert not first["body.source_table.weight"].equal(third["body.source_table.weight"])
    assert 0.12 < float(first["body.source_table.weight"].std()) < 0.13  # 64 ** -0.5
    for part, plan in {"attention.qkv": 6 / 256, "cross.queries": 6 / 256, "feed_forward.up": 6 / 320}.items():
        largest = float(first[f"body.decoder.blocks.1.{part}.weight"].abs().max())
        assert 0.95 * math.sqrt(plan) < largest <= math.sqrt(plan)
    assert all(tensor.unique().tolist() == [0.0] for name, tensor in first.items() if name.endswith("bias"))


def test_every_weight_learns_and_stands_at_a_depth() -> None:
    model, (source, target) = our_transformer(norm="pre", shared_tables=False, output_bias=True).train(), pairs()
    model.vocabulary_scores(model(source, target)).square().mean().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []
    layer_ids = model.layer_ids()
    assert layer_ids.keys() == dict(model.named_parameters()).keys()
    expected = {
        "body.source_table.weight": 0, "body.target_table.weight": 0, "body.encoder.blocks.1.attention.qkv.bias": 2,
        "body.encoder.final_norm.bias": 2, "body.decoder.blocks.0.cross.output.bias": 3,
        "body.decoder.blocks.2.cross_norm.bias": 5,
        "body.decoder.final_norm.bias": 6, "heads.next_token.bias": 6,
    }  # fmt: skip
    assert {name: layer_ids[name] for name in expected} == expected


def test_a_small_model_learns_pairs_by_heart_and_writes_them() -> None:
    sizes = {"width": 32, "heads": 4, "inner_width": 64, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    model = init_model(family_of("kinfolk-transformer"), TransformerConfig.make(vocabulary_size=12, **sizes))
    items = [pair_sample(source, target, 0) for source, target in PAIRS]
    settings = TrainSettings().but(learning_rate=5e-3, weight_decay=0.0, betas=(0.9, 0.98))
    learner = TrainStep(model, Translate(start_id=1), settings, world())
    losses = [learner.step([items], factor=1.0).total for _ in range(40)]
    assert losses[-1] < losses[0] / 2
    state, ids, written = model.eval().start(pack([source for source, _ in PAIRS]), 1), torch.tensor([1, 1, 1]), []
    for _ in range(4):
        scores, state = model.step(ids, state)
        ids = scores.argmax(-1)
        written.append(ids)
    for result, (_, target) in zip(torch.stack(written, 1).tolist(), PAIRS, strict=True):
        assert result[: len(target)] == target


def test_everything_is_created_on_the_device_of_the_layout() -> None:
    model = our_transformer().to("meta")
    source, target = pack(rows(SOURCES), device="meta"), pack(rows(TARGETS), device="meta")
    assert model(source, target).device.type == "meta"
    state = model.start(source, 2)
    scores, state = model.step(torch.zeros(12, dtype=torch.long, device="meta"), state)
    assert scores.device.type == state.cache.slots.device.type == "meta"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "width "),
        ({"heads": 3}, "width 16 .*heads, 3"),
        ({"decoder_layers": 0}, "decoder_layers "),
        ({"encoder_layers": 1001}, "encoder_layers=1,001"),
        ({"norm": "both"}, "norm 'both' .*post, pre"),
        ({"sinusoid": "x"}, "sinusoid 'x' .*interleaved, halves"),
        ({"activation": "mish"}, "activation 'mish'"),
        ({"shared_tables": 1}, "shared_tables=1 "),
        ({"target_vocabulary_size": 31}, "30 source and 31 target"),
        ({"end_id": 30}, "end_id=30 .* 30"),
        ({"widht": 3}, 'TransformerConfig .*"widht"; .*"width"'),
    ],
)
def test_an_impossible_setting_is_refused_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TransformerConfig.make(**SIZES | settings)


def test_every_setting_is_saved_and_unknown_families_are_answered() -> None:
    assert set(TransformerConfig().to_hf()) == {item.name for item in dataclasses.fields(TransformerConfig)}
    with pytest.raises(ConfigError, match=r'"marain" .*"marian"'):
        family_of("marain")
    assert preset_of("transformer-small")[0].title == "Transformer"
