"""Pairs of spans, [CLS] A [SEP] B [SEP], for next-sentence prediction.

A and B are several sentences each and together fill the length: A is a stretch of a document up to a sentence's end; in
half of the pairs B is what follows, in the other half it comes from another document. One pair in ten is shorter, so
that the model meets short texts as well. Devlin et al. 2018, appendix A.2.
"""

from __future__ import annotations

import random

import numpy as np

from kinfolk.data.corpus import BRING_DOCUMENTS, EncodedCorpus
from kinfolk.errors import DataError, InputError
from kinfolk.objectives.objective import Sample
from kinfolk.objectives.pretraining import EpochSamples
from kinfolk.text.tokenizer import Tokenizer

SHORT = 0.1  # share of the pairs that do not fill the length


class SentencePairs(EpochSamples):
    """As many pairs an epoch as fill it; a sample's target says whether B follows A."""

    def __init__(self, corpus: EncodedCorpus, tokenizer: Tokenizer, length: int, batch_size: int, seed: int):
        self.corpus, self.content = corpus, length - 3
        if tokenizer.cls_id is None or tokenizer.sep_id is None:
            raise InputError("the tokenizer has no tokens that frame a pair (cls and sep)")
        self.cls_id, self.sep_id = tokenizer.cls_id, tokenizer.sep_id
        counts = np.diff(corpus.documents)
        if len(counts) < 2:
            raise DataError(f"next-sentence prediction is impossible: the text is one document; {BRING_DOCUMENTS}")
        if not (counts > 1).any():
            short = f"none of the {len(counts):,} documents has two sentences"
            raise DataError(f"next-sentence prediction is impossible: {short}; {BRING_DOCUMENTS}")
        sizes = np.diff(corpus.sentences[corpus.documents])
        self.starts = np.concatenate([[0], np.cumsum(np.where(counts > 1, sizes, 0))])  # of documents that can give A
        super().__init__(max(1, int(self.starts[-1]) // self.content), batch_size, seed)

    def make(self, epoch: int, index: int, generator: random.Random) -> Sample:
        position = (self.shift(epoch, self.content) + index * self.content) % int(self.starts[-1])
        document = int(np.searchsorted(self.starts, position, side="right")) - 1
        first, end = (int(bound) for bound in self.corpus.documents[document : document + 2])
        inside = self.corpus.sentences[first] + position - self.starts[document]
        sentence = min(int(np.searchsorted(self.corpus.sentences, inside, side="right")) - 1, end - 2)
        target = generator.randint(2, self.content) if generator.random() < SHORT else self.content
        last = self._until(sentence, end, target, least=2)
        middle = generator.randint(sentence + 1, last - 1)
        follows = generator.random() < 0.5
        a = self._ids(sentence, middle)
        b = self._ids(middle, last) if follows else self._elsewhere(document, max(1, target - len(a)), generator)
        a, b = shorten_pair(a, b, target, generator)
        ids = [self.cls_id, *a, self.sep_id, *b, self.sep_id]
        return Sample(ids, [0] * (len(a) + 2) + [1] * (len(b) + 1), follows, document)

    def _until(self, sentence: int, end: int, tokens: int, least: int = 1) -> int:
        """The end of the stretch of sentences from one on that has so many tokens, or the document's end."""
        wanted = self.corpus.sentences[sentence] + tokens
        last = int(np.searchsorted(self.corpus.sentences, wanted, side="left"))
        return min(max(last, sentence + least), end)

    def _elsewhere(self, document: int, tokens: int, generator: random.Random) -> list[int]:
        other = generator.randrange(len(self.corpus.documents) - 2)
        other += other >= document
        first, end = (int(bound) for bound in self.corpus.documents[other : other + 2])
        sentence = generator.randrange(first, end)
        return self._ids(sentence, self._until(sentence, end, tokens))

    def _ids(self, first: int, end: int) -> list[int]:
        bounds = self.corpus.sentences
        return self.corpus.ids[bounds[first] : bounds[end]].tolist()  # type: ignore[no-any-return]


def shorten_pair(a: list[int], b: list[int], limit: int, generator: random.Random) -> tuple[list[int], list[int]]:
    """The longer one loses tokens, at its front and its back, until both together have at most `limit`."""
    a_size = min(len(a), max(limit // 2, limit - len(b)))
    kept = []
    for ids, size in ((a, a_size), (b, min(len(b), limit - a_size))):
        front = generator.randint(0, len(ids) - size)
        kept.append(ids[front : front + size])
    return kept[0], kept[1]
