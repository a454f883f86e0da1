"""What a language model does with texts: score them (perplexity), and generate from a prompt."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypedDict, Unpack, overload

import numpy as np
import torch

from kinfolk.checkpoints.folder import TextModel
from kinfolk.data.batching import chunks
from kinfolk.data.corpus import encode_corpus
from kinfolk.errors import InputError, MissingHeadError, check_texts, warn
from kinfolk.generation.config import Beam, DecodingConstraints, Penalty, Request, Sampling
from kinfolk.generation.defaults import MAX_BEAMS, MAX_TOKENS, check_at_most
from kinfolk.generation.sampling import chooser, sample, stream_of
from kinfolk.generation.search import beam as beam_search
from kinfolk.generation.search import steps
from kinfolk.models.family import Model
from kinfolk.nn.packed import pack
from kinfolk.objectives.language_model import mean_loss
from kinfolk.text.tokenizer import Tokenizer

BATCH_PROMPTS = 64
USUAL_TOKENS = 50  # that are generated, where nobody says how many and the context has room
MANY_UNKNOWN = 0.1  # of all tokens: beyond, a perplexity says little
UNKNOWN = "\ufffd"  # in place of a token that the vocabulary cannot spell


class UnknownWarning(UserWarning):
    """A text with many words that are not in the vocabulary."""


@dataclass(frozen=True)
class GenerateSettings:
    """At most `max_tokens` new tokens, sampled as `sampling` says or, with `search`, the most probable.

    With `slide`, a text that fills the model's context goes on from its last half.
    """

    max_tokens: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    search: Beam | None = None
    slide: bool = False


def generate_settings(
    max_tokens: int | None = None,
    beam: int | None = None,
    length_penalty: float | None = None,
    slide: bool = False,
    **drawing: float | None,
) -> GenerateSettings:
    """What `generate` will do with these arguments; `drawing` are the options of `Sampling`."""
    named: dict[str, Any] = {name: value for name, value in drawing.items() if value is not None}
    check_at_most(MAX_TOKENS, max_tokens=max_tokens)
    check_at_most(MAX_BEAMS, beam=beam)
    if length_penalty is not None and beam in (None, 1):
        raise InputError("length_penalty is an option of beam search, not of greedy search or sampling")
    if beam is None:
        return GenerateSettings(max_tokens, Sampling(**named), slide=slide)
    if named:
        raise InputError("beam search does not sample: leave out temperature, top_k, top_p and seed, or the beam")
    if slide:
        raise InputError("beam search keeps all of a text in its context: leave out slide, or the beam")
    penalty = Penalty() if length_penalty is None else Penalty(length_penalty)
    return GenerateSettings(max_tokens, search=Beam(beam, penalty=penalty))


def _parts(language_model: TextModel) -> tuple[Model, Tokenizer]:
    if "next_token" not in language_model.model.heads:
        raise MissingHeadError("this checkpoint has no next-token head; train one with `kinfolk pretrain gpt2`")
    return language_model.model, language_model.tokenizer


def token_stream(tokenizer: Tokenizer, texts: Iterable[str], end: int) -> np.ndarray:
    """All texts as one row of ids, an end after each and one before the first; blank texts are left out.

    A special token that is spelled out in a text has no effect: it is read as unknown.
    """
    return encode_corpus(tokenizer, (text for text in check_texts(texts) if text.strip())).stream(end)


def text_perplexity(language_model: TextModel, texts: str | Iterable[str]) -> float:
    """Perplexity: exp of the mean negative log-likelihood of a token.

    All texts are one stream with an end after each, which counts as a token; the first is foreseen after an end.
    Each token is scored once, given what stands before it.
    """
    model, tokenizer, end = *_parts(language_model), language_model.model.config.end_id
    stream = token_stream(tokenizer, [texts] if isinstance(texts, str) else texts, end)
    if len(stream) < 2:
        raise InputError("there is no text to score: all texts are blank")
    unknown = np.mean(stream[1:] == tokenizer.unk_id) if tokenizer.unk_id not in (None, end) else 0.0
    if unknown > MANY_UNKNOWN:
        warn(UnknownWarning(f"{unknown:.1%} of the tokens are unknown to the vocabulary, and counted as one word"))
    return math.exp(mean_loss(model, stream))


class GenerateOptions(TypedDict, total=False):
    """What `generate` takes by name, besides max_tokens."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None
    beam: int | None
    length_penalty: float | None
    slide: bool


@overload
def generate_texts(  # type: ignore[overload-overlap] # a string is a collection of strings too, but one prompt here
    language_model: TextModel, prompts: str = "", max_tokens: int | None = None, **options: Unpack[GenerateOptions]
) -> str: ...
@overload
def generate_texts(
    language_model: TextModel, prompts: Sequence[str], max_tokens: int | None = None, **options: Unpack[GenerateOptions]
) -> list[str]: ...
def generate_texts(
    language_model: TextModel,
    prompts: str | Sequence[str] = "",
    max_tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    beam: int | None = None,
    length_penalty: float | None = None,
    slide: bool = False,
) -> str | list[str]:
    """Prompts with the text generated after them, at most `max_tokens` tokens; a string for a string.

    The next token is drawn at random, the same for the same `seed` (or 0); with a `temperature` of 0, not 1, it is the
    likeliest (greedy). With `beam` the likeliest text is sought, whose log-probability is divided by
    ((5 + n) / 6)^`length_penalty` for n tokens; unsaid that is 0.6. A prompt, as the tokenizer reads it,
    gives the same text alone and beside others; where it is given several times, each draws a text of its own.
    A text must fit the model's context unless it may `slide`: then it goes on from its last half. Without `max_tokens`
    there are 50, or as many as fit.
    """
    settings = generate_settings(
        max_tokens, beam, length_penalty, slide, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
    )
    texts: list[str] = []
    seen: Counter[tuple[int, ...]] = Counter()
    for some in chunks(list(check_texts([prompts] if isinstance(prompts, str) else prompts)), BATCH_PROMPTS):
        batch = [_Writing(language_model, prompt, settings) for prompt in some]
        for writing in batch:
            writing.copy = seen[tuple(writing.before)]
            seen[tuple(writing.before)] += 1
        _write(batch, settings)
        texts += [writing.prompt + writing.text() for writing in batch]
    return texts[0] if isinstance(prompts, str) else texts


