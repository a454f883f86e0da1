"""Tagging: a tag for each word, learned word by word or, with a CRF, as paths.

The words of a sentence are joined by single blanks, and a word is read at the first token that starts in it. A long
sentence is read in windows, and each word in the one window where its token is most central: so every word is learned
from once and predicted once, in the context in which it will be asked for. A word that leaves no token (an empty one,
or one of control characters) has none, and is O.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfolk.checkpoints.text_model import TextModel
from kinfolk.data.batching import BATCH_TOKENS, chunks, token_batches
from kinfolk.data.examples import Sentence
from kinfolk.data.tagging import OUTSIDE, has_spans
from kinfolk.errors import InputError, MissingHeadError, shorten_list
from kinfolk.models.family import Model
from kinfolk.nn.packed import Layout
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.objectives.supervised import IGNORED, CrfTag, Tag
from kinfolk.tasks.tagged import Tagged, Words, places_of, word_starts
from kinfolk.tasks.task import MAX_MISTAKES, EvalResult, Mistake, TaskOptions, label_names, label_tables
from kinfolk.tasks.text import CHUNK_TEXTS, class_weight_list, even_classes
from kinfolk.tasks.windows import DEFAULT_WINDOWS, CutCount, Location, TextWindow, Windows, batch_scores, split_texts
from kinfolk.text.encoding import Offset
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.training.logistic import softmax

NEIGHBOURS = 5  # words shown on either side of a mistake
HEADS = {False: "tag", True: "tag_crf"}
Decoded = tuple[np.ndarray, np.ndarray]  # of one sentence's words with a piece: numbers of tags, their probabilities


@dataclass(frozen=True)
class WordSamples:
    """Windows that hold words of sentences; for each, which of its rows speak, and for which words."""

    samples: list[Sample]
    rows: list[list[int]]
    words: list[list[int]]
    sentences: int


@dataclass(frozen=True)
class WordScores:
    """Of one sentence: the numbers of the words that have a piece, (seen,), and their scores, (seen, labels)."""

    words: np.ndarray
    scores: np.ndarray


def word_samples(
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[str]],
    targets: Sequence[Sequence[int]] | None,
    size: int,
    stride: int | None = None,
    location: Location = "text {}".format,
) -> WordSamples:
    """One item per sentence or window of `size` tokens; `targets` are tag numbers, which go to words' first pieces.

    `location` says where a sentence stands, for a message.
    """
    found = WordSamples([], [], [], len(sentences))
    texts = [" ".join(words) for words in sentences]
    read = split_texts(tokenizer, texts, size, "window", CutCount(), location, stride)
    for number, parts in groupby(read, key=lambda part: part.text):
        for part, rows, words in _first_pieces(list(parts), word_starts(sentences[number]), sentences[number]):
            target = [IGNORED] * len(part.encoding)
            for row, word in zip(rows, words, strict=True):
                target[row] = IGNORED if targets is None else targets[number][word]
            found.samples.append(Sample(part.encoding.ids, part.encoding.segments, target, number))
            found.rows.append(rows)
            found.words.append(words)
    return found


def _first_pieces(
    parts: list[TextWindow], starts: list[int], words: Sequence[str]
) -> Iterator[tuple[TextWindow, list[int], list[int]]]:
    """For each window its own rows that are first pieces, and their words; windows without one are left out."""
    reached = -1  # the last word that has its piece: a window may begin in the middle of it
    for part in parts:
        offsets, sequences = part.encoding.offsets, part.encoding.sequence_ids
        rows, numbers = [], []
        for row in range(*part.own):
            start = offsets[row][0]
            word = bisect_right(starts, start) - 1
            if sequences[row] is not None and word > reached and start < starts[word] + len(words[word]):
                rows.append(row)
                numbers.append(word)
                reached = word
        if rows:
            yield part, rows, numbers


def score_words(model: Model, objective: Objective, found: WordSamples, labels: int) -> list[WordScores]:
    """What the head says of the words of each sentence."""
    scores: list[np.ndarray] = [np.empty(0)] * len(found.samples)
    for batch, prepared, said in batch_scores(model, objective, found.samples):
        for number, part in zip(batch, prepared.tokens.layout.split(said), strict=True):
            scores[number] = part[found.rows[number]].numpy()
    windows: list[list[int]] = [[] for _ in range(found.sentences)]
    for number, item in enumerate(found.samples):
        windows[item.example].append(number)
    nothing = np.zeros((0, labels), dtype=np.float32)
    return [
        WordScores(
            np.array([word for number in own for word in found.words[number]], dtype=int),
            np.concatenate([scores[number] for number in own]) if own else nothing,
        )
        for own in windows
    ]


@dataclass(frozen=True)
class Guesses:
    """A tag for every word of a sentence, with its probability; a word without a piece is O with probability 0."""

    tags: tuple[str, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class TagDataset:
    """Sentences as the model reads them."""

    found: WordSamples
    examples: Sequence[Sentence]

    @property
    def samples(self) -> list[Sample]:
        return self.found.samples


@dataclass(frozen=True)
class TagTask:
    """Tags for words. A long sentence is read in windows, and each word in the one where it is most central."""

    labels: tuple[str, ...]
    windows: Windows = DEFAULT_WINDOWS
    weights: tuple[float, ...] | None = None
    crf: bool = False

    kind = "tag"

    @property
    def head(self) -> str:
        return HEADS[self.crf]

    @classmethod
    def of(cls, examples: Sequence[Sentence], options: TaskOptions) -> TagTask:
        """The task that sentences pose: all tags that occur, O first, the others in alphabetical order."""
        for example in examples:
            if len(example.tags or ()) != len(example.words):
                raise InputError(f"{example.location}: {len(example.words)} words, {len(example.tags or ())} tags")
        counts = Counter(tag for example in examples for tag in example.tags or ())
        names = tuple(sorted(counts, key=lambda tag: (tag != OUTSIDE, tag)))
        if len(names) < 2:
            raise InputError(f"there is only one tag in the training data ({shorten_list(names)}); nothing to learn")
        wanted = options.class_weights
        if options.crf and wanted is not None:
            raise InputError("class_weights has no meaning with crf: paths are scored, not single tags")
        weights = None if wanted is None else class_weight_list(wanted, names, even_classes(counts))
        return cls(names, options.windows, weights, options.crf)

    def objective(self, model: Model) -> Objective:
        """The loss on a model of the family."""
        segments = model.config.segments
        return CrfTag(segments) if self.crf else Tag(segments, class_weights=self.weights)

    def read(
        self,
        tokenizer: Tokenizer,
        sentences: Sequence[Sequence[str]],
        context: int,
        location: Location = "text {}".format,
    ) -> WordSamples:
        """Sentences without tags, for a model that reads `context` tokens at once; `location` is for messages."""
        size = self.windows.size(context, tokenizer.special_tokens_count())
        return word_samples(tokenizer, sentences, None, size, self.windows.stride, location)

    def unseen_labels(self, examples: Sequence[Sentence]) -> list[str]:
        """Tags of these sentences that training did not see."""
        return sorted({tag for example in examples for tag in example.tags or ()} - {*self.labels})

    def dataset(self, tokenizer: Tokenizer, examples: Sequence[Sentence], size: int) -> TagDataset:
        """Sentences with their tags. A tag that training did not see is no target; when judged, it is never found."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        targets = [[numbers.get(tag, IGNORED) for tag in example.tags or ()] for example in examples]
        words, where = [example.words for example in examples], [example.location for example in examples]
        size, stride = self.windows.size(size, tokenizer.special_tokens_count()), self.windows.stride
        found = word_samples(tokenizer, words, targets, size, stride, where.__getitem__)
        if examples and not found.samples:
            raise InputError(f"{where[0]}: the tokenizer makes nothing of the words here and after it")
        return TagDataset(found, examples)

    def guesses(self, model: Model, found: WordSamples, lengths: Sequence[int]) -> Iterator[Guesses]:
        """The tags of each sentence, which has so many words."""
        scored = score_words(model, self.objective(model), found, len(self.labels))
        decoded = self._paths(model, scored) if self.crf else map(_one_by_one, scored)
        for length, own, (numbers, chances) in zip(lengths, scored, decoded, strict=True):
            tags, sure = [OUTSIDE] * length, [0.0] * length
            for word, number, chance in zip(own.words.tolist(), numbers.tolist(), chances.tolist(), strict=True):
                tags[word], sure[word] = self.labels[number], chance
            yield Guesses(tuple(tags), tuple(sure))

    def chances(self, model: Model, found: WordSamples, lengths: Sequence[int]) -> Iterator[np.ndarray]:
        """The probability of every tag at each word of a sentence, (words, labels); with a random field over all paths.

        A word without a piece is surely O; where no label is O, all are equally probable.
        """
        scored = score_words(model, self.objective(model), found, len(self.labels))
        silent = np.array([label == OUTSIDE for label in self.labels], dtype=np.float64)
        silent = silent if silent.any() else np.full(len(self.labels), 1 / len(self.labels))
        seen = (
            self._marginals(model, scored) if self.crf else (softmax(own.scores.astype(np.float64)) for own in scored)
        )
        for length, own, rows in zip(lengths, scored, seen, strict=True):
            table = np.tile(silent, (length, 1))
            table[own.words] = rows
            yield table

    def _paths(self, model: Model, scored: Sequence[WordScores]) -> list[Decoded]:
        """The best path of each whole sentence, windows joined."""
        crf: Any = model.heads[self.head].crf
        found = [(np.zeros(0, dtype=int), np.zeros(0))] * len(scored)
        for some, layout, emissions in _sentences(model, scored):
            with torch.inference_mode():
                path = crf.decode(emissions, layout)
                chances = crf.marginals(emissions, layout).gather(1, path.unsqueeze(1)).squeeze(1)
            parts = zip(some, layout.split(path.cpu()), layout.split(chances.cpu()), strict=True)
            for number, own_path, own_chances in parts:
                found[number] = (own_path.numpy(), own_chances.numpy())
        return found

    def _marginals(self, model: Model, scored: Sequence[WordScores]) -> list[np.ndarray]:
        """(seen, labels) of each sentence: the chances of tags over all paths."""
        crf: Any = model.heads[self.head].crf
        found = [np.zeros((0, len(self.labels)))] * len(scored)
        for some, layout, emissions in _sentences(model, scored):
            with torch.inference_mode():
                chances = crf.marginals(emissions, layout).cpu()
            for number, rows in zip(some, layout.split(chances), strict=True):
                found[number] = rows.numpy()
        return found

    def evaluate(self, model: Model, dataset: TagDataset) -> EvalResult:
        """Entities found and missed, or the share of right words where tags mark no spans."""
        from kinfolk.training.metrics import tagging  # only training and evaluation need seqeval

        examples = dataset.examples
        guesses = list(self.guesses(model, dataset.found, [len(example.words) for example in examples]))
        metrics = tagging([example.tags or () for example in examples], [found.tags for found in guesses])
        wrong = nlargest(MAX_MISTAKES, _wrong(examples, guesses), key=lambda item: item[0])
        return EvalResult(metrics, mistakes=[_mistake(examples[row], guesses[row], place) for _, row, place in wrong])

    def calibrate(self, model: Model, dataset: TagDataset) -> TagTask:
        """Nothing is tuned on the dev set."""
        return self

    def columns(self, tagged: Tagged) -> dict[str, Any]:
        """What a table gets beside a text: its entities, or words and tags where tags mark no spans."""
        if not has_spans(self.labels):
            return {"words": [word.text for word in tagged.words], "tags": [word.tag for word in tagged.words]}
        names = ("type", "text", "start", "end")
        return {
            "entities": [
                {name: getattr(entity, name) for name in names} | {"probability": round(entity.probability, 6)}
                for entity in tagged.entities
            ]
        }

    def to_hf(self) -> dict[str, Any]:
        """What config.json says of the task; that it has a random field is seen by its tensors."""
        return label_tables(self.labels) | self.windows.to_hf()

    @classmethod
    def from_hf(cls, hf_config: Mapping[str, Any], labels: int, crf: bool) -> TagTask:
        """The task of a saved model with so many tags; LABEL_0, LABEL_1 … where its config names none."""
        return cls(label_names(hf_config, labels), Windows.from_hf(hf_config), crf=crf)


