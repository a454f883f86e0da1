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

from kinfolk.api.embed import packed
from kinfolk.data.batching import BATCH_TOKENS
from kinfolk.errors import InputError, MissingHeadError, check_int
from kinfolk.models.family import Model
from kinfolk.text.tokenizer import Tokenizer

MAX_SUBWORDS = 8
BEAM = 16  # partial words kept at each step, at least
CONTINUES = "##"  # WordPiece's mark
INSIDE = "'\u2019-\u2010\ufffd"  # marks inside words, and what stands for a part of a letter


@dataclass(frozen=True)
class Filled:
    """One prediction for one mask."""

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


def fill_masks(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    top: int = 5,
    pieces: int = 1,
    words: Sequence[str] | None = None,
    context: int = 512,
) -> list[list[Filled]]:
    """For each mask of the text, from left to right, its best predictions; other masks stay masked meanwhile."""
    if isinstance(words, str) or (words is not None and not words):
        raise InputError("words must be a list of words to rank, at least one")
    ids = _encode(model, tokenizer, text, top, pieces)
    masks = [position for position, token in enumerate(ids) if token == tokenizer.mask_id]
    results = []
    for index, position in enumerate(masks):
        filler = _Filler(model, tokenizer, ids, position, context)
        if words is not None:  # given words are ranked, never dropped
            candidates = [filler.score(_subwords(tokenizer, word, filler.starts_text)) for word in words]
        else:
            lengths = range(1, pieces + 1)
            candidates = [candidate for length in lengths for candidate in filler.search(length, top, whole=pieces > 1)]
        ranked = sorted(candidates, key=lambda candidate: -candidate.score)
        ranked = ranked[:top] if words is None else ranked
        results.append([_filled(tokenizer, text, index, candidate) for candidate in ranked])
    return results


def _encode(model: Model, tokenizer: Tokenizer, text: str, top: int, pieces: int) -> list[int]:
    if "masked_lm" not in model.family.heads:
        raise MissingHeadError(f"{model.family.title} has no masked-LM head, so it cannot fill masks")
    if "masked_lm" not in model.heads:
        raise MissingHeadError(
            "this checkpoint has no masked-LM head, so it cannot fill masks; load one that was saved with it "
            f"(architecture {model.family.heads['masked_lm'].architecture})"
        )
    if tokenizer.mask_id is None:
        raise InputError("this tokenizer has no mask token")
    check_int("top", top)
    if check_int("pieces", pieces) > MAX_SUBWORDS:
        raise InputError(f"pieces={pieces} is more than {MAX_SUBWORDS}")
    ids = tokenizer.encode(text).ids
    if tokenizer.mask_id not in ids:
        raise InputError(f"the text has no {tokenizer.special_tokens['mask']}: put it where the word is missing")
    return ids


