"""Vectors of many texts, written to a file while they are computed: memory does not grow with their number.

Pooled vectors go to a .npy file, (texts, D) in float32. Without pooling texts differ in length, so they go to a .jsonl
file: one object per text, with its tokens, their offsets and their vectors. The file appears when it is complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from kinfolk.api.embed import EmbedSettings, Report
from kinfolk.data.npy import NpyWriter
from kinfolk.errors import InputError
from kinfolk.files import atomic_write
from kinfolk.machine import trim_memory

if TYPE_CHECKING:
    from kinfolk.api.loaded import Encoder


def embed_file(
    encoder: Encoder,
    texts: Iterable[str],
    path: str | Path,
    settings: EmbedSettings,
    report: Report = lambda done: None,
) -> int:
    """Write the vectors of all texts to `path`; the number of texts."""
    suffix = ".jsonl" if settings.pool == "none" else ".npy"
    if Path(path).suffix.lower() != suffix:
        raise InputError(f'{path}: vectors with pool="{settings.pool}" are written to a file that ends in {suffix}')
    write = _write_tokens if settings.pool == "none" else write_vectors
    with atomic_write(Path(path)) as stream:
        return write(stream, encoder, texts, settings, report)


def write_vectors(
    stream: BinaryIO, encoder: Encoder, texts: Iterable[str], settings: EmbedSettings, report: Report
) -> int:
    """The .npy file of pooled vectors."""
    writer = NpyWriter(stream, (encoder.embed_width(settings),))
    for chunk in encoder.embed_stream(texts, settings, report):
        assert isinstance(chunk, np.ndarray)
        writer.append(chunk)
        trim_memory()
    writer.finish()
    return writer.count


def _write_tokens(
    stream: BinaryIO, encoder: Encoder, texts: Iterable[str], settings: EmbedSettings, report: Report
) -> int:
    count = 0
    for chunk in encoder.embed_stream(texts, settings, report):
        assert isinstance(chunk, list)
        for text in chunk:
            row = json.dumps({"tokens": text.tokens, "offsets": text.offsets}, ensure_ascii=False)
            stream.write(f'{row[:-1]}, "vectors": {_digits(text.vectors)}}}\n'.encode())
        count += len(chunk)
        trim_memory()
    return count


def _digits(vectors: np.ndarray) -> str:
    """Rows of float32 as JSON with nine digits, which restore each number; half the time and size of json's."""
    row = "[" + ", ".join(["%.9g"] * vectors.shape[1]) + "]"
    return "[" + ", ".join(row % tuple(numbers) for numbers in vectors.tolist()) + "]"
