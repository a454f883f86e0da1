"""Published weights for the slow tests, unpacked by scripts/fetch-weights, and texts that just fit a model."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kinfolk.api.loaded import Encoder

HERE = Path(__file__).resolve().parents[1] / "runs" / "weights"


def published(name: str) -> Path:
    """The folder of a published model below $KINFOLK_WEIGHTS (by default runs/weights)."""
    folder = Path(os.environ.get("KINFOLK_WEIGHTS") or HERE) / name
    if not (folder / "config.json").is_file():
        pytest.skip(f"no weights of {name}: run ./scripts/fetch-weights")
    return folder


def mpnet() -> Path:
    """all-mpnet-base-v2: MPNet, 12 layers, in safetensors, with modules.json."""
    return published("all-mpnet-base-v2")


def m3e_small() -> Path:
    """m3e-small: a Chinese BERT of 4 layers, as a pickle."""
    return published("m3e-small")


def cut_to(encoder: Encoder, texts: list[str], most: int) -> list[str]:
    """Texts of more than `most` tokens, special ones included, end where they have exactly so many."""
    return [
        text if len(encoding) <= most else text[: encoding.offsets[most - 2][1]]
        for text, encoding in zip(texts, encoder.tokenizer.encode_many(texts), strict=True)
    ]


def longest(encoder: Encoder, texts: list[str]) -> int:
    """Tokens of the longest text, special ones included."""
    return max(len(encoding) for encoding in encoder.tokenizer.encode_many(texts))
