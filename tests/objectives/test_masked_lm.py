"""Masked LM and next sentence: which tokens are hidden and how, and the losses of the reference library."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kinfolk.demo import sentences
from kinfolk.errors import InputError
from kinfolk.objectives.masked_lm import MaskedLm
from kinfolk.objectives.objective import Sample
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.train import train_tokenizer
from support.tiny import both, close

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer("wordpiece", sentences()[0], 200)


def samples(tokenizer: Tokenizer, count: int = 4, length: int = 30) -> list[Sample]:
    generator = torch.Generator().manual_seed(0)
    rows = []
    for index in range(count):
        body = torch.randint(5, 40, (length,), generator=generator).tolist()
        body[length // 2] = tokenizer.sep_id or 0
        rows.append(Sample([tokenizer.cls_id or 0, *body], [0] * 16 + [1] * (length - 15), index % 2 == 0, index))
    return rows


def test_a_million_tokens_are_hidden_as_the_paper_says(tokenizer: Tokenizer) -> None:
    objective, generator = MaskedLm(tokenizer, 2), torch.Generator().manual_seed(0)
    ids = torch.randint(0, tokenizer.vocabulary_size, (1_000_000,), generator=generator)
    special = torch.tensor(sorted(tokenizer.special_ids))
    ordinary = ~torch.isin(ids, special)
    seen, rows = objective.mask(ids, generator)
    assert len(rows) / int(ordinary.sum()) == pytest.approx(0.15, abs=0.001)
    assert ordinary[rows].all()
    untouched = torch.ones_like(ordinary)
    untouched[rows] = False
    assert seen[untouched].equal(ids[untouched])
    masked = seen[rows] == tokenizer.mask_id
    kept = seen[rows] == ids[rows]
    drawn = seen[rows][~masked & ~kept]
    assert float(masked.float().mean()) == pytest.approx(0.8, abs=0.005)
    assert float(kept.float().mean()) == pytest.approx(0.1 + 0.1 / len(objective.candidates), abs=0.005)
    assert not torch.isin(drawn, special).any()
    assert len(drawn.unique()) == len(objective.candidates)


def test_losses_are_those_of_the_reference(tokenizer: Tokenizer, tmp_path: Path) -> None:
    theirs, ours = both("bert", "ForPreTraining", tmp_path, vocab_size=tokenizer.vocabulary_size)
    objective, rows = MaskedLm(tokenizer, 2), samples(tokenizer)
    batch = objective.prepare(rows, CPU, torch.Generator().manual_seed(1))
    losses = objective.losses(ours, batch)
    labels = torch.full((4 * 31,), -100).index_put((batch.rows,), batch.targets)
    shape = (4, 31)
    with torch.no_grad():
        output = theirs(
            batch.tokens.ids.view(shape),
            token_type_ids=batch.tokens.segments.view(shape),
            labels=labels.view(shape),
            next_sentence_label=torch.tensor([0, 1, 0, 1]),
        )
    assert batch.counts == {"masked_lm": len(batch.rows), "next_sentence": 4}
    means = [losses[name] / batch.counts[name] for name in ("masked_lm", "next_sentence")]
    close(sum(means).detach(), output.loss)


def test_masks_are_drawn_anew_but_for_a_generator_that_says_which(tokenizer: Tokenizer) -> None:
    objective, rows = MaskedLm(tokenizer, 2), samples(tokenizer)
    one, other = objective.prepare(rows, CPU), objective.prepare(rows, CPU)
    assert not one.tokens.ids.equal(other.tokens.ids)
    fixed = [objective.prepare(rows, CPU, torch.Generator().manual_seed(3)).tokens.ids for _ in range(2)]
    assert fixed[0].equal(fixed[1])


def test_a_batch_in_which_nothing_is_hidden_has_a_loss_of_zero(tokenizer: Tokenizer, tmp_path: Path) -> None:
    _, ours = both("bert", "ForPreTraining", tmp_path, vocab_size=tokenizer.vocabulary_size)
    objective = MaskedLm(tokenizer, 2, rate=1e-9)
    batch = objective.prepare(samples(tokenizer), CPU)
    losses = objective.losses(ours.train(), batch)
    assert (batch.counts["masked_lm"], float(losses["masked_lm"].detach())) == (0, 0.0)
    sum(losses.values()).backward()


def test_a_tokenizer_without_a_mask_is_refused() -> None:
    plain = train_tokenizer("byte_bpe", sentences()[0], 300, special_tokens={"unk": "<|endoftext|>"})
    with pytest.raises(InputError, match="no mask"):
        MaskedLm(plain, 2)
