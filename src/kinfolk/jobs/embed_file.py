"""Vectors of many texts, written to a file while they are computed: memory does not grow with their number.

Pooled vectors go to a .npy file, (texts, D) in float32. Without pooling texts differ in length, so they go to a .jsonl
file: one object a text, with its tokens, their offsets and their vectors. The file takes its place when it is whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from kinfolk.data.npy import NpyWriter
from kinfolk.errors import InputError
from kinfolk.files import replacing
from kinfolk.jobs.embed import EmbedSettings
from kinfolk.jobs.loaded import Encoder
from kinfolk.machine import give_back

Report = Callable[[int], None]  # called with the number of texts that were just done


def embed_file(
    encoder: Encoder,
    texts: Iterable[str],
    path: str | Path,
    settings: EmbedSettings,
    report: Report = lambda done: None,
) -> int:
    """Write the vectors of all texts to `path`; how many texts there were."""
    suffix = ".jsonl" if settings.pool == "none" else ".npy"
    if Path(path).suffix != suffix:
        raise InputError(f'{path}: vectors with pool="{settings.pool}" are written to a file that ends in {suffix}')
    write = _write_tokens if settings.pool == "none" else write_vectors
    with replacing(Path(path)) as stream:
        return write(stream, encoder, texts, settings, report)


def write_vectors(
    stream: BinaryIO, encoder: Encoder, texts: Iterable[str], settings: EmbedSettings, report: Report
) -> int:
    """The .npy file of pooled vectors."""
    writer = NpyWriter(stream, (encoder.embed_width(settings),))
    for chunk in encoder.embed_stream(texts, settings):
        assert isinstance(chunk, np.ndarray)
        writer.append(chunk)
        report(len(chunk))
        give_back()
    writer.finish()
    return writer.count


def _write_tokens(
    stream: BinaryIO, encoder: Encoder, texts: Iterable[str], settings: EmbedSettings, report: Report
) -> int:
    count = 0
    for chunk in encoder.embed_stream(texts, settings):
        assert isinstance(chunk, list)
        for text in chunk:
            row = {"tokens": text.tokens, "offsets": text.offsets, "vectors": text.vectors.tolist()}
            stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        count += len(chunk)
        report(len(chunk))
        give_back()
    return count
