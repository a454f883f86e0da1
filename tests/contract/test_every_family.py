"""What every relative of the registry promises, whatever is special about it. A new one joins by being listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from relatives import (
    GENERATING,
    Elsewhere,
    every_encoder,
    every_family,
    few,
    host_work,
    rows_through,
    some_lengths,
    tiny_config,
    tiny_model,
)
from torch import Tensor
from torch.nn.functional import normalize

from kinfolk.checkpoints.folder import TextModel, read_checkpoint, write_checkpoint
from kinfolk.models.family import Family, Model, count_parameters, init_model
from kinfolk.nn.packed import Tokens, pack
from kinfolk.nn.trace import PairTrace, Trace
from support.tiny import close, ragged

LENGTHS = st.lists(st.tuples(some_lengths, some_lengths), min_size=1, max_size=9)
MIXED = ((7, 1), (2, 30), (1, 5), (60, 6), (3, 60), (7, 5))  # lengths of targets (or texts) and of sources
Rows = list[tuple[list[int], ...]]


def some_rows(family: Family, lengths: Any = MIXED, seed: int = 0) -> Rows:
    """Random texts as (text,), or pairs as (source, target) for a conditional family."""
    texts, sources = (ragged(side, seed=seed + shift)[0] for shift, side in enumerate(zip(*lengths, strict=True)))
    return list(zip(sources, texts, strict=True)) if family.is_conditional else [(text,) for text in texts]


def packed(rows: Rows, device: str = "cpu") -> list[Tokens]:
    return [pack(list(side), device=device) for side in zip(*rows, strict=True)]


def run(model: Model, rows: Rows) -> tuple[Tensor, list[Tensor]]:
    """Unit-length mean vectors (rows, width), and the token vectors of each text or target."""
    inputs = packed(rows)
    layout = inputs[-1].layout
    with torch.inference_mode():
        hidden = model(*inputs)
        return normalize(layout.mean(hidden), dim=-1), list(layout.split(hidden))


def a_trace(family: Family) -> Trace | PairTrace:
    return PairTrace() if family.is_conditional else Trace()


@every_family
@few
@given(lengths=LENGTHS, seed=st.integers(0, 99))
def test_packed_equals_alone(family: Family, lengths: Any, seed: int) -> None:
    model, rows = tiny_model(family), some_rows(family, lengths, seed)
    units, vectors = run(model, rows)
    for index, row in enumerate(rows):
        (unit,), (alone,) = run(model, [row])
        torch.testing.assert_close(units[index], unit, rtol=0, atol=1e-6)
        torch.testing.assert_close(vectors[index], alone, rtol=0, atol=1e-4)


@every_family
def test_what_inference_computes_sooner_is_what_training_computes(family: Family) -> None:
    """If this fails, a fast way leaves something out: `_is_plain` in nn/blocks.py says what blocks it is for."""
    model = tiny_model(family)
    for rows in (some_rows(family), some_rows(family, [(5, 5)] * 4), some_rows(family, [(7, 3)])):
        inputs = packed(rows)
        plain = model(*inputs).detach()
        with torch.inference_mode():
            torch.testing.assert_close(model(*inputs), plain, rtol=0, atol=1e-5)


@every_family
def test_packed_equals_alone_to_the_ninth_digit_in_float64(family: Family) -> None:
    model, rows = tiny_model(family).double(), some_rows(family)
    for together, row in zip(run(model, rows)[1], rows, strict=True):
        close(together, run(model, [row])[1][0])


@every_encoder
def test_pairs_of_texts_with_segments_are_packed_as_well(family: Family) -> None:
    model, (ids, segments) = tiny_model(family).double(), ragged((1, 30, 5, 6, 64, 5), pairs=True)
    segments = segments if model.config.segments > 1 else None
    with torch.no_grad():
        together = model(pack(ids, segments))
        alone = [model(pack([row], segments and [segments[index]])) for index, row in enumerate(ids)]
    close(together, torch.cat(alone))


@every_family
@few
@given(lengths=LENGTHS, shuffle=st.randoms(use_true_random=False))
def test_the_order_of_a_batch_does_not_matter(family: Family, lengths: Any, shuffle: Any) -> None:
    model, rows = tiny_model(family), some_rows(family, lengths)
    order = list(range(len(rows)))
    shuffle.shuffle(order)
    units, vectors = run(model, rows)
    shuffled = run(model, [rows[index] for index in order])
    torch.testing.assert_close(shuffled[0], units[order], rtol=0, atol=1e-6)
    torch.testing.assert_close(shuffled[1], [vectors[index] for index in order], rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", GENERATING, ids=lambda family: family.name)
def test_what_generates_ignores_the_future(family: Family) -> None:
    model, rows = tiny_model(family).double(), some_rows(family)
    cut = [(*row[:-1], row[-1][: (len(row[-1]) + 1) // 2]) for row in rows]
    for whole, part in zip(run(model, rows)[1], run(model, cut)[1], strict=True):
        close(whole[: len(part)], part)


@pytest.mark.parametrize("family", GENERATING, ids=lambda family: family.name)
@pytest.mark.parametrize("beams", [1, 3])
def test_cached_steps_equal_teacher_forcing(family: Family, beams: int) -> None:
    model, ids = tiny_model(family, ["next_token"]).double(), torch.arange(3, 3 + 5 * 2 * beams).view(2 * beams, 5) % 40
    prompts = [[5, 6, 7], [8]]
    repeated = [row for row in prompts for _ in range(beams)]
    state, steps = model.start(pack(prompts), beams), []
    for column in ids.unbind(1):
        scores, state = model.step(column, state)
        steps.append(scores)
    with torch.no_grad():
        if family.is_conditional:
            hidden = model(pack(repeated), pack(ids.tolist())).view(2 * beams, 5, -1)
        else:
            texts = [[*row, *rest] for row, rest in zip(repeated, ids.tolist(), strict=True)]
            tokens = pack(texts)
            hidden = torch.stack([vectors[-5:] for vectors in tokens.layout.split(model(tokens))])
        expected = model.vocabulary_scores(hidden.flatten(0, 1)).view(2 * beams, 5, -1)
    close(torch.stack(steps, 1), expected)


@every_family
def test_a_trace_changes_nothing_and_has_every_layer(family: Family) -> None:
    model, trace, inputs = tiny_model(family), a_trace(family), packed(some_rows(family))
    with torch.inference_mode():
        assert model(*inputs, trace).equal(model(*inputs))
        if isinstance(trace, Trace):
            assert len(trace.packed) == model.config.layers + 1
            for layer, hidden in enumerate(trace.packed):
                assert model(*inputs, depth=layer).equal(hidden)
            assert all(len(weights) == len(MIXED) for weights in trace.weights)


@every_encoder
def test_every_head_reads_what_it_says(family: Family) -> None:
    model, (ids, segments) = tiny_model(family).double(), ragged((1, 30, 5, 6, 5), pairs=True)
    tokens = pack(ids, segments if model.config.segments > 1 else None)
    for name, head in model.heads.items():
        results = []
        for scores in (model.scores(name, tokens), model.scores(name, tokens, model(tokens))):
            assert len(scores) == (len(ids) if head.reads in ("first", "pooled", "last") else tokens.layout.tokens)
            scores.square().sum().backward()
            gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
            results.append([scores.detach(), *gradients])
            model.zero_grad()
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@every_family
def test_saving_and_loading_is_the_identity(family: Family, tmp_path: Path) -> None:
    sets = [] if family.base_architecture is None else [[]]
    sets += [[name] for name in family.heads]
    sets += [list(family.pretraining_heads)] if family.pretraining_heads else []
    for index, heads in enumerate(sets):
        model = tiny_model(family, heads, seed=index)
        write_checkpoint(
            tmp_path / str(index), TextModel(model, hf_config={"id2label": {"0": "a", "1": "b", "2": "c"}})
        )
        loaded = read_checkpoint(tmp_path / str(index))
        assert (loaded.model.config, list(loaded.model.heads)) == (model.config, heads)
        assert loaded.hf_config["id2label"] == {"0": "a", "1": "b", "2": "c"}
        before, after = model.state_dict(), loaded.model.state_dict()
        assert before.keys() == after.keys()
        assert all(tensor.equal(after[name]) for name, tensor in before.items())


@every_family
def test_settings_survive_the_way_to_public_names_and_back(family: Family) -> None:
    for config in (tiny_config(family), *(preset.config for preset in family.presets.values())):
        assert family.config.from_hf(config.to_hf(), "here") == config


@every_family
def test_parameters_are_counted_as_published(family: Family) -> None:
    for preset in family.presets.values():
        number, millions, _ = preset.published.partition("M")
        if millions and not preset.published.endswith("another"):
            counted = count_parameters(family, preset.config) / 1e6
            assert counted == pytest.approx(float(number), rel=0.06)


@every_family
def test_a_seed_decides_the_first_weights(family: Family) -> None:
    first, second, third = (init_model(family, tiny_config(family), seed).state_dict() for seed in (3, 3, 4))
    assert all(tensor.equal(second[name]) for name, tensor in first.items())
    assert not all(tensor.equal(third[name]) for name, tensor in first.items())


@every_family
def test_every_weight_learns_and_has_a_layer(family: Family) -> None:
    model, inputs = tiny_model(family).train(), packed(some_rows(family))
    tokens, hidden = inputs[-1], model(*inputs)
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
    assert model.layer_ids().keys() == dict(model.named_parameters()).keys()
    assert {0, model.body.depth} <= set(model.layer_ids().values()) <= set(range(model.body.depth + 2))


@every_family
def test_everything_is_created_on_the_device_of_the_layout(family: Family) -> None:
    model, rows = tiny_model(family).to("meta"), some_rows(family)
    with Elsewhere() as elsewhere:
        inputs = packed(rows, "meta")
        tokens, hidden = inputs[-1], model(*inputs, a_trace(family))
        for pool in ("mean", "max", "first", "last", "pad"):
            getattr(tokens.layout, pool)(hidden)
        for name, head in model.heads.items():
            scores = model.scores(name, tokens, hidden)
            if hasattr(head, "crf"):
                head.crf.decode(scores, tokens.layout)
                head.crf.marginals(scores, tokens.layout)
        if family in GENERATING:
            state, beams = model.start(inputs[0], beams=2), torch.arange(2 * len(rows), device="meta")
            for _ in range(2):
                scores, state = model.step(beams, state.reorder(beams))
            assert scores.device.type == "meta"
    assert hidden.device.type == "meta"
    assert set(elsewhere.found) <= host_work(model)


@every_family
def test_a_ragged_batch_costs_its_own_tokens_and_no_padding(family: Family) -> None:
    model, rows = tiny_model(family, list(family.default_heads)), some_rows(family)
    seen = rows_through(model.body)
    run(model, rows)
    tokens = {sum(map(len, side)) for side in zip(*rows, strict=True)}
    assert {count for name, count in seen if not name.startswith("bridge.")} == tokens
    assert {count for name, count in seen if name.startswith("bridge.")} <= {len(rows)}  # it reads a state a sentence
