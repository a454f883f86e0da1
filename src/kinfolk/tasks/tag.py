"""Tagging: a tag for each word, learned word by word or, with a CRF, as paths; and the entities that the tags mean.

The words of a sentence are joined by single blanks, and a word is read at the first token that starts in it. A long
sentence is read in windows, and each word in the one window where its token is most central: so it is learned from once
and predicted once. A word that leaves no token (an empty one, or one of control characters) is O. Entities are runs of
words.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import groupby
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from kinfolk.checkpoints.folder import TextModel
from kinfolk.data.batching import BATCH_TOKENS, token_batches
from kinfolk.data.examples import Sentence
from kinfolk.data.tagging import OUTSIDE, entities, has_spans, repair_iob2
from kinfolk.errors import InputError, shorten_list, type_name
from kinfolk.models.family import Model
from kinfolk.nn.packed import Layout
from kinfolk.objectives.objective import Batch, Objective, Sample
from kinfolk.objectives.supervised import IGNORED, CrfTag, Tag
from kinfolk.tasks.task import MAX_MISTAKES, Dataset, EvalResult, Mistake, Task, TaskOptions, saved_labels
from kinfolk.text.encoding import Offset, word_offsets, word_starts
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.windows import DEFAULT_WINDOWS, CutCount, TextWindow, TokenCounts, Windows
from kinfolk.training.metrics import softmax, tagging

NEIGHBOURS = 5  # words shown on either side of a mistake
Words = str | Sequence[str]  # a text, or words that the user split


@dataclass(frozen=True, slots=True)
class TaggedWord:
    """A word with its tag; `start` and `end` are its characters in the user's text (of given words: joined by blanks).

    The probability is the model's for this tag at this word; with a random field, over all paths.
    """

    text: str
    tag: str
    probability: float
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Entity:
    """Words `first` up to, not including, `last`, and their characters; as probable as its least probable word."""

    type: str
    text: str
    start: int
    end: int
    probability: float
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Tagged:
    """A text's words, and the entities that their tags mean (none where tags mark no spans)."""

    words: tuple[TaggedWord, ...]
    entities: tuple[Entity, ...]

    @classmethod
    def of(cls, text: str, offsets: Sequence[Offset], tags: Sequence[str], probabilities: Sequence[float]) -> Tagged:
        """Tags for the words at these offsets of a text."""
        rows = zip(offsets, repair_iob2(tags), probabilities, strict=True)
        words = tuple(TaggedWord(text[start:end], tag, sure, start, end) for (start, end), tag, sure in rows)
        spans = []
        for first, last, kind in entities(tags):
            start, end = offsets[first][0], offsets[last - 1][1]
            spans.append(Entity(kind, text[start:end], start, end, min(probabilities[first:last]), first, last))
        return cls(words, tuple(spans))


def split_text_words(words: Words, name: str = "text 0") -> tuple[str, list[Offset]]:
    """A text and the offsets of its words; given words are joined by single blanks. `name` is for a message."""
    if isinstance(words, str):
        return words, word_offsets(words)
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise InputError(f"{name} is neither a string nor a list of words, but {type_name(words)}: {str(words)[:40]!r}")
    starts = word_starts(words)
    return " ".join(words), [(start, start + len(word)) for start, word in zip(starts, words, strict=True)]


@dataclass(frozen=True)
class TagDataset(Dataset):
    """Windows of sentences; for each, which of its rows are first subwords, and of which words."""

    rows: list[list[int]]
    words: list[list[int]]


class WordScores(NamedTuple):
    """Of one sentence: the indices of the words that have a subword, (seen,), and their scores, (seen, labels)."""

    words: np.ndarray
    scores: np.ndarray


class WordTags(NamedTuple):
    """A tag for every word of a sentence, with its probability; a word without a subword is O with probability 0."""

    tags: list[str]
    probabilities: list[float]


