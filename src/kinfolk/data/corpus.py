"""A corpus: files or texts as documents, documents as sentences, and all of it as ids.

What a document is, is said by `documents`: blank-lines (stretches between them, as in most corpora), lines, or whole
(every file). Without a word, blank lines divide a file that has some, and lines one that has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kinfolk.data.batching import chunks
from kinfolk.data.formats import is_table, read_lines, read_texts
from kinfolk.errors import DataError, InputError, check_choice, check_texts
from kinfolk.text.tokenizer import Tokenizer

DOCUMENTS = ("blank-lines", "lines", "whole")
CHUNK_TEXTS = 2048  # encoded at a time
# A sentence ends with its mark and what closes it, where a space or (after marks of the East) anything follows.
SENTENCE_END = re.compile(r"(?:[.!?…]+[\"'”’»)\]]*(?=\s)|[。！？｡؟।]+[」』”’）]*)")
INITIAL = re.compile(r"(?:^|[\s(\"“'.])(?:\w|[A-Z]\w{1,2})\.$")  # of a name, or a title: J. Dr. Mrs.

UNITS = "\n", " ", ""  # lines, words, characters: what a single text is cut between
BRING_DOCUMENTS = "put blank lines between documents, or give several files with documents=whole"

Corpus = str | Path | Sequence[str | Path]


def corpus_name(source: Corpus) -> str:
    """What a message calls it."""
    if isinstance(source, str | Path):
        return str(source)
    return ", ".join(map(str, source[:3])) if any(isinstance(path, Path) for path in source) else "the corpus"


def read_documents(source: Corpus, documents: str | None = None, column: str | None = None) -> list[str]:
    """The documents of files (lines, or the column of a table) or of a list of texts, each of which is one. A document
    keeps its line ends; blank ones are left out."""
    if documents is not None:
        check_choice("documents", documents, DOCUMENTS)
    paths = [source] if isinstance(source, str | Path) else list(source)
    if isinstance(source, str | Path) or any(isinstance(path, Path) for path in paths):
        texts = [text for path in paths for text in _read_file(Path(path), documents, column)]
    elif column is not None or documents is not None:
        raise InputError("column and documents are those of files; each text of a list is a document")
    else:
        texts = [text for text in check_texts(paths) if text.strip()]
    if not texts:
        raise DataError(f"{corpus_name(source)}: there is no text that is not blank; bring one")
    return texts


def _read_file(path: Path, documents: str | None, column: str | None) -> list[str]:
    if is_table(path) or column is not None:
        if documents not in (None, "lines"):
            raise InputError(f"{path}: each row of a table is a document; leave out documents={documents}")
        return [text for text in read_texts(path, column) if text.strip()]
    lines = list(read_lines(path))
    stretches = ["\n".join(group) for filled, group in groupby(lines, lambda line: bool(line.strip())) if filled]
    if documents == "whole":
        return ["\n".join(lines)] if stretches else []
    if documents == "lines" or (documents is None and len(stretches) < 2):
        return [line for line in lines if line.strip()]
    return stretches


def split_documents(
    documents: Sequence[str], share: float, least: int, name: str = "the corpus"
) -> tuple[list[str], list[str]]:
    """Train and dev: the last documents, at least `least` on either side; of a single document its last lines, or words
    where lines are few."""
    count = max(least, int(len(documents) * share))
    if len(documents) >= count + least:
        return list(documents[:-count]), list(documents[-count:])
    if least > 1:
        impossible = f"next-sentence prediction is impossible: {name} is"
        if len(documents) == 1:
            raise DataError(f"{impossible} one document; {BRING_DOCUMENTS}")
        few = f"{len(documents)} documents, fewer than {least} to train on and {least} for dev"
        raise DataError(f"{impossible} {few}; bring more text, or one for dev")
    for unit in UNITS:
        parts = documents[0].split(unit) if unit else list(documents[0])
        if count := int(len(parts) * share):
            return [unit.join(parts[:-count])], [unit.join(parts[-count:])]
    raise DataError(f"{name} is one short text: too little to hold out a part for dev; bring more text, or one for dev")


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, in any language that marks their ends; a line's end ends one too."""
    sentences = []
    for line in text.split("\n"):
        start = 0
        for match in SENTENCE_END.finditer(line):
            after = line[match.end() :].lstrip()[:1]
            if after.islower() or (match[0] == "." and INITIAL.search(line, start, match.end())):
                continue
            sentences.append(line[start : match.end()])
            start = match.end()
        sentences.append(line[start:])
    return [sentence.strip() for sentence in sentences if sentence.strip()]


@dataclass(frozen=True)
class EncodedCorpus:
    """A corpus as ids, without special tokens: sentence i is ids[sentences[i]:sentences[i + 1]], and likewise document
    i has the sentences from documents[i] on. `characters` counts those of the texts, one more for each end."""

    ids: NDArray[np.int32]
    sentences: NDArray[np.int64]
    documents: NDArray[np.int64]
    characters: int

    def stream(self, end: int) -> NDArray[np.int32]:
        """All documents as one row of ids, an end after each and one before the first."""
        return np.insert(self.ids, np.concatenate([[0], self.sentences[self.documents[1:]]]), end).astype(np.int32)


def encode_corpus(tokenizer: Tokenizer, documents: Iterable[str], sentences: bool = False) -> EncodedCorpus:
    """Documents as ids, divided into sentences where that is asked for. A special token that is spelled out in a text
    is read as unknown (where that is the token which ends a text, as in GPT-2, it ends one)."""
    ids, sentence_ends, document_ends, characters = [np.empty(0, np.int32)], [0], [0], 0
    unknown = tokenizer.unk_id
    special = np.array(sorted(tokenizer.special_ids - {unknown}), dtype=np.int32)
    for some in chunks(documents, CHUNK_TEXTS):
        parts = [split_sentences(text) if sentences else [text] for text in some]
        encodings = iter(tokenizer.encode_many([part for row in parts for part in row], False))
        for text, row in zip(some, parts, strict=True):
            for _ in row:
                piece = np.array(next(encodings).ids, dtype=np.int32)
                if unknown is not None:
                    piece[np.isin(piece, special)] = unknown
                ids.append(piece)
                sentence_ends.append(sentence_ends[-1] + len(piece))
            document_ends.append(len(sentence_ends) - 1)
            characters += len(text) + 1
    return EncodedCorpus(np.concatenate(ids), np.array(sentence_ends), np.array(document_ends), characters)
