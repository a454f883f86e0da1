"""GPT: a Transformer that reads from left to right, and so can write on.

Idea: a model that has learned to predict the next token of books needs one new linear layer for any other task.
Departures from BERT, its younger sister (both are the Transformer's blocks):
  1. a token sees itself and what came before it (`Causal`), so the model can generate;
  2. the sum of token and position is not normed, and there are no segments;
  3. the table of tokens scores the next one, without a bias: pre-training is next-token prediction;
  4. the last token, which has read all others, stands for the whole text.
Paper: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from kinfolk.models.bert import Bert, BertConfig
from kinfolk.models.config import renamed
from kinfolk.models.encoder_family import TextForm, task_heads
from kinfolk.models.family import Family, Head, Keys, Preset, Source
from kinfolk.nn.blocks import Stack
from kinfolk.nn.embeddings import SummedEmbeddings
from kinfolk.nn.heads import VocabularyHead
from kinfolk.nn.packed import Layout, Tokens
from kinfolk.nn.scopes import Causal
from kinfolk.nn.state import DecoderState


@dataclass(frozen=True)
class GptConfig(BertConfig):
    """The published one, which has no token for the end of a text: the unknown one stands in."""

    vocabulary_size: int = 40_478
    segments: int = 0
    inner_width: int = 0  # 0: four times the width
    activation: str = "gelu_tanh"
    norm_epsilon: float = 1e-5
    end_id: int = 0  # ends a text, and stands before the first one

    hf_names: ClassVar = renamed(
        BertConfig.hf_names,
        "segments",
        width="n_embd", layers="n_layer", heads="n_head", inner_width="n_inner", positions="n_positions",
        activation="afn", dropout="resid_pdrop", attention_dropout="attn_pdrop",
        norm_epsilon="layer_norm_epsilon", end_id="eos_token_id",
    )  # fmt: skip
    hf_values: ClassVar = {"activation": {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}}
    hf_required: ClassVar[dict[str, Any]] = {}
    hf_repeats: ClassVar = {"bos_token_id": "eos_token_id"}  # so that transformers generates from nothing

    def __post_init__(self) -> None:
        if self.inner_width == 0:
            object.__setattr__(self, "inner_width", 4 * self.width)
        super().__post_init__()


class Gpt(Bert):
    embeddings: SummedEmbeddings
    stack: Stack
    scope = Causal()

    def build_embeddings(self, config: BertConfig) -> SummedEmbeddings:
        return SummedEmbeddings(config, config.width, norm=False)

    def last(self, hidden: Tensor, layout: Layout) -> Tensor:
        return layout.last(hidden)

    def start(self, source: Tokens, beams: int) -> DecoderState:
        """Read what each text begins with, but for its last token: that is fed first."""
        hidden = self.embeddings(source)
        state = DecoderState.of(self.stack, source.layout.sequences, beams, hidden)
        return self.stack.prefill(hidden, self.scope.plan(source.layout), state)[1]

    def step(self, ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        return self.stack.step(self.embeddings.at(ids, state.cache.positions), state)


KEYS: Keys = {  # ours: theirs, below "transformer."; their Conv1D has (inputs, outputs)
    "embeddings.tokens": "tokens_embed",
    "embeddings.positions": "positions_embed",
    "stack.blocks.{}.attention.qkv": Source(("h.{}.attn.c_attn",), transposed=True),
    "stack.blocks.{}.attention.output": Source(("h.{}.attn.c_proj",), transposed=True),
    "stack.blocks.{}.attention_norm": "h.{}.ln_1",
    "stack.blocks.{}.feed_forward.up": Source(("h.{}.mlp.c_fc",), transposed=True),
    "stack.blocks.{}.feed_forward.down": Source(("h.{}.mlp.c_proj",), transposed=True),
    "stack.blocks.{}.feed_forward_norm": "h.{}.ln_2",
}
SCORE = TextForm("last", keys={"output": "score"}, bias=False)  # one linear layer on the last token
NEXT_TOKEN = Head(  # the table of tokens scores the next one
    lambda config, labels: VocabularyHead(config.width, config.vocabulary_size, bias=False),
    "OpenAIGPTLMHeadModel",
    {"table": "lm_head"},
)

FAMILY = Family(
    name="openai-gpt",
    title="GPT",
    parent="kinfolk-transformer",
    idea="reads from left to right; learns by predicting the next token, then one new layer per task",
    paper="Radford et al. 2018",
    config=GptConfig,
    body=Gpt,
    prefix="transformer",
    base_architecture="OpenAIGPTModel",
    presets={"openai-gpt": Preset(GptConfig(), "117M")},
    keys=KEYS,
    heads={"next_token": NEXT_TOKEN} | task_heads("OpenAIGPT", SCORE, SCORE),
    default_heads=("next_token",),
    tied_heads=("next_token",),
    ignored=("position_ids", "h.{}.attn.bias"),
)
