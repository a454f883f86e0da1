"""What every encoder of the registry promises, whatever is special about it. A new relative joins by being listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from relatives import Elsewhere, every_encoder, few, host_work, rows_through, some_lengths, tiny_model
from torch import Tensor
from torch.nn.functional import normalize

from kinfolk.checkpoints.folder import Checkpoint, read_checkpoint, write_checkpoint
from kinfolk.models.family import Family, Model
from kinfolk.nn.packed import pack
from kinfolk.nn.trace import Trace
from tiny import ragged

LENGTHS = st.lists(some_lengths, min_size=1, max_size=9)


def run(model: Model, ids: list[list[int]]) -> tuple[Tensor, list[Tensor]]:
    """Unit-length mean vectors (texts, width), and each text's token vectors."""
    tokens = pack(ids)
    with torch.inference_mode():
        hidden = model(tokens)
        return normalize(tokens.layout.mean(hidden), dim=-1), list(tokens.layout.split(hidden))


@every_encoder
@few
@given(lengths=LENGTHS, seed=st.integers(0, 99))
def test_a_text_has_the_same_vector_alone_and_in_any_company(family: Family, lengths: list[int], seed: int) -> None:
    model, (ids, _) = tiny_model(family), ragged(lengths, seed=seed)
    units, vectors = run(model, ids)
    for number, row in enumerate(ids):
        (unit,), (alone,) = run(model, [row])
        torch.testing.assert_close(units[number], unit, rtol=0, atol=1e-6)
        torch.testing.assert_close(vectors[number], alone, rtol=0, atol=1e-4)


@every_encoder
@few
@given(lengths=LENGTHS, shuffle=st.randoms(use_true_random=False))
def test_the_order_of_a_batch_is_irrelevant(family: Family, lengths: list[int], shuffle: Any) -> None:
    model, (ids, _) = tiny_model(family), ragged(lengths)
    order = list(range(len(ids)))
    shuffle.shuffle(order)
    units, vectors = run(model, ids)
    shuffled_units, shuffled_vectors = run(model, [ids[number] for number in order])
    torch.testing.assert_close(shuffled_units, units[order], rtol=0, atol=1e-6)
    torch.testing.assert_close(shuffled_vectors, [vectors[number] for number in order], rtol=0, atol=1e-4)


@every_encoder
def test_packed_equals_one_by_one_to_the_ninth_digit_in_float64(family: Family) -> None:
    model, (ids, segments) = tiny_model(family).double(), ragged((1, 30, 5, 6, 64, 5), pairs=True)
    segments = segments if model.config.segments > 1 else None
    with torch.no_grad():
        together = model(pack(ids, segments))
        alone = [model(pack([row], segments and [segments[number]])) for number, row in enumerate(ids)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-9)


@every_encoder
def test_a_trace_changes_nothing_and_depth_is_a_layer_of_it(family: Family) -> None:
    model, (ids, _) = tiny_model(family), ragged((1, 30, 5, 6, 5))
    tokens, trace = pack(ids), Trace()
    with torch.inference_mode():
        assert model(tokens, trace).equal(model(tokens))
        assert len(trace.packed) == model.config.layers + 1
        for layer, hidden in enumerate(trace.packed):
            assert model(tokens, depth=layer).equal(hidden)
    assert all(len(weights) == len(ids) for weights in trace.weights)


@every_encoder
def test_a_head_says_the_same_whether_or_not_all_of_the_last_layer_is_computed(family: Family) -> None:
    model, (ids, segments) = tiny_model(family).double(), ragged((1, 30, 5, 6, 5), pairs=True)
    tokens = pack(ids, segments if model.config.segments > 1 else None)
    for name in model.heads:
        found = []
        for scores in (model.predict_head(name, tokens), model.scores(name, tokens, model(tokens))):
            scores.square().sum().backward()
            found.append([scores.detach(), *(weight.grad for weight in model.parameters() if weight.grad is not None)])
            model.zero_grad()
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@every_encoder
def test_saving_and_loading_is_exact(family: Family, tmp_path: Path) -> None:
    sets = [[], *([name] for name in family.heads)]
    sets += [["masked_lm", name] for name in ("next_sentence", "sentence_order") if name in family.heads]
    for number, heads in enumerate(sets):
        model = tiny_model(family, heads, seed=number)
        write_checkpoint(tmp_path / str(number), Checkpoint(model, {"id2label": {"0": "a", "1": "b", "2": "c"}}))
        found = read_checkpoint(tmp_path / str(number))
        assert (found.model.config, list(found.model.heads)) == (model.config, heads)
        assert found.hf_config["id2label"] == {"0": "a", "1": "b", "2": "c"}
        before, after = model.state_dict(), found.model.state_dict()
        assert before.keys() == after.keys()
        assert all(tensor.equal(after[name]) for name, tensor in before.items())


@every_encoder
def test_every_weight_learns_from_a_loss_over_all_outputs(family: Family) -> None:
    model, (ids, segments) = tiny_model(family).train(), ragged((1, 30, 5, 6, 5), pairs=True)
    tokens = pack(ids, segments if model.config.segments > 1 else None)
    hidden = model(tokens)
    outputs = [hidden, *(model.scores(name, tokens, hidden) for name in model.heads)]
    outputs += [
        head.crf.log_partition(model.scores(name, tokens, hidden), tokens.layout)
        for name, head in model.heads.items()
        if hasattr(head, "crf")
    ]
    if getattr(model.body, "pooler", None) is not None:
        outputs.append(model.body.pooler(tokens.layout.first(hidden)))
    torch.stack([output.square().mean() for output in outputs]).sum().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


@every_encoder
def test_everything_is_created_on_the_device_of_the_layout(family: Family) -> None:
    model, (ids, segments) = tiny_model(family).to("meta"), ragged((1, 30, 5, 6, 5, 7), pairs=True)
    with Elsewhere() as elsewhere:
        tokens = pack(ids, segments if model.config.segments > 1 else None, device="meta")
        hidden = model(tokens, Trace())
        for pool in ("mean", "max", "first", "last", "pad"):
            getattr(tokens.layout, pool)(hidden)
        for name, head in model.heads.items():
            scores = model.scores(name, tokens, hidden)
            if hasattr(head, "crf"):
                head.crf.decode(scores, tokens.layout)
                head.crf.marginals(scores, tokens.layout)
    assert hidden.device.type == "meta"
    assert set(elsewhere.found) <= host_work(model)


@every_encoder
def test_a_ragged_batch_costs_its_own_tokens_and_no_padding(family: Family) -> None:
    model, (ids, _) = tiny_model(family, []), ragged((1, 60, 5, 6, 33, 5))
    seen = rows_through(model.body)
    with torch.inference_mode():
        model(pack(ids))
    assert {rows for _, rows in seen} == {sum(map(len, ids))}
