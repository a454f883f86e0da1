"""Guess what a mask hides: single pieces, or whole words of several pieces.

A word of k pieces is guessed with k masks in the place of one, from left to right:

    P(word) = P(p_1) P(p_2 | p_1) … P(p_k | p_1 … p_(k-1))

Words of different piece counts are compared by the geometric mean of these factors, since every further piece makes
the product smaller; that mean is the `score`. The `probability` is the product itself.
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

from kinfolk.api.embed import BATCH_TOKENS, packed
from kinfolk.errors import InputError, MissingHeadError, check_collection, check_int, type_name
from kinfolk.models.family import Model
from kinfolk.text.tokenizer import Tokenizer

MOST_PIECES = 8
BEAM = 16  # partial words kept at each step, at least
CONTINUES = "##"  # WordPiece's mark
INSIDE = "'\u2019-\u2010\ufffd"  # signs inside words, and what stands for a part of a letter


@dataclass(frozen=True)
class Filled:
    """One guess for one mask."""

    word: str
    probability: float
    score: float
    text: str


@dataclass(frozen=True)
class _Guess:
    pieces: tuple[int, ...]
    log_probability: float

    @property
    def score(self) -> float:
        return math.exp(self.log_probability / len(self.pieces))


def fill_masks(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    top: int = 5,
    pieces: int = 1,
    words: Sequence[str] | None = None,
    context: int = 512,
) -> list[list[Filled]]:
    """For each mask of the text, from left to right, its best guesses; other masks stay masked meanwhile."""
    if not isinstance(text, str):
        raise InputError(f"fill takes one text, found {type_name(text)}")
    given = None if words is None else list(check_collection(words, "words as a list"))
    if not all(isinstance(word, str) for word in given or []):
        raise InputError("words must be a list of strings")
    if given == []:
        raise InputError("words is an empty list: give words to rank, or leave it out")
    ids = _checked(model, tokenizer, text, top, pieces)
    places = [place for place, number in enumerate(ids) if number == tokenizer.mask_id]
    found = []
    for number, place in enumerate(places):
        filler = _Filler(model, tokenizer, ids, place, context)
        if given is not None:
            guesses = [filler.score(_word_pieces(tokenizer, word, filler.starts_text)) for word in given]
        else:
            guesses = [guess for count in range(1, pieces + 1) for guess in filler.search(count, top, whole=pieces > 1)]
        ranked = sorted(guesses, key=lambda guess: -guess.score)
        # Given words are ranked, never dropped.
        found.append([_filled(tokenizer, text, number, guess) for guess in (ranked[:top] if given is None else ranked)])
    return found


def _checked(model: Model, tokenizer: Tokenizer, text: str, top: int, pieces: int) -> list[int]:
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
    if check_int("pieces", pieces) > MOST_PIECES:
        raise InputError(f"pieces={pieces} is more than {MOST_PIECES}")
    ids = tokenizer.encode(text).ids
    if tokenizer.mask_id not in ids:
        raise InputError(f"the text has no {tokenizer.special_tokens['mask']}: put it where the word is missing")
    return ids


class _Filler:
    """Guesses for one mask."""

    def __init__(self, model: Model, tokenizer: Tokenizer, ids: list[int], place: int, context: int):
        self.model, self.tokenizer, self.ids, self.place, self.context = model, tokenizer, ids, place, context
        self.starts_text = all(number in tokenizer.special_ids for number in ids[:place])
        self.pieces, self.beginnings, self.continuations = self._allowed()

    def search(self, count: int, top: int, whole: bool) -> list[_Guess]:
        """The best words of exactly `count` pieces, by beam search from left to right."""
        beam = [_Guess((), 0.0)]
        width = max(top, BEAM) if count > 1 else top
        for step in range(count):
            scores = self._log_probabilities([guess.pieces for guess in beam], count)
            allowed = self.pieces if not whole else self.beginnings if step == 0 else self.continuations
            scores = scores.masked_fill(~allowed, float("-inf"))
            best = scores.topk(min(width, scores.shape[1]), dim=1)
            longer = [
                _Guess((*guess.pieces, int(piece)), guess.log_probability + float(value))
                for guess, values, numbers in zip(beam, best.values.tolist(), best.indices.tolist(), strict=True)
                for value, piece in zip(values, numbers, strict=True)
                if value > float("-inf")
            ]
            beam = sorted(longer, key=lambda guess: -guess.log_probability)[:width]
        return beam[:top]

    def score(self, pieces: tuple[int, ...]) -> _Guess:
        """How probable a given word is."""
        total = 0.0
        for step, piece in enumerate(pieces):
            total += float(self._log_probabilities([pieces[:step]], len(pieces))[0, piece])
        return _Guess(pieces, total)

    def _log_probabilities(self, prefixes: Sequence[tuple[int, ...]], count: int) -> Tensor:
        """log P(next piece | prefix), (prefixes, vocabulary), with masks for the pieces still to come."""
        assert self.tokenizer.mask_id is not None
        before, after = self.ids[: self.place], self.ids[self.place + 1 :]
        rows = [[*before, *prefix, *[self.tokenizer.mask_id] * (count - len(prefix)), *after] for prefix in prefixes]
        if len(rows[0]) > self.context:
            raise InputError(
                f"the text has {len(rows[0]):,} tokens, the model reads {self.context:,}: shorten it around the mask"
            )
        size = max(1, BATCH_TOKENS // len(rows[0]))
        found = [self._scores(rows[start : start + size], len(prefixes[0])) for start in range(0, len(rows), size)]
        return torch.cat(found).log_softmax(-1)

    def _scores(self, rows: list[list[int]], done: int) -> Tensor:
        """Scores over the vocabulary at the first piece that is still to come, (rows, vocabulary)."""
        with torch.inference_mode():
            tokens = packed(self.model, rows, [])
            hidden = self.model(tokens)
            at = [start + self.place + done for start in tokens.layout.starts]
            scores = self.model.scores("masked_lm", tokens, hidden, torch.tensor(at, device=hidden.device))
            return scores.float().cpu()

    def _allowed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Which pieces may stand here alone, which may begin a word of several, and which may go on with one.

        Vocabularies that mark the blank before a word leave it out where a text begins.
        """
        marked, unmarked, joining = _kinds_of_pieces(self.tokenizer)
        first = self.tokenizer.encode("a", add_special_tokens=False).ids
        bare = self.starts_text and bool(first) and not self.tokenizer.starts_word(first[0])
        hole = (0, self.model.config.vocabulary_size - self.tokenizer.vocabulary_size)  # rows that no piece has
        alone, beginnings = (unmarked, unmarked) if bare else (marked | unmarked, marked)
        return F.pad(alone, hole), F.pad(beginnings, hole), F.pad(joining, hole)


