"""Texts to vectors: tokenise, pack by token budget, run, pool, put windows together.

Texts are read in chunks, so memory does not grow with their number, only with the longest; within a chunk they are
sorted by length, and the next chunk is tokenised while this one is computed.

In files, pooled vectors are .npy, (texts, D) in float32. Without pooling texts differ in length, so they are .jsonl:
one object per text, with its tokens, their offsets and their vectors. A file appears when it is complete.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import torch
from torch import Tensor

from kinfolk.api.layers import LayerChoice
from kinfolk.data.batching import BATCH_TOKENS, token_batches, weighted_chunks
from kinfolk.data.npy import NpyWriter
from kinfolk.errors import InputError
from kinfolk.files import atomic_write
from kinfolk.machine import trim_memory
from kinfolk.models.family import Model
from kinfolk.nn.packed import Layout, Tokens, pack_for
from kinfolk.nn.trace import Trace
from kinfolk.tasks.windows import CutCount, TextWindow, check_text, split_texts
from kinfolk.text.tokenizer import Text, Tokenizer

if TYPE_CHECKING:
    from kinfolk.api.loaded import Encoder

POOLS = ("first", "mean", "max", "none")
CHUNK_TEXTS = 2048
CHUNK_CHARACTERS = 2**19
CHUNKS_HELD = 8  # before memory that is free is handed back: each time costs some page faults
TOKEN_NUMBERS = 2**24  # of a chunk whose vectors stay apart, at four characters a token
SHORTEST = 1e-12  # vectors that are shorter are not made longer than one
Report = Callable[[int], None]  # called with the number of texts that were just done


@dataclass(frozen=True)
class TokenVectors:
    """One text's vectors before pooling: row i belongs to token i, and to the characters `offsets[i]` of the text.

    For a pair, `sequences[i]` tells which text (0 or 1, None for special tokens).
    """

    vectors: np.ndarray
    offsets: list[tuple[int, int]]
    tokens: list[str]
    words: list[int | None]
    sequences: list[int | None]


@dataclass(frozen=True)
class EmbedSettings:
    """How vectors are made."""

    layers: LayerChoice
    pool: str
    normalize: bool
    size: int  # tokens that the model reads at once
    on_long: str
    stride: int | None = None  # tokens that neighbouring windows share
    prefix: str = ""
    lowercase: bool = False


def embed_chunks(
    model: Model,
    tokenizer: Tokenizer,
    texts: Iterable[Text],
    settings: EmbedSettings,
    trace: Trace | None = None,
    report: Report | None = None,
) -> Iterator[np.ndarray | list[TokenVectors]]:
    """Vectors of a chunk of texts at a time, in order: (texts, D), or a list of TokenVectors without pooling.

    `report` hears after every batch how many more texts are done.
    """
    cut = CutCount()
    maximum = CHUNK_CHARACTERS
    if settings.pool == "none":
        maximum = min(maximum, 4 * TOKEN_NUMBERS // (model.config.width * settings.layers.width_factor))

    def prepare(first: int, chunk: list[Text]) -> list[TextWindow]:
        ready = [_prepared(text, first + index, settings) for index, text in enumerate(chunk)]
        size, on_long, stride = settings.size, settings.on_long, settings.stride
        return split_texts(tokenizer, ready, size, on_long, cut, lambda index: f"text {first + index}", stride)

    for parts, count in _ahead(prepare, weighted_chunks(texts, CHUNK_TEXTS, _characters, maximum)):
        yield _compute(model, parts, count, settings, trace, report)
    cut.report()


def stacked(chunks: Iterator[np.ndarray], width: int) -> np.ndarray:
    """(n, width): the rows of all chunks in one array, which grows by half when it is full.

    A chunk is given up as soon as it is copied: all of them kept until the last would hold the memory twice. The holes
    that batches leave in the heap go back to the system now and then.
    """
    rows = next(chunks, np.empty((0, width), dtype=np.float32))
    count = len(rows)
    for number, chunk in enumerate(chunks, 2):
        if count + len(chunk) > len(rows):
            rows.resize((max(count + len(chunk), count * 3 // 2), width), refcheck=False)
        rows[count : count + len(chunk)] = chunk
        count += len(chunk)
        if number % CHUNKS_HELD == 0:
            trim_memory()
    if count < len(rows):
        rows.resize((count, width), refcheck=False)
    return rows


def _characters(text: Text) -> int:
    """Of a text or a pair; what is neither is refused when it is prepared."""
    if isinstance(text, tuple):
        return sum(len(part) for part in text if isinstance(part, str))
    return len(text) if isinstance(text, str) else 0


def _ahead(
    prepare: Callable[[int, list[Text]], list[TextWindow]], source: Iterator[tuple[int, list[Text]]]
) -> Iterator[tuple[list[TextWindow], int]]:
    """Batch chunks and their sizes, the next one in the making while this one is used."""
    this = next(source, None)
    if this is None:
        return
    parts = prepare(*this)
    following = next(source, None)
    if following is None:  # a thread would only cost time
        yield parts, len(this[1])
        return
    with ThreadPoolExecutor(1) as pool:
        while following is not None:
            waiting = pool.submit(prepare, *following)
            yield parts, len(this[1])
            parts, this, following = waiting.result(), following, next(source, None)
        yield parts, len(this[1])


def _prepared(text: Text, number: int, settings: EmbedSettings) -> Text:
    text = check_text(text, f"text {number}")
    if settings.lowercase:
        text = text.lower() if isinstance(text, str) else (text[0].lower(), text[1].lower())
    if settings.prefix:
        text = settings.prefix + text if isinstance(text, str) else (settings.prefix + text[0], text[1])
    return text


def _compute(
    model: Model,
    parts: list[TextWindow],
    texts: int,
    settings: EmbedSettings,
    trace: Trace | None,
    report: Report | None,
) -> np.ndarray | list[TokenVectors]:
    lengths = [len(part.encoding) for part in parts]
    # A trace keeps the order of the texts; otherwise neighbours of equal length are faster.
    batches = [[index] for index in range(len(parts))] if trace is not None else token_batches(lengths, BATCH_TOKENS)
    width = model.config.width * settings.layers.width_factor
    pooled = np.empty((len(parts), width), dtype=np.float32)
    loose: list[np.ndarray] = [pooled] * len(parts)
    waiting = Counter() if report is None else Counter(part.text for part in parts)
    with torch.inference_mode():
        for batch in batches:
            encodings = [parts[index].encoding for index in batch]
            vectors, layout = _run(model, [e.ids for e in encodings], [e.segments for e in encodings], settings, trace)
            if settings.pool == "none":
                for index, rows in zip(batch, layout.split(vectors.cpu()), strict=True):
                    loose[index] = _unit(rows.float().numpy(), settings.normalize)
            else:
                pooled[batch] = getattr(layout, settings.pool)(vectors).float().cpu().numpy()
            if report is not None:
                waiting.subtract(parts[index].text for index in batch)
                report(len({parts[index].text for index in batch if waiting[parts[index].text] == 0}))
    if trace is not None:
        trace.encodings += [part.encoding for part in parts]
    if settings.pool == "none":
        return _join_tokens(parts, loose, texts)
    return _join_windows(parts, pooled, texts, settings)


def _run(
    model: Model, ids: list[list[int]], segments: list[list[int]], settings: EmbedSettings, trace: Trace | None
) -> tuple[Tensor, Layout]:
    tokens = packed(model, ids, segments)
    choice = settings.layers
    if trace is not None:
        model(tokens, trace)
        if trace.wants_hidden:
            return choice.combine(trace.packed), tokens.layout
    if len(choice.numbers) == 1:
        return model(tokens, depth=choice.depth), tokens.layout
    layers = Trace(attention=False)
    model(tokens, layers, choice.depth)
    return choice.combine(layers.packed), tokens.layout


def packed(model: Model, ids: Sequence[Sequence[int]], segments: Sequence[Sequence[int]]) -> Tokens:
    """A batch on the model's device."""
    return pack_for(model.config.segments, ids, segments, model.device)


