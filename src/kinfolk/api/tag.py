"""Tags for words, from a model that was trained for them; streamed, so that memory stays flat.

The model reads the words of a text (tagged.py) joined by single blanks, as it did in training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from kinfolk.api.classify import CHUNK_TEXTS
from kinfolk.api.loaded import Encoder
from kinfolk.data.batching import chunks
from kinfolk.errors import InputError, MissingHeadError, check_collection
from kinfolk.tasks.tag import HEADS, TagTask
from kinfolk.tasks.tagged import Tagged, Words, places_of
from kinfolk.tasks.word_scoring import WordItems
from kinfolk.text.encoding import Offset


def tag_task(encoder: Encoder) -> TagTask:
    """The task that a loaded model was trained for."""
    for crf, head in HEADS.items():
        if head in encoder.model.heads:
            labels: int = encoder.model.heads[head].output.out_features  # type: ignore[union-attr, assignment]
            return TagTask.from_hf(encoder.public, labels, crf)
    raise MissingHeadError("this checkpoint has no tagger; train one with `kinfolk finetune --task tag`")


def normalize_inputs(texts: object, words: bool) -> tuple[Iterable[Words], bool]:
    """Texts, and whether they are a single one: a string or, when words are given, a list of strings."""
    if isinstance(texts, str) and not words:
        return [texts], True
    if not words:
        return check_collection(texts, "a text or a collection of texts"), False
    given = list(check_collection(texts, "lists of words"))
    if all(isinstance(word, str) for word in given):
        return [given], True
    if any(isinstance(sentence, str) for sentence in given):
        raise InputError("with words=True give the words of one text, or a list of words for each text, not both")
    return given, False


def tag(encoder: Encoder, texts: Iterable[Words]) -> Iterator[Tagged]:
    """What the model says of each text: a string, or a list or tuple of its words."""
    task = tag_task(encoder)
    for given, found, lengths in _read(encoder, task, texts):
        guesses = task.guesses(encoder.model, found, lengths)
        for (text, places), guessed in zip(given, guesses, strict=True):
            yield Tagged.of(text, places, guessed.tags, guessed.probabilities)


def tag_chances(encoder: Encoder, texts: Iterable[Words]) -> Iterator[np.ndarray]:
    """The probabilities of all tags at each word of a text, (words, labels), as `TagTask.chances` says."""
    task = tag_task(encoder)
    for _, found, lengths in _read(encoder, task, texts):
        yield from task.chances(encoder.model, found, lengths)


def _read(
    encoder: Encoder, task: TagTask, texts: Iterable[Words]
) -> Iterator[tuple[list[tuple[str, list[Offset]]], WordItems, list[int]]]:
    """A chunk of texts at a time: with the places of their words, as the model reads them, and how many words."""
    done = 0
    for chunk in chunks(texts, CHUNK_TEXTS):
        names = [f"text {done + number}" for number in range(len(chunk))]
        given = [places_of(text, name) for text, name in zip(chunk, names, strict=True)]
        sentences = [[text[start:end] for start, end in places] for text, places in given]
        found = task.read(encoder.tokenizer, sentences, encoder.context, names.__getitem__)
        yield given, found, [len(words) for words in sentences]
        done += len(chunk)
