"""Attention in sequence to sequence: while it writes, the decoder looks back at every state of the encoder.

Idea: one state cannot hold a long sentence; let each step of the decoder choose what to look at.
Departure from Seq2Seq: after each step the decoder's vector h_t is scored against every vector s_j of the encoder; the
softmax of the scores mixes them into a context vector, and the prediction is made from both:

    e_tj = score(h_t, s_j)       dot          h's                        both as wide
                                 bilinear     h'W s                      Luong et al. 2015, "general"
                                 additive     w2' tanh(W1 [h; s])        Bahdanau et al. 2014
    a_t  = softmax(e_t)          over the states of its source
    c_t  = sum over j of a_tj s_j
    g_t  = tanh(W [h_t; c_t])    what the prediction is made from: Luong et al. 2015, equation 5

What a score computes from a source alone (`keys`) is computed once per sentence. g_t is not fed to the next step, so
under teacher forcing the decoder runs over the whole target at once.
Papers: Bahdanau et al. 2014, "Neural Machine Translation by Jointly Learning to Align and Translate"; Luong et al.
2015, "Effective Approaches to Attention-based Neural Machine Translation", whose drawing this is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from kinfolk.errors import ConfigError
from kinfolk.models import seq2seq
from kinfolk.models.family import Preset
from kinfolk.models.seq2seq import Seq2Seq, Seq2SeqConfig
from kinfolk.nn.fast.linear import Linear
from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import AttentionPlan
from kinfolk.nn.state import RecurrentState, keep_lengths, source_padding
from kinfolk.nn.trace import Trace


class Score(nn.Module):
    """Queries (…, m, width) and keys (…, n, key width) -> (…, m, n). Itself the dot product, which has no weights."""

    def __init__(self, width: int, source_width: int, inner_width: int):
        super().__init__()

    def keys(self, source: Tensor) -> Tensor:
        return source

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.transpose(-1, -2)


class Bilinear(Score):
    def __init__(self, width: int, source_width: int, inner_width: int):
        super().__init__(width, source_width, inner_width)
        self.matrix = Linear(source_width, width, bias=False)

    def keys(self, source: Tensor) -> Tensor:
        return self.matrix(source)  # type: ignore[no-any-return]


class AdditiveAttention(Score):
    """w2' tanh(W1 [h; s]): W1 is kept as the part that reads h and the part that reads s."""

    def __init__(self, width: int, source_width: int, inner_width: int):
        super().__init__(width, source_width, inner_width)
        self.target = Linear(width, inner_width, bias=False)
        self.source = Linear(source_width, inner_width, bias=False)
        self.output = Linear(inner_width, 1, bias=False)

    def keys(self, source: Tensor) -> Tensor:
        return self.source(source)  # type: ignore[no-any-return]

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        inner = torch.tanh(self.target(queries).unsqueeze(-2) + keys.unsqueeze(-3))  # (…, m, n, inner width)
        return self.output(inner).squeeze(-1)  # type: ignore[no-any-return]


SCORES = {"dot": Score, "bilinear": Bilinear, "additive": AdditiveAttention}


def contexts(score: Score, target: Tensor, source: Tensor, plan: AttentionPlan, trace: Trace | None = None) -> Tensor:
    """Context vectors: packed targets (m, width) look at packed sources (n, source width): (m, source width).

    An empty source has nothing to look at: zeros.
    """
    if trace is not None:
        trace.begin_attention()
    keys, outputs = score.keys(source).unsqueeze(1), []
    for group in plan.groups:
        queries = group.queries.take(target.unsqueeze(1))  # (count, 1, m, width): one head
        scores = score(queries, group.keys.take(keys))
        if group.mask is not None:
            scores = scores.masked_fill(~group.mask, float("-inf"))
        mixed = scores.softmax(-1) @ group.keys.take(source.unsqueeze(1))
        outputs.append(group.queries.unpad(mixed).squeeze(1))
        if trace is not None:
            trace.add_attention(group, scores, plan)
    joined = torch.cat(outputs) if outputs else source.new_zeros(0, source.shape[1])
    return joined if plan.order is None else joined.index_select(0, plan.order)


