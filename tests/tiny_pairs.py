"""Tiny random text-to-text models, ours and the reference's, and ragged pairs for them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from kinfolk.checkpoints.folder import read_checkpoint
from kinfolk.models.family import Model
from kinfolk.models.registry import family
from kinfolk.nn.packed import Tokens, pack
from tiny import randomise

SIZES: dict[str, Any] = {
    "vocabulary_size": 30,
    "width": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "heads": 4,
    "inner_width": 24,
    "positions": 80,
}
SOURCES, TARGETS = (1, 7, 3, 12, 12, 30), (4, 1, 9, 2, 12, 6)
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "two tables, bias, silu": {
        "shared_tables": False, "target_vocabulary_size": 23, "output_bias": True, "activation": "silu",
        "scale_embedding": False, "sinusoid": "halves",
    },
}  # fmt: skip
MARIAN: dict[str, Any] = {
    "vocab_size": 30,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 80,
    "activation_function": "swish",
    "scale_embedding": True,
    "pad_token_id": 29,
    "decoder_start_token_id": 29,
}
MARIANS: dict[str, dict[str, Any]] = {
    "shared": {},
    "two tables": {
        "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23, "pad_token_id": 22,
        "decoder_start_token_id": 22,
    },
    "relu, not scaled": {"activation_function": "relu", "scale_embedding": False},
}  # fmt: skip


def our_transformer(seed: int = 0, **changes: Any) -> Model:
    """A random model of ours, in float64."""
    kin = family("kinfolk-transformer")
    return randomise(Model(kin, kin.config.make(**SIZES | changes)), seed).double().eval()  # type: ignore[no-any-return]


def their_marian(seed: int = 0, **changes: Any) -> Any:
    """A random model of the reference library, in float32; its sinusoids stay what they are."""
    config = transformers.MarianConfig(**MARIAN | changes)
    config._attn_implementation = "eager"  # the kernel that shows its weights
    model = transformers.MarianMTModel(config)
    places = [module.embed_positions.weight.clone() for module in (model.model.encoder, model.model.decoder)]
    randomise(model, seed)
    with torch.no_grad():
        model.model.encoder.embed_positions.weight.copy_(places[0])
        model.model.decoder.embed_positions.weight.copy_(places[1])
        model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape, generator=_generator(seed)))
    return model.eval()


def both_marians(folder: Path, **changes: Any) -> tuple[Any, Model]:
    """The reference's model and ours, read from the folder that the reference wrote; both in float64."""
    theirs = their_marian(**changes)
    theirs.save_pretrained(folder)
    return theirs.double(), read_checkpoint(folder).model.double()


def rows(lengths: Sequence[int], seed: int = 0, vocabulary: int = 20) -> list[list[int]]:
    """Random ids above the special ones."""
    rng = random.Random(seed)
    return [[rng.randrange(3, vocabulary) for _ in range(length)] for length in lengths]


def pairs(sources: Sequence[int] = SOURCES, targets: Sequence[int] = TARGETS) -> tuple[Tokens, Tokens]:
    """Packed sources and targets."""
    return pack(rows(sources)), pack(rows(targets, seed=1))


def stepped(model: Model, source: Tokens, written: Tensor, beams: int = 1) -> Tensor:
    """Scores (rows, steps, vocabulary) of a model that is fed `written` (rows, steps), a token at a time."""
    state = model.start(source, beams)
    scores = []
    for ids in written.unbind(1):
        found, state = model.step(ids, state)
        scores.append(found)
    return torch.stack(scores, 1)


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed + 99)
