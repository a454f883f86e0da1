"""The loss of translation: shifted targets, both sides packed, equal to a loop of steps and to the reference's."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from kinfolk.nn.packed import pack
from kinfolk.objectives.translation import Translate, pair_sample
from support.tiny import SOURCES, TARGETS, both_marians, close, our_transformer, rows, stepped

CPU = torch.device("cpu")
ITEMS = [
    pair_sample(source, target, index)
    for index, (source, target) in enumerate(zip(rows(SOURCES), rows(TARGETS, seed=1), strict=True))
]


def test_targets_are_read_shifted_behind_the_start_token() -> None:
    items = [pair_sample([5, 6], [7, 8, 2], 4), pair_sample([9], [2], 1)]
    batch = Translate(start_id=1).prepare(items, CPU)
    assert [len(item) for item in items] == [5, 2]
    assert batch.tokens.ids.tolist() == [5, 6, 9]
    assert batch.tokens.layout.lengths == (2, 1)
    assert batch.targets.tolist() == [7, 8, 2, 2]
    assert batch.shifted.ids.tolist() == [1, 7, 8, 1]
    assert batch.shifted.layout.lengths == (3, 1)
    assert batch.counts == {"translate": 4.0}


def test_the_loss_is_torch_s_over_all_scores() -> None:
    model, objective = our_transformer(), Translate(start_id=1, smoothing=0.1)
    batch = objective.prepare(ITEMS, CPU)
    scores = objective.scores(model, batch)
    expected = F.cross_entropy(scores, batch.targets, reduction="sum", label_smoothing=0.1)
    close(objective.losses(model, batch)["translate"], expected)


def test_losses_add_whatever_the_batches() -> None:
    model, objective = our_transformer(), Translate(start_id=1)
    together = objective.losses(model, objective.prepare(ITEMS, CPU))["translate"]
    alone = [objective.losses(model, objective.prepare([item], CPU))["translate"] for item in ITEMS]
    close(together, torch.stack(alone).sum())


def test_teacher_forcing_equals_a_loop_of_steps() -> None:
    model, objective = our_transformer(), Translate(start_id=1, smoothing=0.0)
    for item in ITEMS:
        scores = stepped(model, pack([item.ids]), torch.tensor([[1, *item.target[:-1]]]))[0]
        expected = F.cross_entropy(scores, torch.tensor(item.target), reduction="sum")
        close(objective.losses(model, objective.prepare([item], CPU))["translate"].detach(), expected)


def test_the_mean_equals_marian_s_loss(tmp_path: Path) -> None:
    theirs, ours = both_marians(tmp_path)
    objective = Translate(ours.config.start_id, smoothing=0.0)
    batch = objective.prepare(ITEMS, CPU)
    sources = batch.tokens.layout
    with torch.no_grad():
        expected = theirs(
            input_ids=sources.pad(batch.tokens.ids, fill=29),
            attention_mask=sources.pad(torch.ones_like(batch.tokens.ids)),
            labels=batch.shifted.layout.pad(batch.targets, fill=-100),
        ).loss
        close(objective.losses(ours, batch)["translate"] / batch.counts["translate"], expected)


def test_gradients_reach_every_weight_and_equal_those_of_the_plain_loss() -> None:
    model, objective = our_transformer(output_bias=True), Translate(start_id=1)
    batch = objective.prepare(ITEMS, CPU)
    objective.losses(model, batch)["translate"].backward()
    result = {name: weight.grad for name, weight in model.named_parameters()}
    model.zero_grad()
    scores = objective.scores(model, batch)
    F.cross_entropy(scores, batch.targets, reduction="sum", label_smoothing=0.1).backward()
    for name, weight in model.named_parameters():
        assert result[name] is not None
        close(result[name], weight.grad)
