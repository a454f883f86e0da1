"""A Transformer of ours in Marian's form: other names, other ids, the same translations.

Sinusoids that are interleaved become halves when the dimensions of every vector change places together: all even ones,
then all odd ones. Nothing else in a Transformer knows their order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from kinfolk.errors import ConfigError
from kinfolk.models.family import Model
from kinfolk.models.marian import FAMILY, FORM, MarianConfig
from kinfolk.models.transformer import TransformerConfig

NEVER = -1e4  # what is added to the score of the start token: e to that is zero, and float16 can hold it
SAME = (
    "width", "encoder_layers", "decoder_layers", "heads", "inner_width", "positions", "activation", "dropout",
    "attention_dropout", "inner_dropout", "scale_embedding", "shared_tables",
)  # fmt: skip
TABLES = ("body.source_table.weight", "body.target_table.weight")
BIAS = "heads.next_token.bias"
WRITES = re.compile(r"(output|down|_norm)\.(weight|bias)$")  # rows are the dimensions of vectors
READS = re.compile(r"(_table|qkv|queries|keys_values|up)\.weight$")  # columns are


def to_marian(model: Model, rows: Sequence[int]) -> Model:
    """Token i of the new model is token rows[i] of the old one; the last is the start, and it pads."""
    config = marian_config(model.config, len(rows))
    order = torch.arange(config.width)
    if model.config.sinusoid == "interleaved":
        order = order.view(-1, 2).t().flatten()
    state = {name: _reordered(name, tensor.detach().cpu(), order) for name, tensor in model.state_dict().items()}
    taken = torch.tensor(rows)
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


def marian_config(config: TransformerConfig, size: int) -> MarianConfig:
    """Marian's settings for a vocabulary of that size, </s> first and <pad> last; or a ConfigError."""
    for name in ("norm", "norm_epsilon"):
        if getattr(config, name) != FORM[name]:
            raise ConfigError(
                f"a model with {name}={getattr(config, name)} has no place in Marian's layout, only with {FORM[name]}"
            )
    same = {name: getattr(config, name) for name in SAME}
    return MarianConfig.make(**same, vocabulary_size=size, pad_id=size - 1, start_id=size - 1, end_id=0)


def _reordered(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    """The dimensions of vectors in another order, wherever a tensor has them."""
    if WRITES.search(name):
        return tensor[order]
    return tensor[:, order] if READS.search(name) else tensor
