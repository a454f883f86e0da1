"""Tags for words, from a model that was trained for them; streamed, so that memory stays flat.

The model reads the words of a text (tagged.py) joined by single blanks, as it did in training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kinfolk.data.batching import chunks
from kinfolk.errors import InputError, MissingHeadError, kind_of
from kinfolk.jobs.classify import CHUNK_TEXTS
from kinfolk.jobs.loaded import Encoder
from kinfolk.jobs.tag_task import HEADS, TagTask
from kinfolk.jobs.tagged import Tagged, Words, places_of


def tag_task(encoder: Encoder) -> TagTask:
    """The task that a loaded model was trained for."""
    for crf, head in HEADS.items():
        if head in encoder.model.heads:
            labels: int = encoder.model.heads[head].output.out_features  # type: ignore[union-attr, assignment]
            return TagTask.from_public(encoder.public, labels, crf)
    raise MissingHeadError("this checkpoint has no tagger; train one with `kinfolk finetune --task tag`")


def told_apart(texts: object, words: bool) -> tuple[Iterable[Words], bool]:
    """Texts, and whether they are a single one: a string or, when words are given, a list of strings."""
    if isinstance(texts, str) and not words:
        return [texts], True
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        expected = "lists of words" if words else "a text or a collection of texts"
        raise InputError(f"expected {expected}, found {kind_of(texts)}: {str(texts)[:40]!r}")
    if not words:
        return texts, False
    given = list(texts)
    if all(isinstance(word, str) for word in given):
        return [given], True
    if any(isinstance(sentence, str) for sentence in given):
        raise InputError("with words=True give the words of one text, or a list of words for each text, not both")
    return given, False


def tag(encoder: Encoder, texts: Iterable[Words]) -> Iterator[Tagged]:
    """What the model says of each text: a string, or a list or tuple of its words."""
    task = tag_task(encoder)
    done = 0
    for chunk in chunks(texts, CHUNK_TEXTS):
        names = [f"text {done + number}" for number in range(len(chunk))]
        given = [places_of(text, name) for text, name in zip(chunk, names, strict=True)]
        sentences = [[text[start:end] for start, end in places] for text, places in given]
        found = task.read(encoder.tokenizer, sentences, encoder.context, names.__getitem__)
        guesses = task.guesses(encoder.model, found, [len(words) for words in sentences])
        for (text, places), guessed in zip(given, guesses, strict=True):
            yield Tagged.of(text, places, guessed.tags, guessed.probabilities)
        done += len(chunk)
