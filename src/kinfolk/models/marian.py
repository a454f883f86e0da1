"""Marian: the Transformer as a fast translator, and the form in which more than a thousand of them were published.

Idea: one small model per pair of languages, trained on open data (OPUS-MT), quick enough for any machine.
Departures from the Transformer:
  1. the sinusoids lie in halves: all sines, then all cosines;
  2. the activation is swish in most published models;
  3. a bias is added to the scores;
  4. the padding token stands before a target as its start, and is never written.
Papers: Junczys-Dowmunt et al. 2018, "Marian: Fast Neural Machine Translation in C++"; Tiedemann and Thottingal 2020,
"OPUS-MT – Building open translation services for the World".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import torch

from kinfolk.errors import ConfigError
from kinfolk.models import transformer
from kinfolk.models.encoder_family import block_keys
from kinfolk.models.family import Keys, Model, Source
from kinfolk.models.transformer import NEXT_TOKEN, TransformerConfig

# Public settings that exist for each side, of which we have one for both.
ONE_FOR_BOTH = {"decoder_attention_heads": "encoder_attention_heads", "decoder_ffn_dim": "encoder_ffn_dim"}

# What a Transformer of ours may have otherwise.
FORM = {"norm": "post", "norm_epsilon": 1e-5, "sinusoid": "halves", "output_bias": True, "zero_start": False}

NEVER = -1e4  # what is added to the score of the start token: e to that is zero, and float16 can hold it
TABLES = ("body.source_table.weight", "body.target_table.weight")
BIAS = "heads.next_token.bias"
WRITES = re.compile(r"(output|down|_norm)\.(weight|bias)$")  # rows are the dimensions of vectors
READS = re.compile(r"(_table|qkv|queries|keys_values|up)\.weight$")  # columns are


@dataclass(frozen=True)
class MarianConfig(TransformerConfig):
    """Defaults are the sizes of the OPUS-MT models; what a public file leaves out means something else."""

    vocabulary_size: int = 58_101
    pad_id: int = 58_100
    start_id: int = 58_100
    end_id: int = 0
    activation: str = "silu"
    sinusoid: str = "halves"
    output_bias: bool = True

    hf_names: ClassVar[dict[str, str]] = {
        "vocabulary_size": "vocab_size", "target_vocabulary_size": "decoder_vocab_size",
        "pad_id": "pad_token_id", "start_id": "decoder_start_token_id", "end_id": "eos_token_id",
        "width": "d_model", "encoder_layers": "encoder_layers", "decoder_layers": "decoder_layers",
        "heads": "encoder_attention_heads", "inner_width": "encoder_ffn_dim",
        "positions": "max_position_embeddings", "activation": "activation_function",
        "dropout": "dropout", "attention_dropout": "attention_dropout", "inner_dropout": "activation_dropout",
        "scale_embedding": "scale_embedding", "shared_tables": "share_encoder_decoder_embeddings",
    }  # fmt: skip
    hf_required: ClassVar = {"tie_word_embeddings": True, "is_encoder_decoder": True, "is_decoder": False}
    hf_defaults: ClassVar[dict[str, Any]] = {
        "width": 1024, "encoder_layers": 12, "decoder_layers": 12, "heads": 16, "inner_width": 4096, "positions": 1024,
        "activation": "gelu", "scale_embedding": False,
    }  # fmt: skip

    @classmethod
    def from_hf(cls, hf_config: Mapping[str, Any], location: str) -> Self:
        ours = {theirs: name for name, theirs in cls.hf_names.items()}
        for decoder, encoder in ONE_FOR_BOTH.items():
            default = cls.hf_defaults[ours[encoder]]
            one, other = hf_config.get(encoder, default), hf_config.get(decoder, default)
            if one != other:
                sides = f"{encoder}={str(one)[:60]} and {decoder}={str(other)[:60]}"
                raise ConfigError(f"{location}: {sides} differ; only one number for both is supported")
        config = super().from_hf(hf_config, location)
        same = config.target_vocabulary_size == config.vocabulary_size
        return replace(config, target_vocabulary_size=0) if same else config

    def to_hf(self) -> dict[str, Any]:
        public = super().to_hf()
        public |= {decoder: public[encoder] for decoder, encoder in ONE_FOR_BOTH.items()}
        return public | {"decoder_vocab_size": self.target_vocabulary, "forced_eos_token_id": self.end_id}

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in FORM.items():
            if getattr(self, name) != value:
                raise ConfigError(f"{name} is always {value!r} in Marian; use TransformerConfig for another")


QKV = tuple(f"self_attn.{part}_proj" for part in "qkv")
PARTS = ("self_attn.out_proj", "self_attn_layer_norm", "fc1", "fc2", "final_layer_norm")
DECODER = "model.decoder.layers.{}"


def keys(config: MarianConfig) -> Keys:
    table: dict[str, Any] = {
        "source_table": "model.shared" if config.shared_tables else "model.encoder.embed_tokens",
        "target_table": "model.decoder.embed_tokens",
        "decoder.blocks.{}.cross.queries": f"{DECODER}.encoder_attn.q_proj",
        "decoder.blocks.{}.cross.keys_values": Source(tuple(f"{DECODER}.encoder_attn.{part}_proj" for part in "kv")),
        "decoder.blocks.{}.cross.output": f"{DECODER}.encoder_attn.out_proj",
        "decoder.blocks.{}.cross_norm": f"{DECODER}.encoder_attn_layer_norm",
    }
    for side in ("encoder", "decoder"):
        table |= block_keys(f"{side}.blocks.{{}}", f"model.{side}.layers.{{}}", QKV, PARTS)
    return table


def repeats(config: MarianConfig) -> dict[str, str]:
    """Public tensors that some files hold besides the table that they share."""
    target = "model.shared.weight" if config.shared_tables else "model.decoder.embed_tokens.weight"
    repeated = {"lm_head.weight": target}
    if config.shared_tables:
        repeated |= {f"model.{side}.embed_tokens.weight": target for side in ("encoder", "decoder")}
    return repeated


def generation_config(config: MarianConfig) -> dict[str, Any]:
    """How others are to translate with it: as OPUS-MT's own folders say."""
    return {
        "bad_words_ids": [[config.pad_id]],
        "decoder_start_token_id": config.start_id,
        "eos_token_id": config.end_id,
        "forced_eos_token_id": config.end_id,
        "max_length": config.positions,
        "num_beams": 4,
        "pad_token_id": config.pad_id,
    }


