"""Writing a token at a time gives what the whole target gives at once, for all beams and in any company."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kinfolk.nn.packed import pack
from support.tiny import SOURCES, close, our_transformer, rows, stepped
from support.tiny import TRANSFORMERS as VARIANTS

every_variant = pytest.mark.parametrize("variant", VARIANTS)


def written(count: int, steps: int, seed: int = 0) -> Tensor:
    return torch.tensor(rows((steps,) * count, seed=seed))


@every_variant
@pytest.mark.parametrize("beams", [1, 3])
def test_cached_steps_equal_teacher_forcing(variant: str, beams: int) -> None:
    model, sources = our_transformer(**VARIANTS[variant]), rows(SOURCES)
    tokens = written(len(SOURCES) * beams, 40)  # more than the first room of a cache
    actual = stepped(model, pack(sources), tokens, beams)
    repeated = [row for row in sources for _ in range(beams)]
    with torch.no_grad():
        expected = model.vocabulary_scores(model(pack(repeated), pack(tokens.tolist())))
    close(actual.flatten(0, 1), expected)


def test_positions_go_on_beyond_the_first_places() -> None:
    model, tokens = our_transformer(), written(1, 130)
    with torch.no_grad():
        expected = model.vocabulary_scores(model(pack(rows((4,))), pack(tokens.tolist())))
    close(stepped(model, pack(rows((4,))), tokens)[0], expected)


@every_variant
def test_reordered_rows_go_on_from_their_parents(variant: str) -> None:
    model, beams, sentences = our_transformer(**VARIANTS[variant]), 3, 4
    sources, generator = rows(SOURCES[:sentences]), torch.Generator().manual_seed(5)
    firsts = torch.arange(sentences).repeat_interleave(beams) * beams
    state, past = model.start(pack(sources), beams), torch.zeros(sentences * beams, 0, dtype=torch.long)
    assert state.beams == 3
    for step in range(8):
        past = torch.cat([past, written(sentences * beams, 1, seed=step)], 1)
        scores, state = model.step(past[:, -1], state)
        parents = firsts + torch.randint(beams, firsts.shape, generator=generator)
        state, past = state.reorder(parents), past[parents]
    expected = stepped(model, pack([row for row in sources for _ in range(beams)]), past)
    close(scores[parents], expected[:, -1])


def test_kept_sentences_go_on_as_if_the_others_had_never_been() -> None:
    model, beams, sources = our_transformer(), 2, rows(SOURCES)
    tokens = written(len(SOURCES) * beams, 9)
    expected = stepped(model, pack(sources), tokens, beams)
    state = model.start(pack(sources), beams)
    for ids in tokens[:, :5].unbind(1):
        _, state = model.step(ids, state)
    kept = torch.tensor([4, 1, 2])
    state = state.keep(kept)
    here = tokens.view(len(SOURCES), beams, 9)[kept].flatten(0, 1)
    for index in range(5, 9):
        scores, state = model.step(here[:, index], state)
        close(scores, expected.view(len(SOURCES), beams, 9, -1)[kept, :, index].flatten(0, 1))


def test_in_float32_batch_mates_change_scores_by_less_than_a_millionth() -> None:
    model, sources, tokens = our_transformer().float(), rows(SOURCES), written(len(SOURCES), 12)
    together = stepped(model, pack(sources), tokens).log_softmax(-1).exp()
    assert together.dtype == torch.float32
    for index, row in enumerate(sources):
        alone = stepped(model, pack([row]), tokens[index : index + 1]).log_softmax(-1).exp()
        torch.testing.assert_close(together[index], alone[0], rtol=0, atol=1e-6)


def test_steps_need_no_gradients_and_work_in_inference_mode() -> None:
    model, tokens = our_transformer(), written(2, 4)
    plain = stepped(model, pack(rows((3, 5))), tokens)
    assert not plain.requires_grad
    with torch.inference_mode():
        close(stepped(model, pack(rows((3, 5))), tokens), plain)