@dataclass(frozen=True)
class TagTask(Task):
    """Tags for words. A long sentence is read in windows, and each word in the one where it is most central."""

    labels: tuple[str, ...]
    windows: Windows = DEFAULT_WINDOWS
    weights: tuple[float, ...] | None = None
    crf: bool = False

    kind = "tag"

    @property
    def head(self) -> str:  # type: ignore[override]
        return "tag_crf" if self.crf else "tag"

    @classmethod
    def of(cls, kind: str, examples: Sequence[Sentence], options: TaskOptions) -> Self:
        """All tags that occur, O first, the others in alphabetical order."""
        for example in examples:
            if len(example.tags or ()) != len(example.words):
                raise InputError(f"{example.location}: {len(example.words)} words, {len(example.tags or ())} tags")
        counts = Counter(tag for example in examples for tag in example.tags or ())
        names = tuple(sorted(counts, key=lambda tag: (tag != OUTSIDE, tag)))
        if len(names) < 2:
            raise InputError(f"there is only one tag in the training data ({shorten_list(names)}); nothing to learn")
        if options.crf and options.class_weights is not None:
            raise InputError("class_weights has no meaning with crf: paths are scored, not single tags")
        balanced = {name: counts.total() / (len(counts) * counts[name]) for name in names}
        return cls(names, options.windows, options.weights(balanced), options.crf)

    @classmethod
    def saved(cls, text_model: TextModel) -> Self:
        crf = "tag_crf" in text_model.model.heads
        labels = saved_labels(text_model, "tag_crf" if crf else "tag", "tagger", "kinfolk finetune --task tag")
        return cls(labels, Windows.from_hf(text_model.hf_config), crf=crf)

    def objective(self, model: Model) -> Objective:
        segments = model.config.segments
        return CrfTag(segments) if self.crf else Tag(segments, class_weights=self.weights)

    def unseen_labels(self, examples: Sequence[Sentence]) -> list[str]:
        return sorted({tag for example in examples for tag in example.tags or ()} - {*self.labels})

    def dataset(
        self, tokenizer: Tokenizer, examples: Sequence[Sentence], context: int, counts: TokenCounts | None = None
    ) -> TagDataset:
        """Sentences, with or without tags. A tag that training did not see is no target, and is never predicted."""
        indices = {label: index for index, label in enumerate(self.labels)}
        dataset, texts = TagDataset([], examples, [], []), [" ".join(example.words) for example in examples]
        windows = self.windows.split(
            tokenizer, texts, context, lambda index: examples[index].location, CutCount(), counts
        )
        for index, parts in groupby(windows, key=lambda part: part.text):
            example = examples[index]
            for part, rows, words in _first_subwords(parts, example.words):
                target = [IGNORED] * len(part.encoding)
                for row, word in zip(rows, words, strict=True):
                    target[row] = indices.get(example.tags[word], IGNORED) if example.tags is not None else IGNORED
                dataset.samples.append(Sample(part.encoding.ids, part.encoding.segments, target, index))
                dataset.rows.append(rows)
                dataset.words.append(words)
        if not dataset.samples and any(example.tags is not None for example in examples):
            raise InputError(f"{examples[0].location}: the tokenizer makes nothing of the words here and after it")
        return dataset

    def split(self, dataset: TagDataset, indices: list[int], batch: Batch, scores: Tensor) -> Iterable[Tensor]:
        parts = zip(indices, batch.tokens.layout.split(scores), strict=True)
        return (part[dataset.rows[index]] for index, part in parts)

    def word_scores(self, model: Model, dataset: TagDataset) -> list[WordScores]:
        """What the head says of the words of each sentence."""
        words: list[list[int]] = [[] for _ in dataset.examples]
        parts = [[np.zeros((0, len(self.labels)), dtype=np.float32)] for _ in dataset.examples]
        rows = self.sample_scores(model, dataset)
        for sample, seen, part in zip(dataset.samples, dataset.words, rows, strict=True):
            words[sample.example] += seen
            parts[sample.example].append(part)
        pairs = zip(words, parts, strict=True)
        return [WordScores(np.array(seen, dtype=int), np.concatenate(scores)) for seen, scores in pairs]

    def _decode(self, model: Model, scored: Sequence[WordScores]) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Of each sentence, in any order: its index, its best tags (or best path) and the probabilities of all tags."""
        if not self.crf:
            yield from ((index, own.scores.argmax(1), softmax(own.scores)) for index, own in enumerate(scored))
            return
        crf: Any = model.heads[self.head].crf
        lengths = [len(own.words) for own in scored]
        for batch in token_batches(lengths, BATCH_TOKENS):
            indices = [index for index in batch if lengths[index]]
            if not indices:
                continue
            layout = Layout(tuple(lengths[index] for index in indices), model.device)
            emissions = torch.from_numpy(np.concatenate([scored[index].scores for index in indices]))
            emissions = emissions.to(model.device, torch.float64)  # so that company changes nothing
            with torch.inference_mode():
                paths = layout.split(crf.decode(emissions, layout).cpu())
                tables = layout.split(crf.marginals(emissions, layout).cpu())
            for index, path, table in zip(indices, paths, tables, strict=True):
                yield index, path.numpy(), table.numpy()

    def tags(self, model: Model, dataset: TagDataset) -> list[WordTags]:
        """The tags of each sentence's words."""
        scored = self.word_scores(model, dataset)
        words = [WordTags([OUTSIDE] * len(example.words), [0.0] * len(example.words)) for example in dataset.examples]
        for index, path, table in self._decode(model, scored):
            best = np.take_along_axis(table, path[:, None], 1)[:, 0]
            for word, label, probability in zip(
                scored[index].words.tolist(), path.tolist(), best.tolist(), strict=True
            ):
                words[index].tags[word], words[index].probabilities[word] = self.labels[label], probability
        return words

    def probabilities(self, model: Model, dataset: TagDataset) -> list[np.ndarray]:
        """The probability of every tag at each word of a sentence, (words, labels); with a random field over all paths.

        A word without a subword is surely O; where no label is O, all are equally probable.
        """
        scored = [WordScores(words, scores.astype(float)) for words, scores in self.word_scores(model, dataset)]
        silent = np.array([float(label == OUTSIDE) for label in self.labels])
        silent = silent if silent.any() else np.full(len(self.labels), 1 / len(self.labels))
        tables = [np.tile(silent, (len(example.words), 1)) for example in dataset.examples]
        for index, _, table in self._decode(model, scored):
            tables[index][scored[index].words] = table
        return tables

    def evaluate(self, model: Model, dataset: TagDataset) -> EvalResult:
        """Entities found and missed, or the share of right words where tags mark no spans."""
        examples: Sequence[Sentence] = dataset.examples
        predicted = self.tags(model, dataset)
        metrics = tagging([example.tags or () for example in examples], [own.tags for own in predicted])
        wrong = (
            (own.probabilities[word], example, word, guess)
            for example, own in zip(examples, predicted, strict=True)
            for word, (truth, guess) in enumerate(zip(example.tags or (), own.tags, strict=True))
            if truth != guess
        )
        worst = nlargest(MAX_MISTAKES, wrong, key=lambda error: error[0])
        return EvalResult(metrics, mistakes=[_mistake(*error) for error in worst])

    def columns(self, prediction: Tagged) -> dict[str, Any]:
        """What a table gets beside a text: its entities, or words and tags where tags mark no spans."""
        if not has_spans(self.labels):
            words = prediction.words
            return {"words": [word.text for word in words], "tags": [word.tag for word in words]}
        names = ("type", "text", "start", "end", "probability")
        rows = [{name: getattr(entity, name) for name in names} for entity in prediction.entities]
        return {"entities": [row | {"probability": round(row["probability"], 6)} for row in rows]}


