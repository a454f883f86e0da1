"""Texts to vectors: tokenize, pack by token budget, run, pool, put windows together.

Texts are read in chunks, so memory does not grow with their number, only with the longest; within a chunk they are
sorted by length, and the next chunk is tokenized while this one is computed.

In files, pooled vectors are .npy, (texts, D) in float32. Without pooling texts differ in length, so they are .jsonl:
one object per text, with its tokens, their offsets and their vectors. A file appears when it is complete.
"""

from __future__ import annotations

import json
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from kinfolk.checkpoints.folder import SentenceRecipe, TextModel
from kinfolk.data.batching import BATCH_TOKENS, token_batches, weighted_chunks
from kinfolk.data.writers import NpyWriter, OnDone
from kinfolk.errors import InputError, check_choice, check_collection
from kinfolk.files import atomic_write
from kinfolk.machine import trim_memory
from kinfolk.models.family import Model
from kinfolk.nn.packed import Tokens, pack_for
from kinfolk.nn.trace import Trace
from kinfolk.text.tokenizer import Text
from kinfolk.text.windows import ON_LONG, CutCount, Location, TextWindow, Windows, check_text, split_texts

LAYERS = ("first", "last", "second_to_last", "sum_last_4", "concat_last_4", "sum_all")
POOLS = ("first", "last", "mean", "max", "none")
Pool = Literal["first", "cls", "last", "mean", "max"]  # that gives one vector per text
CHUNK_TEXTS = 2048
CHUNK_CHARACTERS = 2**19
CHUNKS_HELD = 8  # before memory that is free is handed back: each time costs some page faults
TOKEN_NUMBERS = 2**24  # of a chunk whose vectors stay apart, at four characters a token
SHORTEST = 1e-12  # vectors that are shorter are not made longer than one


@dataclass(frozen=True)
class LayerChoice:
    """Layers of a model, 0 the embedding output, summed or concatenated."""

    indices: tuple[int, ...]
    summed: bool = False

    def combine(self, layers: Sequence[Tensor]) -> Tensor:
        """`layers[i]` is layer i, (tokens, width) each -> (tokens, D)."""
        wanted = [layers[index] for index in self.indices]
        if len(wanted) == 1:
            return wanted[0]
        return torch.stack(wanted).sum(0) if self.summed else torch.cat(wanted, dim=-1)


def choose_layers(wanted: str | int | Sequence[int] | np.ndarray, layers: int) -> LayerChoice:
    """The layers that a name or indices mean in a model with `layers` layers.

    >>> choose_layers("sum_last_4", layers=12)
    LayerChoice(indices=(9, 10, 11, 12), summed=True)
    """
    if isinstance(wanted, str):
        least = {"sum_last_4": 4, "concat_last_4": 4, "sum_all": 1}.get(check_choice("layers", wanted, LAYERS), 0)
        if layers < least:
            raise InputError(f'layers="{wanted}" needs {least} layers; this model has {layers}')
        if least:
            first = 1 if wanted == "sum_all" else layers - 3
            return LayerChoice(tuple(range(first, layers + 1)), summed=wanted.startswith("sum"))
        return LayerChoice(({"first": 0, "last": layers, "second_to_last": max(layers - 1, 0)}[wanted],))
    try:
        indices = [operator.index(index) for index in np.atleast_1d(np.asarray(wanted, dtype=object)).tolist()]
    except TypeError:
        indices = []
    if not indices or not all(0 <= index <= layers for index in indices):
        raise InputError(f"layers={wanted!r}: this model has layers 0 (embedding output) to {layers}")
    return LayerChoice(tuple(indices))


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


Vectors = np.ndarray | list[TokenVectors]  # of a chunk: (texts, D), or without pooling those of each text


@dataclass(frozen=True)
class EmbedSettings:
    layers: LayerChoice
    pool: str
    normalize: bool
    size: int  # tokens that the model reads at once
    on_long: str
    stride: int | None = None  # tokens that neighbouring windows share
    prefix: str = ""
    lowercase: bool = False


