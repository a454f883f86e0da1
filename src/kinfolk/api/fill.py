"""Predict masked words: single subwords, or whole words of several subwords.

A word of k subwords is predicted with k masks in place of one, from left to right:

    P(word) = P(p_1) P(p_2 | p_1) … P(p_k | p_1 … p_(k-1))

Words of different lengths are compared by the geometric mean of these factors, since every further subword makes the
product smaller; that mean is the `score`. The `probability` is the product itself.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from kinfolk.checkpoints.folder import TextModel
from kinfolk.data.batching import BATCH_TOKENS, chunks
from kinfolk.errors import InputError, MissingHeadError, check_int
from kinfolk.nn.packed import pack, pack_for
from kinfolk.text.tokenizer import Tokenizer

MAX_SUBWORDS = 8
BEAM = 16  # partial words kept at each step, at least
CONTINUES = "##"  # WordPiece's mark
INSIDE = "'\u2019-\u2010\ufffd"  # marks inside words, and what stands for a part of a letter


@dataclass(frozen=True)
class Filled:
    word: str
    probability: float
    score: float
    text: str


@dataclass(frozen=True)
class _Candidate:
    ids: tuple[int, ...]
    log_probability: float

    @property
    def score(self) -> float:
        return math.exp(self.log_probability / len(self.ids))


def pair_probability(encoder: TextModel, head: str, first: str, second: str) -> float:
    """What a pre-training head says of two texts: that they follow each other, or stand in the right order."""
    if head not in encoder.model.heads:
        raise MissingHeadError(f"this checkpoint has no {head.replace('_', '-')} head")
    encoding, kept, total = encoder.tokenizer.truncate((first, second), encoder.context)
    if kept < total:
        raise InputError(f"the pair has {total:,} tokens and the model reads {encoder.context:,}; shorten it")
    with torch.inference_mode():
        tokens = pack_for(encoder.model.config.segments, [encoding.ids], [encoding.segments], encoder.device)
        return float(encoder.model.scores(head, tokens).float().softmax(-1)[0, 0])


def fill_masks(
    encoder: TextModel, text: str, top: int = 5, pieces: int = 1, words: Sequence[str] | None = None
) -> list[list[Filled]]:
    """For each mask of the text, from left to right, its best predictions; other masks stay masked meanwhile."""
    if isinstance(words, str) or (words is not None and not words):
        raise InputError("words must be a list of words to rank, at least one")
    if check_int("pieces", pieces) > MAX_SUBWORDS:
        raise InputError(f"pieces={pieces} is more than {MAX_SUBWORDS}")
    check_int("top", top)
    model, tokenizer = encoder.model, encoder.tokenizer
    if "masked_lm" not in model.heads:
        head = model.family.heads.get("masked_lm")
        advice = f"; load one that was saved with it (architecture {head.architecture})" if head else ""
        raise MissingHeadError(f"{model.family.title} has no masked-LM head, so it cannot fill masks{advice}")
    if tokenizer.mask_id is None:
        raise InputError("this tokenizer has no mask token")
    ids = tokenizer.encode(text).ids
    masks = [position for position, token in enumerate(ids) if token == tokenizer.mask_id]
    if not masks:
        raise InputError(f"the text has no {tokenizer.special_tokens['mask']}: put it where the word is missing")
    results = []
    for index, position in enumerate(masks):
        filler = _Filler(encoder, ids, position)
        if words is not None:  # given words are ranked, never dropped
            candidates = [filler.score(word) for word in words]
        else:
            lengths = range(1, pieces + 1)
            candidates = [candidate for length in lengths for candidate in filler.search(length, top, whole=pieces > 1)]
        ranked = sorted(candidates, key=lambda candidate: -candidate.score)[: None if words is not None else top]
        results.append([_filled(tokenizer, text, index, candidate) for candidate in ranked])
    return results


def fill(
    encoder: TextModel, text: str, top: int = 5, pieces: int = 1, words: Sequence[str] | None = None
) -> list[Filled] | list[list[Filled]]:
    """Guesses for the masked word: a list for one mask, a list of lists for several.

    `pieces=3` also looks for whole words of two and three pieces; `words` ranks given words of any piece count.
    """
    guesses = fill_masks(encoder, text, top, pieces, words)
    return guesses[0] if len(guesses) == 1 else guesses


class _Filler:
    def __init__(self, encoder: TextModel, ids: list[int], position: int):
        self.model, self.tokenizer, self.context = encoder.model, encoder.tokenizer, encoder.context
        self.before, self.after = ids[:position], ids[position + 1 :]
        self.starts_text = all(token in self.tokenizer.special_ids for token in self.before)

    def search(self, length: int, top: int, whole: bool) -> list[_Candidate]:
        """The best words of exactly `length` subwords, by beam search from left to right."""
        alone, beginnings, continuations = self._allowed()
        beam = [_Candidate((), 0.0)]
        width = max(top, BEAM) if length > 1 else top
        for step in range(length):
            scores = self._log_probabilities([candidate.ids for candidate in beam], length)
            allowed = alone if not whole else beginnings if step == 0 else continuations
            best = scores.masked_fill(~allowed, -math.inf).topk(min(width, scores.shape[1]), dim=1)
            longer = [
                _Candidate((*candidate.ids, token), candidate.log_probability + value)
                for candidate, values, tokens in zip(beam, best.values.tolist(), best.indices.tolist(), strict=True)
                for value, token in zip(values, tokens, strict=True)
                if value > -math.inf
            ]
            beam = sorted(longer, key=lambda candidate: -candidate.log_probability)[:width]
        return beam[:top]

    def score(self, word: str) -> _Candidate:
        """A given word."""
        ids = self.tokenizer.encode(word if self.starts_text else f" {word}", add_special_tokens=False).ids
        if not 0 < len(ids) <= MAX_SUBWORDS or self.tokenizer.unk_id in ids:
            limits = f"1 to {MAX_SUBWORDS} subwords of this vocabulary"
            raise InputError(f"the word {word!r} cannot be spelled with {limits}")
        steps = ((tuple(ids[:index]), token) for index, token in enumerate(ids))
        factors = (float(self._log_probabilities([prefix], len(ids))[0, token]) for prefix, token in steps)
        return _Candidate(tuple(ids), sum(factors))

    def _log_probabilities(self, prefixes: Sequence[tuple[int, ...]], length: int) -> Tensor:
        """log P(next subword | prefix), (prefixes, vocabulary), with masks for the subwords still to come."""
        masks, after = [self.tokenizer.mask_id] * (length - len(prefixes[0])), self.after
        rows = [[*self.before, *prefix, *masks, *after] for prefix in prefixes]
        size, position = len(rows[0]), len(self.before) + len(prefixes[0])
        if size > self.context:
            limit = f"the text has {size:,} tokens, the model reads {self.context:,}"
            raise InputError(f"{limit}: shorten it around the mask")
        scores = []
        with torch.inference_mode():
            for batch in chunks(rows, max(1, BATCH_TOKENS // size)):
                tokens = pack(batch, device=self.model.device)
                hidden = self.model(tokens)
                at = torch.tensor([start + position for start in tokens.layout.starts], device=hidden.device)
                scores.append(self.model.scores("masked_lm", tokens, hidden, at).float().cpu())
        return torch.cat(scores).log_softmax(-1)

    def _allowed(self) -> list[Tensor]:
        """Which subwords may stand here alone, which may begin a word of several, and which may continue one.

        Vocabularies that mark the blank before a word leave it out at the beginning of a text.
        """
        marked, unmarked, joining = _subword_kinds(self.tokenizer)
        first = self.tokenizer.encode("a", add_special_tokens=False).ids
        bare = self.starts_text and bool(first) and not self.tokenizer.starts_word(first[0])
        padding = (0, self.model.config.vocabulary_size - self.tokenizer.vocabulary_size)  # rows without a token
        masks = (unmarked, unmarked, joining) if bare else (marked | unmarked, marked, joining)
        return [F.pad(mask, padding) for mask in masks]


_KINDS: WeakKeyDictionary[Tokenizer, tuple[Tensor, Tensor, Tensor]] = WeakKeyDictionary()


def _subword_kinds(tokenizer: Tokenizer) -> tuple[Tensor, Tensor, Tensor]:
    """Masks of the subwords that begin a word, of all others, and of those others that may continue a word.

    Special tokens and holes are none of them. A vocabulary that marks the beginnings of words leaves punctuation
    unmarked too, which ends a word. Cached: a pass over the vocabulary takes longer than a prediction.
    """
    if tokenizer not in _KINDS:
        tokens, special = range(tokenizer.vocabulary_size), tokenizer.special_ids
        known = torch.tensor([token not in special and tokenizer.id_to_token(token) != "" for token in tokens])
        marked = known & torch.tensor([tokenizer.starts_word(token) for token in tokens])
        continuing = torch.tensor([_continues_word(tokenizer, token) for token in tokens])
        _KINDS[tokenizer] = marked, known & ~marked, known & ~marked & continuing
    return _KINDS[tokenizer]


def _continues_word(tokenizer: Tokenizer, token: int) -> bool:
    """If it is marked so (##), or has letters (or a part of one, U+FFFD) and marks inside words only."""
    if tokenizer.id_to_token(token).startswith(CONTINUES):
        return True
    text = tokenizer.decode([token]).strip()
    return bool(text) and all(letter in INSIDE or unicodedata.category(letter)[0] in "LM" for letter in text)


def _filled(tokenizer: Tokenizer, text: str, index: int, candidate: _Candidate) -> Filled:
    word = tokenizer.decode(candidate.ids).strip() or tokenizer.id_to_token(candidate.ids[0])
    mask = tokenizer.special_tokens["mask"]
    parts = text.split(mask)
    before, after = mask.join(parts[: index + 1]), mask.join(parts[index + 1 :])
    before = before.rstrip() if word.startswith(CONTINUES) else before  # it continues the word before
    whole = before + word.removeprefix(CONTINUES) + after
    return Filled(word, math.exp(candidate.log_probability), candidate.score, whole)