def _sentences(model: Model, scored: Sequence[WordScores]) -> Iterator[tuple[list[int], Layout, Tensor]]:
    """Numbers and emissions of some sentences with words at a time; in float64, so that company changes nothing."""
    lengths = [len(own.words) for own in scored]
    for batch in token_batches(lengths, BATCH_TOKENS):
        some = [number for number in batch if lengths[number]]
        if some:
            layout = Layout(tuple(lengths[number] for number in some), model.device)
            emissions = torch.from_numpy(np.concatenate([scored[number].scores for number in some]))
            yield some, layout, emissions.to(model.device, torch.float64)


def _one_by_one(own: WordScores) -> Decoded:
    """The likeliest tag of each word for itself."""
    return own.scores.argmax(1), softmax(own.scores).max(1)


def _wrong(examples: Sequence[Sentence], guesses: Sequence[Guesses]) -> Iterator[tuple[float, int, int]]:
    """(probability, number of the sentence, of the word) for each wrong word."""
    for number, (example, found) in enumerate(zip(examples, guesses, strict=True)):
        for place, (truth, guess) in enumerate(zip(example.tags or (), found.tags, strict=True)):
            if truth != guess:
                yield found.probabilities[place], number, place


def _mistake(example: Sentence, found: Guesses, place: int) -> Mistake:
    """A wrong word in brackets, amid its neighbours."""
    before = example.words[max(place - NEIGHBOURS, 0) : place]
    after = example.words[place + 1 : place + 1 + NEIGHBOURS]
    shown = " ".join([*before, f"[{example.words[place]}]", *after])
    truth = (example.tags or ())[place]
    where = f"{example.location}, word {place + 1}"
    return Mistake(where, shown, truth, found.tags[place], found.probabilities[place])