def stream_text(
    language_model: TextModel,
    prompt: str = "",
    max_tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    slide: bool = False,
) -> Iterator[str]:
    """What `generate` gives for one prompt, piece by piece as it is written: the prompt first."""
    settings = generate_settings(max_tokens, slide=slide, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    return _pieces(_Writing(language_model, prompt, settings), settings)


def _pieces(writing: _Writing, settings: GenerateSettings) -> Iterator[str]:
    model, shown = writing.model, 0
    yield writing.prompt
    decoded = torch.inference_mode()(steps)  # as a decorator, so that it holds only while a token is computed
    for _, request, numbers in _windows([writing]):
        for _, ids, _ in decoded(model, request, chooser(request, settings.sampling, numbers)):
            token = int(ids[0])
            writing.add([token], token == model.config.end_id)
            text = writing.text()
            whole = len(text) if writing.done else len(text.rstrip(UNKNOWN))  # a letter may take several tokens
            if whole > shown:
                yield text[shown:whole]
                shown = whole


def _write(batch: Sequence[_Writing], settings: GenerateSettings) -> None:
    """Write all texts of a batch to their ends."""
    for writings, request, numbers in _windows(batch):
        model = writings[0].model
        if settings.search is None:
            hypotheses = sample(model, request, settings.sampling, numbers)
        else:
            hypotheses = [best[0] for best in beam_search(model, request, settings.search)]
        for writing, hypothesis in zip(writings, hypotheses, strict=True):
            writing.add(hypothesis.ids, hypothesis.finished)


class _Writing:
    """One text on its way: its prompt, encoded as training read it, and the tokens written after it."""

    def __init__(self, language_model: TextModel, prompt: str, settings: GenerateSettings):
        self.model, self.tokenizer = model, tokenizer = _parts(language_model)
        end = model.config.end_id
        ids: list[int] = token_stream(tokenizer, [prompt], end)[:-1].tolist() or [end]
        if len(ids) > 1 and not model.config.carries_state:
            del ids[0]
        self.before, self.new, self.done = ids, list[int](), False
        self.copy = 0  # how many equal prompts came before it
        self._start = int(ids[0] == end)
        self._known = tokenizer.decode(ids[self._start :], unknown=UNKNOWN)
        # a blank at its end, which most tokenizers do not read
        self.prompt = prompt if self._known[-1:].isspace() else prompt.rstrip()
        bounded = not model.config.carries_state and not settings.slide
        self.max_tokens = _new_tokens(len(ids), settings.max_tokens, model.config.context if bounded else None)

    def window(self) -> tuple[list[int], int]:
        """The tokens to go on from, and how many more fit behind them."""
        ids, left = self.before + self.new, self.max_tokens - len(self.new)
        if self.model.config.carries_state:
            return ids, left
        context: int = self.model.config.context
        ids = ids if len(ids) <= context else ids[-max(1, context // 2) :]
        return ids, min(left, context - len(ids) + 1)

    def add(self, ids: list[int], finished: bool) -> None:
        """Tokens that were written; `finished`: the end came after (or as the last of) them."""
        self.new += [token for token in ids if token != self.model.config.end_id]
        self.done = finished or len(self.new) >= self.max_tokens

    def text(self) -> str:
        """What is written so far."""
        whole: str = self.tokenizer.decode([*self.before, *self.new][self._start :], unknown=UNKNOWN)
        return whole[len(self._known) :]


def _new_tokens(prompt: int, wanted: int | None, context: int | None) -> int:
    """How many tokens may follow a prompt of so many, in a context where it is bounded."""
    if context is None:
        return wanted or USUAL_TOKENS
    room = context - prompt + 1
    if room < (wanted or 1):
        raise InputError(
            f"the prompt has {prompt:,} tokens and {wanted or 1:,} more do not fit the model's context of {context:,}; "
            "lower max_tokens, shorten the prompt, or let the context slide (slide, --slide)"
        )
    return wanted or min(USUAL_TOKENS, room)


def _windows(batch: Sequence[_Writing]) -> Iterator[tuple[list[_Writing], Request, list[int]]]:
    """Until all have ended: the texts that go on, what to generate for them, and which random numbers each takes."""
    for window in count():
        writings = [writing for writing in batch if not writing.done]
        if not writings:
            return
        yield writings, _request(writings), [stream_of(writing.before, writing.copy, window) for writing in writings]


def _request(writings: Sequence[_Writing]) -> Request:
    model, tokenizer = writings[0].model, writings[0].tokenizer
    end = model.config.end_id
    forbidden = {token for token in (tokenizer.pad_id, tokenizer.unk_id) if token is not None} - {end}
    windows, lengths = zip(*(writing.window() for writing in writings), strict=True)
    source, constraints = [ids[:-1] for ids in windows], DecodingConstraints(end, tuple(sorted(forbidden)))
    return Request(pack(source, device=model.device), [ids[-1] for ids in windows], list(lengths), constraints)
