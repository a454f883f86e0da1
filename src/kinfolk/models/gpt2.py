"""GPT-2: a larger GPT, on more text, that stays trainable when it is deep.

Idea: predict the next token of enough text, and a model learns to do tasks that nobody trained it for.
Departures from GPT:
  1. norms stand before attention and feed-forward, and one more after the last block;
  2. projections into the residual sum start smaller by 1 / sqrt(2 layers), for every layer adds two of them to it;
  3. the vocabulary is made of bytes, so that nothing is unknown; the context is 1,024 tokens;
  4. <|endoftext|> stands between the documents.
Paper: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from kinfolk.models import gpt
from kinfolk.models.bert import BertConfig
from kinfolk.models.config import Config
from kinfolk.models.encoder_family import task_heads
from kinfolk.models.family import Preset, init_normal
from kinfolk.models.gpt import SCORE, Gpt, GptConfig
from kinfolk.nn.blocks import Stack, build_block
from kinfolk.nn.fast.linear import Norm


@dataclass(frozen=True)
class Gpt2Config(GptConfig):
    vocabulary_size: int = 50_257
    positions: int = 1024
    pad_id: int = 50_256  # nothing is padded here; other readers want one
    end_id: int = 50_256

    hf_names: ClassVar[dict[str, str]] = GptConfig.hf_names | {"activation": "activation_function"}
    hf_values: ClassVar = Config.hf_values
    hf_required: ClassVar = {
        "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False,
    }  # fmt: skip


class Gpt2(Gpt):
    def build_stack(self, config: BertConfig) -> Stack:
        blocks = [build_block(config, norm="pre") for _ in range(config.layers)]
        return Stack(blocks, final_norm=Norm(config.width, config.norm_epsilon))


@torch.no_grad()
def init_gpt2(model: Any, seed: int = 0) -> None:
    """N(0, init_std), and by 1 / sqrt(2 layers) of it for projections into the residual sum."""
    init_normal(model, seed)
    for block in model.body.stack.blocks:
        for projection in (block.attention.output, block.feed_forward.down):
            projection.weight.mul_((2 * model.config.layers) ** -0.5)


PRESETS = {
    "gpt2-tiny": Preset(Gpt2Config(width=128, layers=2, heads=2)),
    "gpt2-mini": Preset(Gpt2Config(width=256, layers=4, heads=4)),
    "gpt2-small": Preset(Gpt2Config(width=512, layers=6, heads=8)),
    "gpt2": Preset(Gpt2Config(), "124M"),
    "gpt2-medium": Preset(Gpt2Config(width=1024, layers=24, heads=16), "355M"),
    "gpt2-large": Preset(Gpt2Config(width=1280, layers=36, heads=20), "774M"),
    "gpt2-xl": Preset(Gpt2Config(width=1600, layers=48, heads=25), "1558M"),
}

FAMILY = replace(
    gpt.FAMILY,
    name="gpt2",
    title="GPT-2",
    parent="openai-gpt",
    idea="a deeper GPT over bytes, with norms before every part; generates from a prompt",
    paper="Radford et al. 2019",
    config=Gpt2Config,
    body=Gpt2,
    base_architecture="GPT2Model",
    presets=PRESETS,
    keys={**gpt.KEYS, "embeddings.tokens": "wte", "embeddings.positions": "wpe", "stack.final_norm": "ln_f"},
    heads={"next_token": replace(gpt.NEXT_TOKEN, architecture="GPT2LMHeadModel"), **task_heads("GPT2", SCORE, SCORE)},
    initialize=init_gpt2,
    ignored=("h.{}.attn.bias", "h.{}.attn.masked_bias"),
)