def embed_settings(
    encoder: TextModel,
    layers: str | Sequence[int] | np.ndarray | None = None,
    pool: str | None = None,
    normalize: bool | None = None,
    on_long: str = "window",
    window: int | None = None,
    stride: int | None = None,
) -> EmbedSettings:
    """What `embed` will do with these arguments on this model."""
    choice = choose_layers("last" if layers is None else layers, encoder.model.config.layers)
    check_choice("on_long", on_long, ON_LONG)
    recipe = encoder.recipe if layers is None and pool is None else None
    if recipe is None:
        named = "mean" if pool is None else "first" if pool == "cls" else pool
        recipe = SentenceRecipe(check_choice("pool", named, POOLS))
    context, specials = encoder.context, encoder.tokenizer.special_tokens_count()
    size = Windows(window, stride).size(min(context, recipe.max_length or context), specials)
    unit = recipe.normalize if normalize is None else bool(normalize)
    return EmbedSettings(choice, recipe.pool, unit, size, on_long, stride, recipe.prompt, recipe.lowercase)


def embed_width(encoder: TextModel, settings: EmbedSettings) -> int:
    """D, the length of a vector."""
    layers, width = settings.layers, int(encoder.model.config.width)
    return width if layers.summed else width * len(layers.indices)


class EmbedOptions(TypedDict, total=False):
    """What `embed` takes by name, besides pool."""

    layers: str | Sequence[int] | np.ndarray | None
    normalize: bool | None
    on_long: str
    trace: Trace | None
    window: int | None
    stride: int | None


@overload
def embed_texts(  # type: ignore[overload-overlap] # a string is a collection of strings too, but one text here
    encoder: TextModel, texts: Text, *, pool: Literal["none"], **options: Unpack[EmbedOptions]
) -> TokenVectors: ...
@overload
def embed_texts(
    encoder: TextModel, texts: Iterable[Text], *, pool: Literal["none"], **options: Unpack[EmbedOptions]
) -> list[TokenVectors]: ...
@overload
def embed_texts(
    encoder: TextModel, texts: Text | Iterable[Text], *, pool: Pool | None = None, **options: Unpack[EmbedOptions]
) -> np.ndarray: ...
def embed_texts(
    encoder: TextModel,
    texts: Text | Iterable[Text],
    layers: str | Sequence[int] | np.ndarray | None = None,
    pool: str | None = None,
    normalize: bool | None = None,
    on_long: str = "window",
    trace: Trace | None = None,
    window: int | None = None,
    stride: int | None = None,
) -> np.ndarray | TokenVectors | list[TokenVectors]:
    """Vectors of texts: (D,) for one string or one pair (a tuple of two), (n, D) for a list or generator.

    `layers`: "first", "last", "second_to_last", "sum_last_4", "concat_last_4", "sum_all" or a list of numbers.
    `pool`: "first" or "cls" ([CLS]), "last" (of GPT the one that has read all), "mean" (over all tokens), "max", or
    "none" for TokenVectors with offsets.
    Without `layers` and `pool`, a folder with modules.json is followed: its pooling, normalisation and maximum
    length; other folders give the mean of the last layer.
    `on_long`: texts longer than the model are read in overlapping windows ("window"), cut with a CutWarning that
    counts the tokens ("cut"), or refused ("error"). A `window` of fewer tokens than the model reads makes texts
    long earlier; neighbouring windows share `stride` tokens, or a quarter of what fits.
    `trace`: a `kinfolk.Trace` that receives every layer's vectors, attention weights and scores.
    """
    settings = embed_settings(encoder, layers, pool, normalize, on_long, window, stride)
    single = isinstance(texts, str | tuple)
    source = [texts] if single else check_collection(texts, "a text, a pair or a collection of texts")
    chunks = embed_chunks(encoder, source, settings, trace=trace)  # type: ignore[arg-type]
    if settings.pool == "none":
        vectors: Vectors = [item for chunk in chunks for item in chunk]
    else:
        vectors = _stacked(chunks, embed_width(encoder, settings))  # type: ignore[arg-type]
    return vectors[0] if single else vectors


