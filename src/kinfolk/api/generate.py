"""What a language model does with texts: tell how well it foresees them, and write on from where they stop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kinfolk.api.generation_config import MOST_BEAMS, MOST_LENGTH
from kinfolk.data.batching import chunks
from kinfolk.errors import InputError, MissingHeadError, check_int, check_texts, warn
from kinfolk.generation.config import Beam, DecodingConstraints, Penalty, Request, Sampling
from kinfolk.generation.sampling import sample
from kinfolk.generation.search import beam as beam_search
from kinfolk.models.family import Model
from kinfolk.nn.packed import pack
from kinfolk.objectives.language_model import perplexity
from kinfolk.text.tokenizer import Tokenizer

LINES = 2048  # encoded at a time
TOGETHER = 64  # texts written side by side
MANY_UNKNOWN = 0.1  # of all tokens: beyond, a perplexity says little


class UnknownWarning(UserWarning):
    """A text whose words the vocabulary mostly does not have."""


UNKNOWN = "\ufffd"  # in the place of a token that the vocabulary cannot spell


@dataclass(frozen=True)
class WriteSettings:
    """How to write on: at most `tokens` more, drawn at random as `sampling` says or, with a beam, the likeliest."""

    tokens: int
    sampling: Sampling
    beam: int | None = None

    def __post_init__(self) -> None:
        for name, number, most in (("tokens", self.tokens, MOST_LENGTH), ("beam", self.beam, MOST_BEAMS)):
            if number is not None and check_int(name, number) > most:
                raise InputError(f"{name}={number} must be from 1 to {most:,}")
        if self.beam is not None and self.sampling != Sampling():
            raise InputError("a beam draws nothing: leave out temperature, top_k, top_p and seed, or the beam")


def require_generation(model: Model) -> None:
    """Refuse a model that does not predict the next token."""
    if "next_token" not in model.heads:
        raise MissingHeadError("this checkpoint does not guess the next token; train one with `kinfolk pretrain`")


def token_stream(tokenizer: Tokenizer, texts: Iterable[str], end: int) -> np.ndarray:
    """All texts as one row of ids, an end after each and one before the first; blank texts are left out.

    A special token that is spelled out in a text is not obeyed: it reads as unknown.
    """
    parts = [np.array([end], dtype=np.int32)]
    unknown = tokenizer.unk_id
    obeyed = np.array(sorted(tokenizer.special_ids - {unknown}), dtype=np.int32)
    for lines in chunks((text for text in check_texts(texts) if text.strip()), LINES):
        for encoding in tokenizer.encode_many(lines, add_special_tokens=False):
            ids = np.array([*encoding.ids, end], dtype=np.int32)
            if unknown is not None:
                ids[:-1][np.isin(ids[:-1], obeyed)] = unknown
            parts.append(ids)
    return np.concatenate(parts)


def text_perplexity(model: Model, tokenizer: Tokenizer, texts: Iterable[str]) -> float:
    """exp of the mean -log p of every token, ends of texts included, each scored once and given all before it."""
    require_generation(model)
    stream = token_stream(tokenizer, texts, model.config.end_id)
    if len(stream) < 2:
        raise InputError("there is no text to foresee: all texts are blank")
    unknown = np.mean(stream[1:] == tokenizer.unk_id) if tokenizer.unk_id is not None else 0.0
    if unknown > MANY_UNKNOWN:
        told = f"{unknown:.1%} of the tokens are unknown to the vocabulary, and counted as if they were one word"
        warn(UnknownWarning(told))
    return perplexity(model, stream)


def write_on(model: Model, tokenizer: Tokenizer, prompts: Sequence[str], settings: WriteSettings) -> list[str]:
    """Each prompt, read as training read its texts, with what the model writes after it; an empty one begins a text."""
    require_generation(model)
    end = model.config.end_id
    never = {tokenizer.pad_id, tokenizer.unk_id} - {None, end}
    rules = DecodingConstraints(end, tuple(sorted(token for token in never if token is not None)))
    found: list[str] = []
    prompts = list(check_texts(prompts))
    for first in range(0, len(prompts), TOGETHER):
        some = prompts[first : first + TOGETHER]
        given = [token_stream(tokenizer, [prompt], end)[:-1].tolist() or [end] for prompt in some]
        source = pack([ids[:-1] for ids in given], device=model.device)
        request = Request(source, [ids[-1] for ids in given], [settings.tokens] * len(given), rules)
        written = _written(model, request, settings, range(first, first + len(given)))
        for prompt, before, after in zip(some, given, written, strict=True):
            whole, known = (tokenizer.decode(ids, unknown=UNKNOWN) for ids in ([*before[1:], *after], before[1:]))
            kept = prompt if known[-1:].isspace() else prompt.rstrip()  # a blank at its end, which most do not read
            found.append(kept + whole[len(known) :])
    return found


def _written(model: Model, request: Request, settings: WriteSettings, numbers: range) -> list[list[int]]:
    with torch.inference_mode():
        if settings.beam is not None:
            return [
                options[0].ids for options in beam_search(model, request, Beam(settings.beam, penalty=Penalty(0.0)))
            ]
        return [text.ids for text in sample(model, request, settings.sampling, list(numbers))]
