"""A decoder without a source, built from parts: reading ragged prompts and stepping equals the full causal forward."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from kinfolk.nn.blocks import Stack, build_block
from kinfolk.nn.embeddings import SummedEmbeddings
from kinfolk.nn.fast.linear import Norm
from kinfolk.nn.packed import Tokens, pack
from kinfolk.nn.scopes import Causal
from kinfolk.nn.state import DecoderState
from support.tiny import randomise

TEXTS = ([3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7], [7, 9, 3, 2, 3, 8, 4], [6, 2, 6, 4, 3, 3])


@dataclass(frozen=True)
class Config:
    vocabulary_size: int = 11
    positions: int = 40
    first_position: int = 0
    segments: int = 0
    width: int = 12
    heads: int = 3
    inner_width: int = 20
    activation: str = "gelu_tanh"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm_epsilon: float = 1e-5


class Gpt2(nn.Module):
    """Learned positions, no norm after the embeddings, pre-norm blocks, a final norm."""

    def __init__(self, config: Config, layers: int = 3):
        super().__init__()
        self.embeddings = SummedEmbeddings(config, config.width, norm=False)
        self.stack = Stack([build_block(config, "pre") for _ in range(layers)])
        self.norm = Norm(config.width, config.norm_epsilon)

    def forward(self, tokens: Tokens) -> Tensor:
        return self.norm(self.stack(self.embeddings(tokens), Causal().plan(tokens.layout)))  # type: ignore[no-any-return]

    def start(self, prompts: Tokens, beams: int) -> tuple[Tensor, DecoderState]:
        hidden = self.embeddings(prompts)
        state = DecoderState.of(self.stack, prompts.layout.sequences, beams, hidden)
        hidden, state = self.stack.prefill(hidden, Causal().plan(prompts.layout), state)
        return self.norm(hidden), state

    def step(self, ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        hidden = self.embeddings.tokens(ids) + self.embeddings.positions(state.cache.positions)
        hidden, state = self.stack.step(hidden, state)
        return self.norm(hidden), state


def model() -> Gpt2:
    return randomise(Gpt2(Config())).double().eval()


def exact(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("lengths", [(5, 2, 4, 1), (3, 3, 3, 3), (2, 0, 3, 1), (0, 0, 0, 0)], ids=str)
@torch.no_grad()
def test_prompts_and_steps_equal_the_whole_text(lengths: tuple[int, ...]) -> None:
    gpt, whole = model(), [model()(pack([text])) for text in TEXTS]
    read, state = gpt.start(pack([text[:length] for text, length in zip(TEXTS, lengths, strict=True)]), beams=1)
    exact(read, torch.cat([vectors[:length] for vectors, length in zip(whole, lengths, strict=True)]))
    for step in range(3):
        ids = torch.tensor([text[length + step] for text, length in zip(TEXTS, lengths, strict=True)])
        states, state = gpt.step(ids, state)
        exact(states, torch.stack([vectors[length + step] for vectors, length in zip(whole, lengths, strict=True)]))


@torch.no_grad()
def test_beams_share_a_prompt_change_places_and_finished_texts_leave() -> None:
    gpt, beams, generator = model(), 3, torch.Generator().manual_seed(0)
    prompts = [text[:length] for text, length in zip(TEXTS, (5, 2, 4, 1), strict=True)]
    _, state = gpt.start(pack(prompts), beams)
    rows = [list(prompt) for prompt in prompts for _ in range(beams)]
    for step in range(12):
        ids = torch.randint(11, (len(rows),), generator=generator)
        rows = [[*row, int(token)] for row, token in zip(rows, ids, strict=True)]
        states, state = gpt.step(ids, state)
        exact(states, pack(rows).layout.last(gpt(pack(rows))))
        parents = torch.randint(beams, (len(rows),), generator=generator)
        parents += torch.arange(len(rows)) // beams * beams
        rows, state = [list(rows[parent]) for parent in parents], state.reorder(parents)
        if step == 4:  # the sentence with the longest prompt ends
            rows, state = rows[9:12] + rows[3:9], state.keep(torch.tensor([3, 1, 2]))