def _unit(vectors: np.ndarray, normalize: bool) -> np.ndarray:
    """(rows, width), each row of length one where that is wanted; a row of zeros stays one."""
    if not normalize:
        return vectors
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    unit: np.ndarray = vectors / np.maximum(lengths, SHORTEST)[:, None]
    return unit


def _join_windows(parts: list[TextWindow], pooled: np.ndarray, texts: int, settings: EmbedSettings) -> np.ndarray:
    """(windows, D) -> (texts, D): windows of one text by weighted mean, or by maximum."""
    vectors = pooled
    if len(parts) != texts:
        owners = np.array([part.text for part in parts])
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        if settings.pool == "max":
            vectors = np.maximum.reduceat(pooled, starts)
        else:
            weights = np.array([part.weight for part in parts], dtype=np.float32)
            totals = np.add.reduceat(weights, starts)
            vectors = np.add.reduceat(pooled * weights[:, None], starts) / totals[:, None]
    return _unit(vectors, settings.normalize)


def _join_tokens(parts: list[TextWindow], loose: list[np.ndarray], texts: int) -> list[TokenVectors]:
    """Each token once, from the window that owns it."""
    windows: list[list[int]] = [[] for _ in range(texts)]
    for index, part in enumerate(parts):
        windows[part.text].append(index)
    results = []
    for indices in windows:
        owned = [(parts[index], slice(*parts[index].own), loose[index]) for index in indices]
        results.append(
            TokenVectors(
                np.concatenate([vectors[own] for _, own, vectors in owned]),
                [offset for part, own, _ in owned for offset in part.encoding.offsets[own]],
                [token for part, own, _ in owned for token in part.encoding.tokens[own]],
                [word for part, own, _ in owned for word in part.encoding.word_ids[own]],
                [side for part, own, _ in owned for side in part.encoding.sequence_ids[own]],
            )
        )
    return results


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
            # Nine digits restore each float32; half the time and size of json's.
            digits = "[" + ", ".join(["%.9g"] * text.vectors.shape[1]) + "]"
            vectors = ", ".join(digits % tuple(vector) for vector in text.vectors.tolist())
            stream.write(f'{row[:-1]}, "vectors": [{vectors}]}}\n'.encode())
        count += len(chunk)
        trim_memory()
    return count
