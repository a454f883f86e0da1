"""What each relative says of itself in its file: the departures from BERT, tried."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kinfolk.models.family import Family, Model, count_parameters, family, init_model
from kinfolk.nn.heads import TextHead
from kinfolk.nn.packed import pack
from support.tiny import randomise

SIZES = {"vocabulary_size": 20, "width": 8, "layers": 2, "heads": 2, "inner_width": 12, "positions": 12}
IDS = [[5, 6, 7, 8], [9]]
BERTS = ("bert", "roberta", "albert", "distilbert", "mpnet")


def tiny(name: str, **settings: Any) -> Model:
    relative = family(name)
    config = relative.config.make(**(SIZES | settings))
    pooler = any(key.startswith("pooler") for key in relative.keys)
    return randomise(Model(relative, config, {}, pooler)).eval()


def changed(model: Model, weight: torch.Tensor, rows: Any) -> bool:
    """Does the model's output depend on these rows of a table?"""
    with torch.no_grad():
        before = model(pack(IDS))
        weight[rows] += 1.0
        return not model(pack(IDS)).equal(before)


def test_bert_reads_positions_from_the_first_row_and_tells_segments_apart() -> None:
    model = tiny("bert")
    assert not changed(model, model.body.embeddings.positions.weight, slice(4, None))
    assert changed(model, model.body.embeddings.positions.weight, 0)
    with torch.no_grad():
        assert not model(pack([[5, 6]], [[0, 1]])).equal(model(pack([[5, 6]])))


@pytest.mark.parametrize("name", ["roberta", "mpnet"])
def test_roberta_and_mpnet_never_read_the_first_two_positions(name: str) -> None:
    model = tiny(name)
    assert model.config.context == 10
    assert not changed(model, model.body.embeddings.positions.weight, slice(0, 2))
    assert changed(model, model.body.embeddings.positions.weight, 2)


def test_depth_costs_albert_no_weights() -> None:
    config = family("albert").config
    counts = [count_parameters(family("albert"), config.make(layers=layers)) for layers in (1, 12, 24)]
    assert len(set(counts)) == 1
    assert count_parameters(family("albert"), config.make(groups=2)) > counts[0]


def test_the_vocabulary_costs_albert_little() -> None:
    def per_word(name: str) -> int:
        sizes = ({"vocabulary_size": 1000}, {"vocabulary_size": 1001})
        few, more = (count_parameters(family(name), family(name).config.make(**size)) for size in sizes)
        return more - few

    assert (per_word("bert"), per_word("albert")) == (768, 128)


def test_alberts_layers_share_weights_by_groups() -> None:
    model = tiny("albert", layers=4, groups=2, embedding_width=3)
    blocks = [model.body.stack.block(layer) for layer in range(4)]
    assert blocks[0] is blocks[1]
    assert blocks[2] is blocks[3]
    assert blocks[0] is not blocks[2]


def test_distilbert_has_neither_pooler_nor_segments_and_half_of_berts_layers() -> None:
    model = tiny("distilbert")
    assert model.body.pooler is None
    assert model.body.embeddings.segments is None
    assert 2 * family("distilbert").config().layers == family("bert").config().layers


def test_mpnet_feels_distances_by_one_table_for_all_layers() -> None:
    model = tiny("mpnet")
    tables = [name for name, _ in model.named_parameters() if "bias.table" in name]
    assert tables == ["body.bias.table.weight"]
    assert changed(model, model.body.bias.table.weight, 1)


@pytest.mark.parametrize("layers", [2, 8])
def test_gpt2_starts_smaller_what_goes_into_the_residual_sum(layers: int) -> None:
    gpt2 = family("gpt2")
    config = gpt2.config.make(**SIZES | {"width": 64, "inner_width": 256, "layers": layers})
    for block in init_model(gpt2, config, seed=3).body.stack.blocks:
        for projection in (block.attention.output, block.feed_forward.down):
            assert projection.weight.std().item() == pytest.approx(0.02 / (2 * layers) ** 0.5, rel=0.05)
        for projection in (block.attention.qkv, block.feed_forward.up):
            assert projection.weight.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("family", [family(name) for name in BERTS], ids=lambda family: family.name)
def test_text_heads_carry_a_dense_layer_where_there_is_no_trained_pooler(family: Family) -> None:
    head = family.heads["classify"].build(family.config.make(**SIZES), 3)
    assert isinstance(head, TextHead)
    assert (head.dense is None) == (head.reads == "pooled") == (family.name in ("bert", "albert"))