@dataclass(frozen=True)
class LookingState(RecurrentState):
    """A recurrent state that also holds the sources: padded, each sentence once, whatever the beams."""

    keys: Tensor  # (sentences, longest, key width)
    states: Tensor  # (sentences, longest, source width)
    lengths: tuple[int, ...]
    padding: Tensor | None  # (sentences, longest): True behind a source's end; nowhere in an empty one, all zeros

    def keep(self, sentences: Tensor) -> Self:
        lengths, longest = keep_lengths(self.lengths, sentences)
        keys, states = (padded[:, :longest].index_select(0, sentences) for padded in (self.keys, self.states))
        padding = source_padding(lengths, longest, states.device)
        return replace(super().keep(sentences), keys=keys, states=states, lengths=lengths, padding=padding)


class LuongAttention(nn.Module):
    """The decoder's look at its source after each step: h_t -> g_t = tanh(W [h_t; c_t]), both (…, width)."""

    def __init__(self, score: Score, width: int, source_width: int):
        super().__init__()
        self.score = score
        self.combine = Linear(width + source_width, width)

    def forward(self, hidden: Tensor, source: Tensor, plan: AttentionPlan, trace: Trace | None = None) -> Tensor:
        """All targets at once: (m, width) and their sources (n, source width) -> (m, width)."""
        return self._combined(hidden, contexts(self.score, hidden, source, plan, trace))

    def start(self, state: RecurrentState, source: Tensor, layout: Layout) -> LookingState:
        keys, states = layout.pad(self.score.keys(source)), layout.pad(source)
        if states.shape[1] == 0:  # only empty sources: one state of zeros, which adds nothing
            keys, states = (padded.new_zeros(len(padded), 1, padded.shape[2]) for padded in (keys, states))
        padding = source_padding(layout.lengths, states.shape[1], states.device)
        return LookingState(state.beams, state.memory, keys, states, layout.lengths, padding)

    def step(self, hidden: Tensor, state: LookingState) -> Tensor:
        queries = hidden.view(len(state.states), state.beams, -1)
        scores = self.score(queries, state.keys)  # (sentences, beams, longest)
        if state.padding is not None:
            scores = scores.masked_fill(state.padding.unsqueeze(1), float("-inf"))
        return self._combined(hidden, (scores.softmax(-1) @ state.states).flatten(0, 1))

    def _combined(self, hidden: Tensor, context: Tensor) -> Tensor:
        return torch.tanh(self.combine(torch.cat([hidden, context], -1)))


@dataclass(frozen=True)
class AttentionConfig(Seq2SeqConfig):
    """`score_width` is the inner width of the additive score; 0: as wide as the decoder.

    The dot score needs sources as wide as the decoder: both directions have half its width each, if none is given.
    """

    score: str = "bilinear"
    score_width: int = 0

    choices: ClassVar = Seq2SeqConfig.choices | {"score": tuple(SCORES)}
    # Folders say "perceptron" for the additive score, as 0.1.0 did.
    hf_values: ClassVar = {"score": {"dot": "dot", "bilinear": "bilinear", "perceptron": "additive"}}
    hf_values |= Seq2SeqConfig.hf_values

    @property
    def source_hidden(self) -> int:
        if self.score == "dot" and not self.encoder_hidden:
            return self.hidden // (1 + self.bidirectional)
        return super().source_hidden

    def __post_init__(self) -> None:
        super().__post_init__()
        hidden, source_width = self.hidden, self.source_width
        if self.score == "dot" and source_width != hidden:
            raise ConfigError(f"score dot needs one width, not {hidden} and {source_width}; choose bilinear")


class AttentionSeq2Seq(Seq2Seq):
    def build_look_back(self, config: Any) -> LuongAttention:
        width, source_width = config.hidden, config.source_width
        score = SCORES[config.score](width, source_width, config.score_width or width)
        return LuongAttention(score, width, source_width)


LUONG = AttentionConfig(
    vocabulary_size=50_000, width=1000, hidden=1000, layers=4, bidirectional=False, shared_tables=False, tied=False
)
FAMILY = replace(
    seq2seq.FAMILY,
    name="kinfolk-attention",
    title="Attention Seq2Seq",
    parent="kinfolk-seq2seq",
    idea="the decoder looks back at every state of the encoder",
    paper="Luong et al. 2015",
    config=AttentionConfig,
    body=AttentionSeq2Seq,
    heads={"next_token": replace(seq2seq.NEXT_TOKEN, architecture="AttentionSeq2Seq")},
    presets={
        "attention-base": Preset(LUONG),
        "attention-small": Preset(AttentionConfig(vocabulary_size=8_000)),
        "attention-tiny": Preset(AttentionConfig(**seq2seq.TINY)),
    },
)
