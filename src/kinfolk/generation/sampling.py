"""Sampling: the next token is drawn from the model's distribution, sharpened or cut as asked.

Each draw uses one uniform number that is computed from (seed, what the text is written from, number of the token), not
taken from a running generator. So a sentence gets the same text alone, in any batch and in any order.
The uniform number picks from the cumulated probabilities in the order of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinfolk.errors import InputError
from kinfolk.generation.config import Hypothesis, Request, Sampling
from kinfolk.generation.search import Choose, generate
from kinfolk.models.family import Model

SMALLEST_TEMPERATURE = 1e-30  # where the likeliest token has all of the share already; less is no number of 32 bits
FIRST_WIDTH = 256  # of the likeliest tokens, enough for most top_p; sorting a whole vocabulary is slow


def stream_of(ids: Sequence[int], *place: int) -> int:
    """Which random numbers a text takes: a hash of what it is written from, so that neither its place in a job nor the
    others matter."""
    return (
        int.from_bytes(blake2b(np.array([*ids, *place], dtype="<i8").tobytes(), digest_size=8).digest(), "little") >> 1
    )


@torch.inference_mode()
def sample(
    model: Model, request: Request, options: Sampling | None = None, numbers: Sequence[int] | None = None
) -> list[Hypothesis]:
    """For each sentence a text drawn at random; its log-probability is the model's own, whatever the temperature."""
    return generate(model, request, chooser(request, options or Sampling(), numbers))


def chooser(request: Request, settings: Sampling, numbers: Sequence[int] | None = None) -> Choose:
    """Draws the next token of each row; `numbers` say which random numbers a sentence takes, by default its place."""
    own = range(len(request.max_lengths)) if numbers is None else numbers
    if len(own) != len(request.max_lengths) or not all(0 <= number < 2**63 for number in own):
        raise InputError(f"expected a number from 0 on for each of the {len(request.max_lengths)} sentences")
    streams = np.asarray(own, dtype=np.uint64)

    def choose(log_probabilities: Tensor, sentences: Tensor, length: int) -> Tensor:
        uniform = uniforms(settings.seed, streams[sentences.cpu().numpy()], length)
        return draw(log_probabilities, torch.from_numpy(uniform).to(log_probabilities.device), settings)

    return choose


def draw(log_probabilities: Tensor, uniform: Tensor, options: Sampling) -> Tensor:
    """One id per row of log-probabilities (rows, vocabulary), picked by a number in [0, 1) per row."""
    if options.temperature == 0:
        return log_probabilities.argmax(-1)
    # Relative to the largest, so that no temperature leads beyond the largest number.
    below = log_probabilities - log_probabilities.amax(-1, keepdim=True)
    shares = (below / max(options.temperature, SMALLEST_TEMPERATURE)).softmax(-1)
    if options.top_k is None and options.top_p is None:
        return _pick(shares, uniform)
    shares, ids = likeliest(shares, options.top_k, options.top_p)
    ids, order = ids.sort()  # near ties may change places from batch to batch; the vocabulary does not
    return ids.gather(1, _pick(shares.gather(1, order), uniform).unsqueeze(1)).squeeze(1)


def likeliest(shares: Tensor, top_k: int | None, top_p: float | None) -> tuple[Tensor, Tensor]:
    """The likeliest tokens of each row, best first, and their ids; what is cut off has share 0."""
    vocabulary = shares.shape[1]
    width = min(top_k or FIRST_WIDTH, vocabulary)
    best, ids = shares.topk(width)
    if top_p is None:
        return best, ids
    while top_k is None and width < vocabulary and bool((best.sum(-1) < top_p).any()):
        width = min(8 * width, vocabulary)
        best, ids = shares.topk(width)
    total = best.sum(-1, keepdim=True) if top_k is not None else 1.0
    before = best.cumsum(-1) - best  # the share of all better ones
    return best.masked_fill(before >= top_p * total, 0.0), ids


def _pick(shares: Tensor, uniform: Tensor) -> Tensor:
    """The place where the cumulated shares first pass uniform x total; it always has a share."""
    passed = shares.double().cumsum(-1)
    total = passed[:, -1:]
    goal = torch.minimum(uniform.double().unsqueeze(1) * total, torch.nextafter(total, torch.zeros_like(total)))
    places = torch.searchsorted(passed, goal, right=True).squeeze(1)
    return places.clamp(max=shares.shape[1] - 1)  # only shares that are no numbers lead past the end


def uniforms(seed: int, streams: NDArray[np.uint64], step: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each stream at a step: a hash of the three numbers (splitmix64's, Steele et al. 2014)."""
    mixed = _mix(_mix(_mix(np.uint64(seed)) + streams) + np.uint64(step))
    highest = np.asarray(mixed >> np.uint64(11), dtype=np.float64)
    return highest * 2.0**-53


def _mix(numbers: Any) -> Any:
    """Each bit of the result hangs on every bit of a 64-bit number; products wrap around on purpose."""
    with np.errstate(over="ignore"):
        numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return numbers ^ (numbers >> np.uint64(31))