_KINDS: WeakKeyDictionary[Tokenizer, tuple[Tensor, Tensor, Tensor]] = WeakKeyDictionary()


def _kinds_of_pieces(tokenizer: Tokenizer) -> tuple[Tensor, Tensor, Tensor]:
    """Masks of the pieces that begin a word, of all others, and of those others that a word may go on with.

    Special pieces and holes are none of them. A vocabulary that marks where words begin leaves punctuation unmarked
    too, which ends a word and does not go on with it. Kept: to look at every piece of a vocabulary takes longer than to
    fill a mask.
    """
    if tokenizer not in _KINDS:
        numbers, special = range(tokenizer.vocabulary_size), tokenizer.special_ids
        known = torch.tensor([number not in special and tokenizer.id_to_token(number) != "" for number in numbers])
        marked = known & torch.tensor([tokenizer.starts_word(number) for number in numbers])
        spelled = torch.tensor([_goes_on(tokenizer, number) for number in numbers])
        _KINDS[tokenizer] = marked, known & ~marked, known & ~marked & spelled
    return _KINDS[tokenizer]


def _goes_on(tokenizer: Tokenizer, number: int) -> bool:
    """May a word go on with this piece? What says so itself (##) may; else letters, marks, signs inside words may.

    Half a letter (of a vocabulary of bytes) is shown as U+FFFD.
    """
    if tokenizer.id_to_token(number).startswith(CONTINUES):
        return True
    text = tokenizer.decode([number]).strip()
    return bool(text) and all(letter in INSIDE or unicodedata.category(letter)[0] in "LM" for letter in text)


def _word_pieces(tokenizer: Tokenizer, word: str, starts_text: bool) -> tuple[int, ...]:
    found = tokenizer.encode(word if starts_text else f" {word}", add_special_tokens=False).ids
    if not found or len(found) > MOST_PIECES or tokenizer.unk_id in found:
        raise InputError(f"the word {word!r} cannot be spelt with 1 to {MOST_PIECES} pieces of this vocabulary")
    return tuple(found)


def _filled(tokenizer: Tokenizer, text: str, number: int, guess: _Guess) -> Filled:
    word = tokenizer.decode(guess.pieces).strip()
    if not word:
        word = tokenizer.id_to_token(guess.pieces[0])
    mask = tokenizer.special_tokens["mask"]
    parts = text.split(mask)
    before, after = mask.join(parts[: number + 1]), mask.join(parts[number + 1 :])
    if word.startswith(CONTINUES):  # it goes on with the word before
        whole = before.rstrip() + word.removeprefix(CONTINUES) + after
    else:
        whole = before + word + after
    return Filled(word, math.exp(guess.log_probability), guess.score, whole)
