"""Tiny random models as the reference library builds them, and ragged batches for them and for ours.

Every weight is random, biases and norms included: a tensor in the wrong place cannot hide behind a zero or a one.
Weights are float32 numbers; the comparisons are made in float64.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from kinfolk.checkpoints.folder import read_checkpoint
from kinfolk.models.family import Model
from kinfolk.nn.packed import Tokens, pack

LENGTHS = (1, 7, 3, 12, 12, 30)
LABELS = 3
SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 34,
    "layer_norm_eps": 0.01,
    "num_labels": LABELS,
}
DISTIL = {"vocab_size": 40, "dim": 16, "n_layers": 3, "n_heads": 4, "hidden_dim": 24, "num_labels": LABELS}
CASES: dict[str, tuple[str, dict[str, Any]]] = {  # case: the classes' prefix and their settings
    "bert": ("Bert", SIZES),
    "roberta": ("Roberta", SIZES),
    "albert": ("Albert", SIZES | {"embedding_size": 6}),
    "albert, two groups": ("Albert", SIZES | {"embedding_size": 6, "num_hidden_groups": 2}),
    "distilbert": ("DistilBert", DISTIL | {"max_position_embeddings": 34}),
    "mpnet": ("MPNet", SIZES),
}
HEADS = {  # suffix of the reference's class: our heads
    "ForMaskedLM": ["masked_lm"],
    "ForSequenceClassification": ["classify"],
    "ForTokenClassification": ["tag"],
    "ForQuestionAnswering": ["span"],
    "ForMultipleChoice": ["choose"],
}
PAIR_HEADS = {
    "bert": {"ForPreTraining": ["masked_lm", "next_sentence"], "ForNextSentencePrediction": ["next_sentence"]},
    "albert": {"ForPreTraining": ["masked_lm", "sentence_order"]},
}
WITH_HEADS = [
    (case, suffix, names)
    for case in CASES
    for suffix, names in (HEADS | PAIR_HEADS.get(case.split(",")[0], {})).items()
]


def their_model(case: str, suffix: str = "Model", seed: int = 0, **changes: Any) -> Any:
    """A random model of the reference library, in float32."""
    prefix, settings = CASES[case]
    if suffix == "ForQuestionAnswering":
        settings = settings | {"num_labels": 2}
    config = getattr(transformers, f"{prefix}Config")(**(settings | changes))
    config._attn_implementation = "eager"  # the kernel that shows its weights
    return randomise(getattr(transformers, prefix + suffix)(config), seed).eval()


def randomise(model: Any, seed: int = 0) -> Any:
    """Every weight a random number; norms stay near one, so that no layer drowns the next."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            for name, weight in module.named_parameters(recurse=False):
                middle = 1.0 if isinstance(module, nn.LayerNorm) and name == "weight" else 0.0
                weight.copy_(middle + 0.3 * torch.randn(weight.shape, generator=generator))
    return model


def our_model(folder: Path, **options: Any) -> Model:
    """What we read from a folder, in float64."""
    return read_checkpoint(folder, **options).model.double()


def both(case: str, suffix: str, folder: Path, **changes: Any) -> tuple[Any, Model]:
    """The reference's model and ours, read from the folder that the reference wrote."""
    theirs = their_model(case, suffix, **changes)
    theirs.save_pretrained(folder)
    return theirs.double(), our_model(folder)


def ragged(lengths: Sequence[int] = LENGTHS, pairs: bool = False, seed: int = 0) -> tuple[list[Any], list[Any]]:
    """Random ids (above all special ones) and segments; with `pairs`, a second segment begins somewhere."""
    rng = random.Random(seed)
    ids = [[rng.randrange(5, SIZES["vocab_size"]) for _ in range(length)] for length in lengths]
    borders = [rng.randrange(1, length + 1) if pairs else length for length in lengths]
    segments = [[int(place >= border) for place in range(len(row))] for row, border in zip(ids, borders, strict=True)]
    return ids, segments


def has_segments(case: str) -> bool:
    """BERT and ALBERT tell the texts of a pair apart."""
    return case.startswith(("bert", "albert"))


def batch_for(case: str, ids: list[Any], segments: list[Any]) -> Tokens:
    """The packed batch as our models take it."""
    return pack(ids, segments if has_segments(case) else None)


def one_by_one(model: Any, case: str, ids: list[Any], segments: list[Any], **options: Any) -> list[Any]:
    """The reference's outputs for each sequence alone: no padding, no mask; to choose from, it is the only option."""
    outputs = []
    lone = (1, 1, -1) if type(model).__name__.endswith("ForMultipleChoice") else (1, -1)
    with torch.no_grad():
        for row, kinds in zip(ids, segments, strict=True):
            given = {"input_ids": torch.tensor(row).view(lone)}
            if has_segments(case):
                given["token_type_ids"] = torch.tensor(kinds).view(lone)
            outputs.append(model(**given, **options))
    return outputs


def close(found: Tensor | Sequence[Tensor], expected: Tensor | Sequence[Tensor]) -> None:
    """Equal within 1e-9, in float64."""
    assert (found[0] if not isinstance(found, Tensor) else found).dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
