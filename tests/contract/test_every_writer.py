"""What every model that turns a text into a text promises, whatever is special about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from relatives import Elsewhere, every_writer, few, host_work, rows_through, some_lengths, tiny_writer
from torch import Tensor
from torch.nn.functional import normalize

from kinfolk.checkpoints.folder import Checkpoint, read_checkpoint, write_checkpoint
from kinfolk.models.family import Family
from kinfolk.nn.packed import pack
from kinfolk.nn.trace import PairTrace
from tiny import ragged

Ids = list[list[int]]
LENGTHS = st.lists(st.tuples(some_lengths, some_lengths), min_size=1, max_size=9)
SOURCES, TARGETS = (1, 30, 5, 6, 64, 5), (7, 2, 1, 64, 3, 7)


def pairs(lengths: Any, seed: int = 0) -> tuple[Ids, Ids]:
    """Random sources and targets."""
    sources, targets = zip(*lengths, strict=True)
    return ragged(sources, seed=seed)[0], ragged(targets, seed=seed + 1)[0]


def run(model: Any, sources: Ids, targets: Ids) -> tuple[Tensor, list[Tensor]]:
    """Of each target, written for its source: the unit-length mean of its vectors, and the vectors."""
    target = pack(targets)
    with torch.inference_mode():
        hidden = model(pack(sources), target)
        return normalize(target.layout.mean(hidden), dim=-1), list(target.layout.split(hidden))


@every_writer
@few
@given(lengths=LENGTHS, seed=st.integers(0, 99))
def test_a_pair_has_the_same_vectors_alone_and_in_any_company(family: Family, lengths: Any, seed: int) -> None:
    model, (sources, targets) = tiny_writer(family), pairs(lengths, seed)
    units, vectors = run(model, sources, targets)
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        (unit,), (alone,) = run(model, [source], [target])
        torch.testing.assert_close(units[number], unit, rtol=0, atol=1e-6)
        torch.testing.assert_close(vectors[number], alone, rtol=0, atol=1e-4)


@every_writer
@few
@given(lengths=LENGTHS, shuffle=st.randoms(use_true_random=False))
def test_the_order_of_a_batch_is_irrelevant(family: Family, lengths: Any, shuffle: Any) -> None:
    model, (sources, targets) = tiny_writer(family), pairs(lengths)
    order = list(range(len(sources)))
    shuffle.shuffle(order)
    units, vectors = run(model, sources, targets)
    others = run(model, [sources[number] for number in order], [targets[number] for number in order])
    torch.testing.assert_close(others[0], units[order], rtol=0, atol=1e-6)
    torch.testing.assert_close(others[1], [vectors[number] for number in order], rtol=0, atol=1e-4)


@every_writer
def test_packed_equals_one_by_one_to_the_ninth_digit_in_float64(family: Family) -> None:
    model, (sources, targets) = tiny_writer(family).double(), pairs(zip(SOURCES, TARGETS, strict=True))
    _, together = run(model, sources, targets)
    alone = [run(model, [source], [target])[1][0] for source, target in zip(sources, targets, strict=True)]
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-9)


@every_writer
def test_a_trace_changes_nothing(family: Family) -> None:
    model, (sources, targets) = tiny_writer(family), pairs(zip(SOURCES, TARGETS, strict=True))
    source, target = pack(sources), pack(targets)
    with torch.inference_mode():
        assert model(source, target, PairTrace()).equal(model(source, target))


@every_writer
def test_saving_and_loading_is_exact(family: Family, tmp_path: Path) -> None:
    model = tiny_writer(family)
    write_checkpoint(tmp_path, Checkpoint(model, {"trained_length": [9, 9]}))
    found = read_checkpoint(tmp_path)
    assert found.model.config == model.config
    assert found.hf_config["trained_length"] == [9, 9]
    before, after = model.state_dict(), found.model.state_dict()
    assert before.keys() == after.keys()
    assert all(tensor.equal(after[name]) for name, tensor in before.items())


@every_writer
def test_every_weight_learns_from_a_loss_over_all_scores(family: Family) -> None:
    model, (sources, targets) = tiny_writer(family).train(), pairs(zip(SOURCES, TARGETS, strict=True))
    model.vocabulary_scores(model(pack(sources), pack(targets))).square().mean().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []
    assert all(weight.grad.isfinite().all() for weight in model.parameters())
    assert [name for name, weight in model.named_parameters() if not weight.grad.any()] == []


@every_writer
def test_everything_is_created_on_the_device_of_the_layout(family: Family) -> None:
    model, (sources, targets) = tiny_writer(family).to("meta"), pairs(zip(SOURCES, TARGETS, strict=True))
    rows = torch.arange(2 * len(sources), device="meta")
    with Elsewhere() as elsewhere:
        source, target = pack(sources, device="meta"), pack(targets, device="meta")
        scores = model.vocabulary_scores(model(source, target, PairTrace()))
        state = model.start(source, beams=2)
        for _ in range(2):
            stepped, state = model.step(rows, state.reorder(rows))
    assert scores.device.type == stepped.device.type == "meta"
    assert set(elsewhere.found) <= host_work(model)


@every_writer
def test_a_ragged_batch_costs_its_own_tokens_and_no_padding(family: Family) -> None:
    model, (sources, targets) = tiny_writer(family), pairs(zip(SOURCES, TARGETS, strict=True))
    seen = rows_through(model)
    run(model, sources, targets)
    tokens = {sum(SOURCES), sum(TARGETS)}
    assert {rows for name, rows in seen if not name.startswith("body.bridge.")} == tokens
    assert {rows for name, rows in seen if name.startswith("body.bridge.")} <= {
        len(SOURCES)
    }  # it reads a state a sentence