def tag_task(text_model: TextModel) -> TagTask:
    """The task that a loaded model was trained for."""
    heads: Any = text_model.model.heads
    for crf, head in HEADS.items():
        if head in heads:
            return TagTask.from_hf(text_model.hf_config, heads[head].output.out_features, crf)
    raise MissingHeadError("this checkpoint has no tagger; train one with `kinfolk finetune --task tag`")


def tag(text_model: TextModel, texts: Iterable[Words]) -> Iterator[Tagged]:
    """The tags of each text (a string, or a list or tuple of its words); streamed, so that memory stays flat."""
    task = tag_task(text_model)
    for chunk, samples, lengths in _word_chunks(text_model, task, texts):
        guesses = task.guesses(text_model.model, samples, lengths)
        for (text, offsets), guess in zip(chunk, guesses, strict=True):
            yield Tagged.of(text, offsets, guess.tags, guess.probabilities)


def tag_probabilities(text_model: TextModel, texts: Iterable[Words]) -> Iterator[np.ndarray]:
    """The probabilities of all tags at each word of a text, (words, labels), as `TagTask.chances` says."""
    task = tag_task(text_model)
    for _, samples, lengths in _word_chunks(text_model, task, texts):
        yield from task.chances(text_model.model, samples, lengths)


def _word_chunks(
    text_model: TextModel, task: TagTask, texts: Iterable[Words]
) -> Iterator[tuple[list[tuple[str, list[Offset]]], WordSamples, list[int]]]:
    """A chunk of texts at a time: with the offsets of their words, as the model reads them, and how many words."""
    done = 0
    for chunk in chunks(texts, CHUNK_TEXTS):
        names = [f"text {done + index}" for index in range(len(chunk))]
        split = [places_of(text, name) for text, name in zip(chunk, names, strict=True)]
        sentences = [[text[start:end] for start, end in offsets] for text, offsets in split]
        samples = task.read(text_model.tokenizer, sentences, text_model.context, names.__getitem__)
        yield split, samples, [len(words) for words in sentences]
        done += len(chunk)