class _Filler:
    """Predictions for one mask."""

    def __init__(self, model: Model, tokenizer: Tokenizer, ids: list[int], position: int, context: int):
        self.model, self.tokenizer, self.ids, self.position, self.context = model, tokenizer, ids, position, context
        self.starts_text = all(token in tokenizer.special_ids for token in ids[:position])
        self.single, self.beginnings, self.continuations = self._allowed()

    def search(self, length: int, top: int, whole: bool) -> list[_Candidate]:
        """The best words of exactly `length` subwords, by beam search from left to right."""
        beam = [_Candidate((), 0.0)]
        width = max(top, BEAM) if length > 1 else top
        for step in range(length):
            scores = self._log_probabilities([candidate.ids for candidate in beam], length)
            allowed = self.single if not whole else self.beginnings if step == 0 else self.continuations
            scores = scores.masked_fill(~allowed, float("-inf"))
            best = scores.topk(min(width, scores.shape[1]), dim=1)
            longer = [
                _Candidate((*candidate.ids, int(token)), candidate.log_probability + float(value))
                for candidate, values, tokens in zip(beam, best.values.tolist(), best.indices.tolist(), strict=True)
                for value, token in zip(values, tokens, strict=True)
                if value > float("-inf")
            ]
            beam = sorted(longer, key=lambda candidate: -candidate.log_probability)[:width]
        return beam[:top]

    def score(self, ids: tuple[int, ...]) -> _Candidate:
        """The probability of a given word."""
        steps = enumerate(ids)
        return _Candidate(ids, sum(float(self._log_probabilities([ids[:i]], len(ids))[0, token]) for i, token in steps))

    def _log_probabilities(self, prefixes: Sequence[tuple[int, ...]], length: int) -> Tensor:
        """log P(next subword | prefix), (prefixes, vocabulary), with masks for the subwords still to come."""
        assert self.tokenizer.mask_id is not None
        before, after = self.ids[: self.position], self.ids[self.position + 1 :]
        rows = [[*before, *prefix, *[self.tokenizer.mask_id] * (length - len(prefix)), *after] for prefix in prefixes]
        if len(rows[0]) > self.context:
            raise InputError(
                f"the text has {len(rows[0]):,} tokens, the model reads {self.context:,}: shorten it around the mask"
            )
        size = max(1, BATCH_TOKENS // len(rows[0]))
        batches = [rows[start : start + size] for start in range(0, len(rows), size)]
        return torch.cat([self._scores(batch, len(prefixes[0])) for batch in batches]).log_softmax(-1)

    def _scores(self, rows: list[list[int]], done: int) -> Tensor:
        """Scores over the vocabulary at the first subword that is still to come, (rows, vocabulary)."""
        with torch.inference_mode():
            tokens = packed(self.model, rows, [])
            hidden = self.model(tokens)
            positions = [start + self.position + done for start in tokens.layout.starts]
            scores = self.model.scores("masked_lm", tokens, hidden, torch.tensor(positions, device=hidden.device))
            return scores.float().cpu()

    def _allowed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Which subwords may stand here alone, which may begin a word of several, and which may continue one.

        Vocabularies that mark the blank before a word leave it out at the beginning of a text.
        """
        marked, unmarked, joining = _subword_kinds(self.tokenizer)
        first = self.tokenizer.encode("a", add_special_tokens=False).ids
        bare = self.starts_text and bool(first) and not self.tokenizer.starts_word(first[0])
        padding = (0, self.model.config.vocabulary_size - self.tokenizer.vocabulary_size)  # rows without a token
        alone, beginnings = (unmarked, unmarked) if bare else (marked | unmarked, marked)
        return F.pad(alone, padding), F.pad(beginnings, padding), F.pad(joining, padding)


_KINDS: WeakKeyDictionary[Tokenizer, tuple[Tensor, Tensor, Tensor]] = WeakKeyDictionary()


def _subword_kinds(tokenizer: Tokenizer) -> tuple[Tensor, Tensor, Tensor]:
    """Masks of the subwords that begin a word, of all others, and of those others that may continue a word.

    Special tokens and holes are none of them. A vocabulary that marks the beginnings of words leaves punctuation
    unmarked too, which ends a word and does not continue it. Cached: a pass over the vocabulary takes longer than a
    prediction.
    """
    if tokenizer not in _KINDS:
        tokens, special = range(tokenizer.vocabulary_size), tokenizer.special_ids
        known = torch.tensor([token not in special and tokenizer.id_to_token(token) != "" for token in tokens])
        marked = known & torch.tensor([tokenizer.starts_word(token) for token in tokens])
        continuing = torch.tensor([_continues_word(tokenizer, token) for token in tokens])
        _KINDS[tokenizer] = marked, known & ~marked, known & ~marked & continuing
    return _KINDS[tokenizer]


def _continues_word(tokenizer: Tokenizer, token: int) -> bool:
    """May a word continue with this subword? If it is marked so (##), or has letters and marks inside words only.

    Half a letter (of a byte-level vocabulary) is shown as U+FFFD.
    """
    if tokenizer.id_to_token(token).startswith(CONTINUES):
        return True
    text = tokenizer.decode([token]).strip()
    return bool(text) and all(letter in INSIDE or unicodedata.category(letter)[0] in "LM" for letter in text)


def _subwords(tokenizer: Tokenizer, word: str, starts_text: bool) -> tuple[int, ...]:
    ids = tokenizer.encode(word if starts_text else f" {word}", add_special_tokens=False).ids
    if not ids or len(ids) > MAX_SUBWORDS or tokenizer.unk_id in ids:
        raise InputError(f"the word {word!r} cannot be spelled with 1 to {MAX_SUBWORDS} subwords of this vocabulary")
    return tuple(ids)


def _filled(tokenizer: Tokenizer, text: str, index: int, candidate: _Candidate) -> Filled:
    word = tokenizer.decode(candidate.ids).strip() or tokenizer.id_to_token(candidate.ids[0])
    mask = tokenizer.special_tokens["mask"]
    parts = text.split(mask)
    before, after = mask.join(parts[: index + 1]), mask.join(parts[index + 1 :])
    if word.startswith(CONTINUES):  # it continues the word before
        whole = before.rstrip() + word.removeprefix(CONTINUES) + after
    else:
        whole = before + word + after
    return Filled(word, math.exp(candidate.log_probability), candidate.score, whole)
