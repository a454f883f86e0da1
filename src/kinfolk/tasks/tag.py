"""What tagging is: a tag for each word, learned word by word or, with a random field, as paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfolk.api.embed import BATCH_TOKENS
from kinfolk.data.batching import token_batches
from kinfolk.data.examples import Sentence
from kinfolk.data.tagging import OUTSIDE, has_spans
from kinfolk.errors import InputError, shorten_list
from kinfolk.models.family import Model
from kinfolk.nn.packed import Layout
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.objectives.supervised import IGNORED, CrfTag, Tag
from kinfolk.tasks.tagged import Tagged
from kinfolk.tasks.task import WHOLE, EvalResult, Mistake, TaskOptions, Windows, label_names, label_tables
from kinfolk.tasks.text import SHOWN_MISTAKES, class_weight_list, even_classes
from kinfolk.tasks.word_scoring import WordItems, WordScores, score_words, word_items
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.training.logistic import softmax

NEIGHBOURS = 5  # words shown on either side of a mistake
HEADS = {False: "tag", True: "tag_crf"}
Decoded = tuple[np.ndarray, np.ndarray]  # of one sentence's words with a piece: numbers of tags, their probabilities


@dataclass(frozen=True)
class Guesses:
    """A tag for every word of a sentence, with its probability; a word without a piece is O with probability 0."""

    tags: tuple[str, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class TagDataset:
    """Sentences as the model reads them."""

    found: WordItems
    examples: Sequence[Sentence]

    @property
    def items(self) -> list[Sample]:
        return self.found.items


@dataclass(frozen=True)
class TagTask:
    """Tags for words. A long sentence is read in windows, and each word in the one where it is most central."""

    labels: tuple[str, ...]
    windows: Windows = WHOLE
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
        place: Callable[[int], str] = "text {}".format,
    ) -> WordItems:
        """Sentences without tags, for a model that reads `context` tokens at once; `place` is for messages."""
        size = self.windows.size(context, tokenizer.special_tokens_count())
        return word_items(tokenizer, sentences, None, size, self.windows.stride, place)

    def unseen(self, examples: Sequence[Sentence]) -> list[str]:
        """Tags of these sentences that training did not see."""
        return sorted({tag for example in examples for tag in example.tags or ()} - {*self.labels})

    def dataset(self, tokenizer: Tokenizer, examples: Sequence[Sentence], size: int) -> TagDataset:
        """Sentences with their tags. A tag that training did not see is no target; when judged, it is never found."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        targets = [[numbers.get(tag, IGNORED) for tag in example.tags or ()] for example in examples]
        words, where = [example.words for example in examples], [example.location for example in examples]
        size, stride = self.windows.size(size, tokenizer.special_tokens_count()), self.windows.stride
        found = word_items(tokenizer, words, targets, size, stride, where.__getitem__)
        if examples and not found.items:
            raise InputError(f"{where[0]}: the tokenizer makes nothing of the words here and after it")
        return TagDataset(found, examples)

    def guesses(self, model: Model, found: WordItems, lengths: Sequence[int]) -> Iterator[Guesses]:
        """The tags of each sentence, which has so many words."""
        scored = score_words(model, self.objective(model), found, len(self.labels))
        decoded = self._paths(model, scored) if self.crf else map(_one_by_one, scored)
        for length, own, (numbers, chances) in zip(lengths, scored, decoded, strict=True):
            tags, sure = [OUTSIDE] * length, [0.0] * length
            for word, number, chance in zip(own.words.tolist(), numbers.tolist(), chances.tolist(), strict=True):
                tags[word], sure[word] = self.labels[number], chance
            yield Guesses(tuple(tags), tuple(sure))

    def chances(self, model: Model, found: WordItems, lengths: Sequence[int]) -> Iterator[np.ndarray]:
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

    def judge(self, model: Model, dataset: TagDataset) -> EvalResult:
        """Entities found and missed, or the share of right words where tags mark no spans."""
        from kinfolk.training.metrics import tagging  # only training and evaluation need seqeval

        examples = dataset.examples
        guesses = list(self.guesses(model, dataset.found, [len(example.words) for example in examples]))
        metrics = tagging([example.tags or () for example in examples], [found.tags for found in guesses])
        wrong = nlargest(SHOWN_MISTAKES, _wrong(examples, guesses), key=lambda item: item[0])
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
    def from_hf(cls, public: Mapping[str, Any], labels: int, crf: bool) -> TagTask:
        """The task of a saved model with so many tags; LABEL_0, LABEL_1 … where its config names none."""
        return cls(label_names(public, labels), Windows.from_hf(public), crf=crf)


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
