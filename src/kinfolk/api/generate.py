"""What a language model does with texts: score them (perplexity), and generate from a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kinfolk.api.generation_config import MAX_BEAMS, MAX_TOKENS
from kinfolk.data.batching import chunks
from kinfolk.errors import InputError, MissingHeadError, check_int, check_texts, warn
from kinfolk.generation.config import Beam, DecodingConstraints, Penalty, Request, Sampling
from kinfolk.generation.sampling import sample
from kinfolk.generation.search import beam as beam_search
from kinfolk.models.family import Model
from kinfolk.nn.packed import pack
from kinfolk.objectives.language_model import perplexity
from kinfolk.text.tokenizer import Tokenizer

CHUNK_TEXTS = 2048  # encoded at a time
BATCH_PROMPTS = 64
MANY_UNKNOWN = 0.1  # of all tokens: beyond, a perplexity says little
UNKNOWN = "\ufffd"  # in place of a token that the vocabulary cannot spell


class UnknownWarning(UserWarning):
    """A text most of whose words are not in the vocabulary."""


@dataclass(frozen=True)
class GenerateSettings:
    """At most `max_tokens` new tokens, sampled as `sampling` says or, with a beam, the most probable."""

    max_tokens: int
    sampling: Sampling
    beam: int | None = None

    def __post_init__(self) -> None:
        for name, value, maximum in (("max_tokens", self.max_tokens, MAX_TOKENS), ("beam", self.beam, MAX_BEAMS)):
            if value is not None and check_int(name, value) > maximum:
                raise InputError(f"{name}={value} must be from 1 to {maximum:,}")
        if self.beam is not None and self.sampling != Sampling():
            raise InputError("beam search does not sample: leave out temperature, top_k, top_p and seed, or the beam")


def require_generation(model: Model) -> None:
    """Refuse a model that does not predict the next token."""
    if "next_token" not in model.heads:
        raise MissingHeadError("this checkpoint has no next-token head; train one with `kinfolk pretrain`")


def token_stream(tokenizer: Tokenizer, texts: Iterable[str], end: int) -> np.ndarray:
    """All texts as one row of ids, an end after each and one before the first; blank texts are left out.

    A special token that is spelled out in a text has no effect: it is read as unknown.
    """
    parts = [np.array([end], dtype=np.int32)]
    unknown = tokenizer.unk_id
    special = np.array(sorted(tokenizer.special_ids - {unknown}), dtype=np.int32)
    for lines in chunks((text for text in check_texts(texts) if text.strip()), CHUNK_TEXTS):
        for encoding in tokenizer.encode_many(lines, add_special_tokens=False):
            ids = np.array([*encoding.ids, end], dtype=np.int32)
            if unknown is not None:
                ids[:-1][np.isin(ids[:-1], special)] = unknown
            parts.append(ids)
    return np.concatenate(parts)


def text_perplexity(model: Model, tokenizer: Tokenizer, texts: Iterable[str]) -> float:
    """exp of the mean -log p of every token, ends of texts included, each given all before it."""
    require_generation(model)
    stream = token_stream(tokenizer, texts, model.config.end_id)
    if len(stream) < 2:
        raise InputError("there is no text to score: all texts are blank")
    unknown = np.mean(stream[1:] == tokenizer.unk_id) if tokenizer.unk_id is not None else 0.0
    if unknown > MANY_UNKNOWN:
        warn(UnknownWarning(f"{unknown:.1%} of the tokens are unknown to the vocabulary, and counted as one word"))
    return perplexity(model, stream)


def generate_texts(model: Model, tokenizer: Tokenizer, prompts: Sequence[str], settings: GenerateSettings) -> list[str]:
    """Each prompt, encoded as in training, with the text generated after it; an empty one begins a text."""
    require_generation(model)
    end = model.config.end_id
    forbidden = {token for token in (tokenizer.pad_id, tokenizer.unk_id) if token is not None} - {end}
    rules = DecodingConstraints(end, tuple(sorted(forbidden)))
    texts: list[str] = []
    prompts = list(check_texts(prompts))
    for first in range(0, len(prompts), BATCH_PROMPTS):
        batch = prompts[first : first + BATCH_PROMPTS]
        prompt_ids = [token_stream(tokenizer, [prompt], end)[:-1].tolist() or [end] for prompt in batch]
        source = pack([ids[:-1] for ids in prompt_ids], device=model.device)
        request = Request(source, [ids[-1] for ids in prompt_ids], [settings.max_tokens] * len(batch), rules)
        with torch.inference_mode():
            if settings.beam is None:
                indices = range(first, first + len(batch))
                hypotheses = sample(model, request, settings.sampling, indices)
            else:
                options = Beam(settings.beam, penalty=Penalty(0.0))
                hypotheses = [best[0] for best in beam_search(model, request, options)]
        new_ids = [hypothesis.ids for hypothesis in hypotheses]
        for prompt, before, after in zip(batch, prompt_ids, new_ids, strict=True):
            whole, known = (tokenizer.decode(ids, unknown=UNKNOWN) for ids in ([*before[1:], *after], before[1:]))
            kept = prompt if known[-1:].isspace() else prompt.rstrip()  # a blank at its end, which most do not read
            texts.append(kept + whole[len(known) :])
    return texts