BIAS_ROW = Source(("final_logits_bias",), row=True)
FAMILY = replace(
    transformer.FAMILY,
    name="marian",
    title="Marian",
    parent="kinfolk-transformer",
    idea="the Transformer as a small translator for one pair of languages",
    paper="Junczys-Dowmunt et al. 2018",
    config=MarianConfig,
    presets={},
    heads={"next_token": replace(NEXT_TOKEN, architecture="MarianMTModel", keys={"bias": BIAS_ROW})},
    keys=keys,
    repeats=repeats,
    sinusoids=("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"),
    generation_config=generation_config,
)


def to_marian(model: Model, rows: Sequence[int]) -> Model:
    """A Transformer of ours in this form: other names, other ids, the same translations.

    Token i of the new model is token rows[i] of the old one; the last is the start, and it pads. Interleaved
    sinusoids become halves when the dimensions of every vector change places together: even ones, then odd ones.
    """
    for name in ("norm", "norm_epsilon"):
        if (value := getattr(model.config, name)) != FORM[name]:
            raise ConfigError(f"a model with {name}={value} has no place in Marian's layout, only with {FORM[name]}")
    sizes = {"vocabulary_size": len(rows), "target_vocabulary_size": 0}  # </s> is the first, <pad> the last
    ids = {"pad_id": len(rows) - 1, "start_id": len(rows) - 1, "end_id": 0}
    config = MarianConfig(**(asdict(model.config) | FORM | sizes | ids))
    order = torch.arange(config.width)
    if model.config.sinusoid == "interleaved":
        order = order.view(-1, 2).t().flatten()
    state, taken = {}, torch.tensor(rows)
    for name, weight in model.state_dict().items():
        tensor = weight.detach().cpu()
        state[name] = tensor[order] if WRITES.search(name) else tensor[:, order] if READS.search(name) else tensor
    for table in TABLES:
        if table in state:
            state[table] = state[table][taken]
            if model.config.zero_start:
                state[table][-1] = 0.0
    bias = state.get(BIAS)
    state[BIAS] = state[TABLES[0]].new_zeros(len(rows)) if bias is None else bias[taken]
    state[BIAS][-1] = NEVER
    with torch.device("meta"):
        moved = Model(FAMILY, config)
    moved.load_state_dict(state, assign=True)
    return moved.to(model.device).eval()
