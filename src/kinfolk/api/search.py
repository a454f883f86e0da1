"""Semantic search: an index folder of texts and their vectors, and the nearest texts to a query.

vectors.npy   one vector of unit length per row, float32; memory-mapped
rows.jsonl    one object per row: the text, and the other columns of its row
starts.npy    the byte at which each row of rows.jsonl starts (and, last, the size of the file)
index.json    format, number of rows, width, the model and the settings that made the vectors

The score is the cosine of the two vectors. Rows are compared block by block, so memory stays the same however many
there are. A blank row has a vector of zeros, and is never returned.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakKeyDictionary

import numpy as np

from kinfolk import __version__
from kinfolk.api.embed import EmbedSettings, embed_settings, embed_texts, embed_width, write_vectors
from kinfolk.checkpoints.folder import TextModel
from kinfolk.data.formats import TEXT_COLUMN
from kinfolk.data.writers import NpyWriter, OnDone, json_line, open_npy
from kinfolk.errors import FolderError, InputError, check_collection, check_int
from kinfolk.files import (
    atomic_folder,
    atomic_write,
    inside,
    parse_json,
    read_object,
    reading,
    require_file,
    write_json,
)
from kinfolk.models.family import Model, weights_hash
from kinfolk.text.tokenizer import SURROGATE

FORMAT = 1
BLOCK_BYTES = 2**24  # of vectors compared at once

IndexRow = str | Mapping[str, Any]


@dataclass(frozen=True)
class Hit:
    """A row near a query. `row` counts from 0, as in vectors.npy."""

    score: float
    row: int
    text: str
    columns: dict[str, Any]


def build_index(
    encoder: TextModel,
    rows: Iterable[IndexRow],
    folder: str | Path,
    column: str = TEXT_COLUMN,
    report: OnDone = lambda done: None,
) -> Index:
    """Write an index of `rows`: texts, or mappings whose `column` is the text."""
    check_collection(rows, "a collection of texts or rows")
    blank: list[int] = []
    settings = embed_settings(encoder, normalize=True)
    with atomic_folder(Path(folder)) as temporary:
        with (
            atomic_write(temporary / "vectors.npy") as vectors,
            atomic_write(temporary / "rows.jsonl") as stored,
            atomic_write(temporary / "starts.npy") as starts,
        ):
            texts = _stored(rows, column, stored, NpyWriter(starts, (), "<i8"), blank)
            count = write_vectors(vectors, encoder, texts, settings, report)
        if not count:
            raise InputError(f"{folder}: there are no rows to build an index of")
        if blank:
            array = np.lib.format.open_memmap(temporary / "vectors.npy", mode="r+")
            array[blank] = 0
            array.flush()
        content = {"format": FORMAT, "kinfolk": __version__, "count": count, "width": embed_width(encoder, settings)}
        model = {"name": encoder.name, "sha256": identity(encoder)}
        write_json(temporary / "index.json", content | {"model": model, "settings": _plain(settings)})
    return Index.open(folder)


def _stored(
    rows: Iterable[IndexRow], column: str, stream: BinaryIO, starts: NpyWriter, blank: list[int]
) -> Iterator[str]:
    """The texts of the rows, each stored on its way to the model; `blank` receives the indices of blank rows."""
    for index, row in enumerate(rows):
        text = row if isinstance(row, str) else row.get(column) if isinstance(row, Mapping) else None
        if not isinstance(text, str):
            raise InputError(f"row {index} has no text: expected a string, or a mapping with one at {column!r}")
        if not text.strip():
            blank.append(index)
        others = {} if isinstance(row, str) else {name: value for name, value in row.items() if name != column}
        starts.append(np.array([stream.tell()]))
        line = json_line({"text": text, "columns": others})
        stream.write(SURROGATE.sub("\ufffd", line).encode() + b"\n")
        yield text
    starts.append(np.array([stream.tell()]))
    starts.finish()


_IDENTITIES: WeakKeyDictionary[Model, str] = WeakKeyDictionary()  # hashing weights takes longer than a search


def identity(encoder: TextModel) -> str:
    """Hash of weights and tokenizer, which identifies a model whatever its folder is called."""
    if encoder.model not in _IDENTITIES:
        tokenizer = hashlib.sha256(encoder.tokenizer.to_json().encode("utf-8", "surrogatepass")).hexdigest()
        weights = weights_hash(encoder.model.body)
        _IDENTITIES[encoder.model] = hashlib.sha256(f"{weights} {tokenizer}".encode()).hexdigest()
    return _IDENTITIES[encoder.model]


def _plain(settings: EmbedSettings) -> dict[str, Any]:
    """Settings after a round trip through JSON, as 0.1.0 named them in its index folders."""
    content: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(settings)))
    content["layers"]["numbers"] = content["layers"].pop("indices")
    return content


@dataclass(frozen=True)
class Index:
    """An index folder, opened without reading its rows."""

    folder: Path
    vectors: np.ndarray
    starts: np.ndarray
    model_name: str
    model_sha256: str
    settings: dict[str, Any]

    @classmethod
    def open(cls, folder: str | Path) -> Index:
        """Check the files' sizes; damage to a single row is found when the row is read."""
        path = inside(Path(folder), "index.json")
        if not path.exists():
            raise FolderError(f"{path}: no such file; make the index with `kinfolk search --build` or build_index")
        content = read_object(path)
        if content.get("format") != FORMAT:
            raise FolderError(f"{path}: format {str(content.get('format'))[:60]} is not known to kinfolk {__version__}")
        count, width, model = content.get("count"), content.get("width"), content.get("model")
        if not (type(count) is int and type(width) is int and count > 0 and width > 0 and isinstance(model, dict)):
            raise FolderError(f"{path}: not an index of kinfolk (count, width and model are needed)")
        vectors = open_npy(inside(Path(folder), "vectors.npy"), (count, width))
        starts = open_npy(inside(Path(folder), "starts.npy"), (count + 1,), "<i8")
        rows = require_file(inside(Path(folder), "rows.jsonl"))
        if rows.stat().st_size != int(starts[-1]):
            raise FolderError(f"{rows}: its size is not the {int(starts[-1]):,} bytes of the index; rebuild the index")
        settings = _object(content.get("settings"))
        return cls(Path(folder), vectors, starts, str(model.get("name")), str(model.get("sha256")), settings)

    def __len__(self) -> int:
        return len(self.vectors)

    def search(self, encoder: TextModel, query: str, top: int = 5) -> list[Hit]:
        """The `top` rows nearest to the query, best first; equal scores in the order of the rows."""
        check_int("top", top)
        if not query.strip():
            raise InputError("the query is empty: give a text")
        settings = embed_settings(encoder, normalize=True)
        if identity(encoder) != self.model_sha256:
            both = f'with the model "{self.model_name}" ({self.model_sha256[:12]}), not with "{encoder.name}"'
            raise InputError(f"{self.folder} was built {both}; use that model or rebuild it")
        earlier = {item.name: item.default for item in dataclasses.fields(EmbedSettings)}  # may lack newer settings
        if _plain(settings) != earlier | self.settings:
            raise InputError(f"{self.folder} was built with other settings of this model; rebuild the index")
        rows, scores = self._nearest(embed_texts(encoder, query, normalize=True), top)
        return [Hit(float(score), int(row), *self._read(int(row))) for row, score in zip(rows, scores, strict=True)]

    def _nearest(self, query: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
        rows, scores = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        block = max(1, BLOCK_BYTES // (4 * self.vectors.shape[1]))
        for start in range(0, len(self), block):
            cosines = self.vectors[start : start + block] @ query
            if not np.isfinite(cosines).all():
                raise FolderError(f"{self.folder}/vectors.npy holds NaN or infinite numbers; rebuild the index")
            nonzero = np.flatnonzero(cosines)
            scores = np.concatenate([scores, cosines[nonzero]])
            rows = np.concatenate([rows, start + nonzero])
            if len(scores) > top:  # all that reach the last rank, so that the order of rows breaks ties
                best = scores >= np.partition(scores, -top)[-top]
                rows, scores = rows[best], scores[best]
            order = np.lexsort((rows, -scores))[:top]
            rows, scores = rows[order], scores[order]
        return rows, scores.clip(-1.0, 1.0)

    def _read(self, row: int) -> tuple[str, dict[str, Any]]:
        start, end, path = int(self.starts[row]), int(self.starts[row + 1]), self.folder / "rows.jsonl"
        location = f"{path}, row {row}"
        if not 0 <= start < end <= int(self.starts[-1]):
            raise FolderError(f"{location}: starts.npy points outside the file; rebuild the index")
        with reading(path), path.open("rb") as stream:
            stream.seek(start)
            line = stream.read(end - start)
        content = parse_json(line.decode("utf-8", "replace"), location)
        if not isinstance(content, dict) or not isinstance(content.get("text"), str):
            raise FolderError(f"{location}: no text there; rebuild the index")
        return content["text"], _object(content.get("columns"))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