def _first_subwords(
    parts: Iterable[TextWindow], words: Sequence[str]
) -> Iterator[tuple[TextWindow, list[int], list[int]]]:
    """For each window its own rows that are first subwords, and their words; windows without one are left out."""
    starts, reached = word_starts(words), -1  # the last word that was read: a window may begin in the middle of it
    for part in parts:
        offsets, sequences = part.encoding.offsets, part.encoding.sequence_ids
        rows, indices = [], []
        for row in range(*part.own):
            start = offsets[row][0]
            word = bisect_right(starts, start) - 1
            if sequences[row] is not None and word > reached and start < starts[word] + len(words[word]):
                rows.append(row)
                indices.append(word)
                reached = word
        if rows:
            yield part, rows, indices


def _mistake(probability: float, example: Sentence, word: int, guess: str) -> Mistake:
    """A wrong word in brackets, amid its neighbours."""
    words = example.words
    before, after = words[max(word - NEIGHBOURS, 0) : word], words[word + 1 : word + 1 + NEIGHBOURS]
    text = " ".join([*before, f"[{words[word]}]", *after])
    return Mistake(f"{example.location}, word {word + 1}", text, (example.tags or ())[word], guess, probability)


def _sentences(texts: Iterable[Words], split: deque[tuple[str, list[Offset]]]) -> Iterator[Sentence]:
    """Texts as sentences without tags; `split` receives each text with the offsets of its words."""
    for index, words in enumerate(texts):
        text, offsets = split_text_words(words, f"text {index}")
        split.append((text, offsets))
        yield Sentence(tuple(text[start:end] for start, end in offsets), None, None, f"text {index}")


def tag(text_model: TextModel, texts: Iterable[Words]) -> Iterator[Tagged]:
    """The tags of each text (a string, or a list or tuple of its words); streamed, so that memory stays flat."""
    task, split = TagTask.saved(text_model), deque[tuple[str, list[Offset]]]()
    for dataset in task.datasets(text_model, _sentences(texts, split)):
        for own in task.tags(text_model.model, dataset):
            yield Tagged.of(*split.popleft(), own.tags, own.probabilities)


def tag_probabilities(text_model: TextModel, texts: Iterable[Words]) -> Iterator[np.ndarray]:
    """The probabilities of all tags at each word of a text, (words, labels), as `TagTask.probabilities` says."""
    task = TagTask.saved(text_model)
    for dataset in task.datasets(text_model, _sentences(texts, deque(maxlen=0))):
        yield from task.probabilities(text_model.model, dataset)


TASK = TagTask