def embed_chunks(
    encoder: TextModel,
    texts: Iterable[Text],
    settings: EmbedSettings,
    report: OnDone | None = None,
    trace: Trace | None = None,
    location: Location = "text {}".format,
) -> Iterator[Vectors]:
    """Vectors of a chunk of texts at a time, in order."""
    cut, maximum = CutCount(), CHUNK_CHARACTERS
    if settings.pool == "none":
        maximum = min(maximum, 4 * TOKEN_NUMBERS // embed_width(encoder, settings))

    def prepared(text: Text, index: int) -> Text:
        text = check_text(text, location(index))
        first, *second = (text,) if isinstance(text, str) else text
        if settings.lowercase:
            first, *second = first.lower(), *(side.lower() for side in second)
        return (settings.prefix + first, *second) if second else settings.prefix + first  # type: ignore[return-value]

    def prepare(first: int, chunk: list[Text]) -> list[TextWindow]:
        ready = [prepared(text, first + index) for index, text in enumerate(chunk)]
        size, on_long, stride = settings.size, settings.on_long, settings.stride
        return split_texts(encoder.tokenizer, ready, size, on_long, cut, lambda index: location(first + index), stride)

    source = weighted_chunks(texts, CHUNK_TEXTS, _characters, maximum)
    with ThreadPoolExecutor(1) as pool:  # makes the next chunk ready while this one is computed (one alone: no thread)
        for first, chunk in source:
            parts, count = prepare(first, chunk), len(chunk)
            for following in source:
                waiting = pool.submit(prepare, *following)
                yield _compute(encoder, parts, count, settings, trace, report)
                parts, count = waiting.result(), len(following[1])
            yield _compute(encoder, parts, count, settings, trace, report)
    cut.report()


def _stacked(chunks: Iterator[np.ndarray], width: int) -> np.ndarray:
    """(n, width): the rows of all chunks in one array, which grows by half when it is full.

    A chunk is given up as soon as it is copied: all of them kept until the last would hold the memory twice. The holes
    that batches leave in the heap go back to the system now and then.
    """
    rows = next(chunks, np.empty((0, width), dtype=np.float32))
    count = len(rows)
    for done, chunk in enumerate(chunks, 2):
        if count + len(chunk) > len(rows):
            rows.resize((max(count + len(chunk), count * 3 // 2), width), refcheck=False)
        rows[count : count + len(chunk)] = chunk
        count += len(chunk)
        if done % CHUNKS_HELD == 0:
            trim_memory()
    if count < len(rows):
        rows.resize((count, width), refcheck=False)
    return rows


def _characters(text: Text) -> int:
    """Of a text or a pair; what is neither is refused when it is prepared."""
    return sum(len(part) for part in (text if isinstance(text, tuple) else (text,)) if isinstance(part, str))


def _compute(
    encoder: TextModel,
    parts: list[TextWindow],
    texts: int,
    settings: EmbedSettings,
    trace: Trace | None,
    report: OnDone | None,
) -> Vectors:
    lengths = [len(part.encoding) for part in parts]
    # A trace keeps the order of the texts; otherwise neighbours of equal length are faster.
    batches = [[index] for index in range(len(parts))] if trace is not None else token_batches(lengths, BATCH_TOKENS)
    pooled = np.empty((len(parts), embed_width(encoder, settings)), dtype=np.float32)
    loose: list[np.ndarray] = [pooled] * len(parts)
    waiting = Counter() if report is None else Counter(part.text for part in parts)
    with torch.inference_mode():
        for batch in batches:
            encodings = [parts[index].encoding for index in batch]
            ids, segments = [each.ids for each in encodings], [each.segments for each in encodings]
            tokens = pack_for(encoder.model.config.segments, ids, segments, encoder.device)
            vectors, layout = _run(encoder.model, tokens, settings.layers, trace), tokens.layout
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
        return _join_tokens(parts, loose)
    return _join_windows(parts, pooled, texts, settings)


def _run(model: Model, tokens: Tokens, choice: LayerChoice, trace: Trace | None) -> Tensor:
    depth = max(choice.indices)
    if trace is not None:
        model(tokens, trace)
        if trace.wants_hidden:
            return choice.combine(trace.packed)
    if len(choice.indices) == 1:
        vectors: Tensor = model(tokens, depth=depth)
        return vectors
    layers = Trace(attention=False)
    model(tokens, layers, depth)
    return choice.combine(layers.packed)


def _unit(vectors: np.ndarray, normalize: bool) -> np.ndarray:
    """(rows, width), each row of length one where that is wanted; a row of zeros stays one."""
    if not normalize:
        return vectors
    unit: np.ndarray = vectors / np.maximum(np.sqrt(np.einsum("nd,nd->n", vectors, vectors)), SHORTEST)[:, None]
    return unit


def _join_windows(parts: list[TextWindow], pooled: np.ndarray, texts: int, settings: EmbedSettings) -> np.ndarray:
    """(windows, D) -> (texts, D): windows of one text by weighted mean, or by maximum."""
    vectors = pooled
    if len(parts) != texts:
        starts = np.flatnonzero(np.diff([part.text for part in parts], prepend=-1))
        if settings.pool == "max":
            vectors = np.maximum.reduceat(pooled, starts)
        else:
            weights = np.array([part.weight for part in parts], dtype=np.float32)
            totals = np.add.reduceat(weights, starts)
            vectors = np.add.reduceat(pooled * weights[:, None], starts) / totals[:, None]
    return _unit(vectors, settings.normalize)


def _join_tokens(parts: list[TextWindow], loose: list[np.ndarray]) -> list[TokenVectors]:
    """Each token once, from the window that owns it."""
    results, names = [], ("offsets", "tokens", "word_ids", "sequence_ids")
    for _, windows in groupby(zip(parts, loose, strict=True), lambda window: window[0].text):
        owned = [(part.encoding, slice(*part.own), rows) for part, rows in windows]
        facts = [[fact for each, own, _ in owned for fact in getattr(each, name)[own]] for name in names]
        results.append(TokenVectors(np.concatenate([rows[own] for _, own, rows in owned]), *facts))
    return results


def embed_file(
    encoder: TextModel,
    texts: Iterable[str],
    path: str | Path,
    settings: EmbedSettings,
    report: OnDone = lambda done: None,
    location: Location = "text {}".format,
) -> int:
    """Write the vectors of all texts to `path`; the number of texts. Messages name a text by its `location`."""
    suffix = ".jsonl" if settings.pool == "none" else ".npy"
    if Path(path).suffix.lower() != suffix:
        raise InputError(f'{path}: vectors with pool="{settings.pool}" are written to a file that ends in {suffix}')
    with atomic_write(Path(path)) as stream:
        return write_vectors(stream, encoder, texts, settings, report, location)


def write_vectors(
    stream: BinaryIO,
    encoder: TextModel,
    texts: Iterable[str],
    settings: EmbedSettings,
    report: OnDone,
    location: Location = "text {}".format,
) -> int:
    """As a .npy file or, without pooling, as lines of JSON; the number of texts."""
    writer = None if settings.pool == "none" else NpyWriter(stream, (embed_width(encoder, settings),))
    count = 0
    for chunk in embed_chunks(encoder, texts, settings, report, location=location):
        if isinstance(chunk, list):
            stream.writelines(map(_json_line, chunk))
        elif writer is not None:
            writer.append(chunk)
        count += len(chunk)
        trim_memory()
    if writer is not None:
        writer.finish()
    return count


def _json_line(text: TokenVectors) -> bytes:
    row = json.dumps({"tokens": text.tokens, "offsets": text.offsets}, ensure_ascii=False)
    # Nine digits restore each float32; half the time and size of json's.
    digits = "[" + ", ".join(["%.9g"] * text.vectors.shape[1]) + "]"
    vectors = ", ".join(digits % tuple(vector) for vector in text.vectors.tolist())
    return f'{row[:-1]}, "vectors": [{vectors}]}}\n'.encode()
