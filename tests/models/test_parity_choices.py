"""Multiple choice against the reference library, in float64: unequal options, padded there and packed here."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kinfolk.objectives.objective import Sample
from kinfolk.objectives.supervised import MultipleChoice, Options
from support.tiny import ENCODERS, both, close, ragged

CPU = torch.device("cpu")
EXAMPLES = ((9, 4, 12), (3, 15), (7, 7, 1, 20, 5))  # the lengths of their options
ANSWERS = (2, 0, 3)


def padded(rows: list[list[int]], fill: int) -> Tensor:
    """(1, options, longest)."""
    longest = max(map(len, rows))
    return torch.tensor([[row + [fill] * (longest - len(row)) for row in rows]])


@pytest.mark.parametrize("case", ENCODERS)
def test_scores_and_loss_of_ragged_options_equal_the_reference(case: str, tmp_path: Path) -> None:
    theirs, ours = both(case, "ForMultipleChoice", tmp_path)
    items, scores, losses = [], [], []
    for index, (lengths, answer) in enumerate(zip(EXAMPLES, ANSWERS, strict=True)):
        ids, segments = ragged(lengths, pairs=True, seed=index)
        inputs = {"input_ids": padded(ids, theirs.config.pad_token_id)}
        inputs["attention_mask"] = padded([[1] * len(row) for row in ids], 0)
        if ours.config.segments > 1:
            inputs["token_type_ids"] = padded(segments, 0)
        with torch.no_grad():
            said = theirs(**inputs, labels=torch.tensor([answer]))
        scores.append(said.logits[0])
        losses.append(said.loss)
        target = Options(lengths, tuple(range(len(lengths))), (1.0,) * len(lengths), answer)
        items.append(Sample([*chain(*ids)], [*chain(*segments)], target, index))
    objective = MultipleChoice(ours.config.segments)
    batch = objective.prepare(items, CPU)
    with torch.no_grad():
        close(objective.scores(ours, batch), torch.cat(scores))
        close(objective.loss(ours, batch), torch.stack(losses).sum())
