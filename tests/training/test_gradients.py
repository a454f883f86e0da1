"""Batches that are accumulated count as one."""

from __future__ import annotations

from pathlib import Path

import torch
from small_runs import examples

import kinfolk
from kinfolk.jobs.task import TaskOptions
from kinfolk.jobs.text_task import TextTask
from kinfolk.models.model import with_fresh_head


def test_accumulated_batches_have_the_gradient_of_one_large_batch(tiny_bert: Path) -> None:
    encoder = kinfolk.load(tiny_bert, device="cpu")
    given = examples(32)
    task = TextTask.of("classify", given, TaskOptions(class_weights={"salty": 3.0}))
    model = with_fresh_head(encoder.model, "classify", 2)[0].double().eval()
    objective = task.objective(model)
    items = task.material(encoder.tokenizer, given, encoder.context).items
    gradients = []
    for size in (32, 1, 5):
        model.zero_grad()
        batches = [objective.prepare(items[start : start + size], model.device) for start in range(0, 32, size)]
        total = sum(batch.count for batch in batches)
        for batch in batches:
            (objective.loss(model, batch) / total).backward()
        gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))
    assert (gradients[0] - gradients[1]).abs().max() < 1e-12
    assert (gradients[0] - gradients[2]).abs().max() < 1e-12
