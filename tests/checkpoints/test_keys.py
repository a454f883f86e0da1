"""Tensor names in both directions from one table."""

from __future__ import annotations

import pytest
import torch

from kinfolk.checkpoints.weights import TensorSource, divide, modern_names, sources, translate
from kinfolk.models.family import Family, Model, Source, all_families
from support.tiny import randomise

TABLE = {
    "stack.blocks.{}.attention": "layer.{}.attention",
    "stack.blocks.{}.attention.output": "layer.{}.out",
    "stack.blocks.{}.qkv": Source(("layer.{}.q", "layer.{}.k", "layer.{}.v")),
    "bias": "cls.bias",
}


def test_the_longest_entry_wins_and_the_rest_is_kept() -> None:
    assert translate("stack.blocks.11.attention.output.weight", TABLE) == Source(("layer.11.out.weight",))
    assert translate("stack.blocks.2.attention.norm.bias", TABLE) == Source(("layer.2.attention.norm.bias",))
    assert translate("bias", TABLE) == Source(("cls.bias",))


def test_an_entry_ends_at_a_dot() -> None:
    with pytest.raises(AssertionError, match="biases"):
        translate("biases", TABLE)


def test_joined_tensors_are_stacked_and_cut_again() -> None:
    source = translate("stack.blocks.0.qkv.weight", TABLE)
    parts = [torch.full((2, 3), float(index)) for index in range(3)]
    joined = source.join(parts)
    assert joined[:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    divided = source.divide(joined)
    assert list(divided) == ["layer.0.q.weight", "layer.0.k.weight", "layer.0.v.weight"]
    assert all(part.equal(result) for part, result in zip(parts, divided.values(), strict=True))


def test_old_names_of_norms_are_made_new() -> None:
    tensors = TensorSource.of({name: torch.ones(2) for name in ("LayerNorm.gamma", "LayerNorm.beta", "gamma.bias")}, "")
    assert list(modern_names(tensors).names()) == ["LayerNorm.weight", "LayerNorm.bias", "gamma.bias"]
    assert modern_names(tensors).read("LayerNorm.weight").tolist() == [1, 1]


@pytest.mark.parametrize(
    "family", [family for family in all_families() if not family.is_conditional], ids=lambda family: family.name
)
def test_no_two_of_our_tensors_take_the_same_public_name(family: Family) -> None:
    """Classifiers of all kinds aside: they share a name, and no checkpoint has two of them."""
    sizes = {"vocabulary_size": 12, "width": 8, "positions": 8, "layers": 12}
    sizes |= {"heads": 2, "inner_width": 8} if hasattr(family.config, "heads") else {}
    classifiers = ("classify", "tag", "tag_crf", "choose")
    for kept in classifiers:
        heads = {name: 2 for name in family.heads if name == kept or name not in classifiers}
        pooler = any(name.startswith("pooler") for name in family.body_keys(family.config.make(**sizes)))
        model = Model(family, family.config.make(**sizes), heads, pooler)
        if "masked_lm" in heads:
            model.heads["masked_lm"].untie()
        state = randomise(model).state_dict()
        origins = sources(family, model.config, state, f"{family.prefix}.")
        public = divide(state, origins)
        assert len(public) == sum(len(source.names) for source in origins.values())
        assert sum(tensor.numel() for tensor in public.values()) == sum(tensor.numel() for tensor in state.values())
        again = {name: source.join([public[theirs] for theirs in source.names]) for name, source in origins.items()}
        assert all(tensor.equal(again[name]) for name, tensor in state.items())


def test_a_transposed_matrix_goes_there_and_back_and_its_bias_stays() -> None:
    keys = {"": "", "up": Source(("c_fc",), transposed=True)}
    state = {"up.weight": torch.arange(6.0).view(2, 3), "up.bias": torch.arange(2.0), "norm": torch.ones(2)}
    located = {name: translate(name, keys) for name in state}
    public = divide(state, located)
    assert public["c_fc.weight"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert (public["c_fc.bias"].tolist(), public["norm"].tolist()) == ([0, 1], [1, 1])
    for name, source in located.items():
        assert source.join([public[theirs] for theirs in source.names]).equal(state[name])
