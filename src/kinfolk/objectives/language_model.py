"""Next-token prediction, -log p(x_t | x_<t), over one long stream of tokens, for the two kinds of language models.

A model whose state carries what came before (recurrent ones) reads contiguous streams, with truncated backpropagation
through time:

    tokens      t0 t1 t2 t3 t4 t5 t6 t7 t8         batch_size 2, bptt_length 3:
    stream 0    t0 t1 t2 | t3                      batch 0 reads t0 t1 t2 and t4 t5 t6, with the tokens after each
    stream 1    t4 t5 t6 | t7                      as targets; batch 1 continues both streams, from empty states


A model with a context (GPT's kind) reads blocks of the stream, each on its own; for a perplexity, windows that overlap.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfolk.data.batching import Plan, chunks
from kinfolk.errors import InputError, check_int
from kinfolk.nn.packed import pack
from kinfolk.nn.state import CellState
from kinfolk.objectives.objective import Batch, Objective, Sample
from kinfolk.objectives.pretraining import EpochSamples, Pretraining, PretrainingTask

SCORED_LENGTH = 512  # tokens of a stream read at once for a perplexity; it changes only the memory
SCORED_TOKENS = 2048
EVAL_STREAMS, EVAL_TOKENS = 16, 8_192  # while training; at the end one stream, and all tokens
ONE_STREAM = 3.0  # what a token of a single stream costs, beside one of several


@dataclass(frozen=True, slots=True)
class StreamSample(Sample):
    """A stretch of one stream: `target` has the token after each of `ids`; `opens`: it begins the stream."""

    opens: bool


class ContiguousStreams(Sequence[StreamSample], Plan):
    """A text cut into `batch_size` streams, and the order of its batches: `bptt_length` tokens of every stream. Streams
    differ by at most one token, so nothing is dropped; in the last batch of an epoch one may be empty."""

    def __init__(self, stream: Sequence[int] | np.ndarray, batch_size: int, bptt_length: int):
        self.stream, self.batch_size, self.bptt_length = stream, batch_size, bptt_length
        targets = len(stream) - 1
        check_int("bptt_length", bptt_length)
        if targets < check_int("batch_size", batch_size):
            few = f"{len(stream):,} tokens are too few for batch_size {batch_size:,}"
            raise InputError(f"{few}; bring more text or a smaller batch")
        each, longer = divmod(targets, batch_size)
        self._starts = [index * each + min(index, longer) for index in range(batch_size + 1)]
        self.batches = math.ceil((each + (longer > 0)) / bptt_length)

    def __len__(self) -> int:
        return self.batches * self.batch_size

    def __getitem__(self, index: Any) -> Any:  # a single index
        if not 0 <= index < len(self):
            raise IndexError(index)
        batch, stream = divmod(index, self.batch_size)
        end = self._starts[stream + 1]
        first = min(self._starts[stream] + batch * self.bptt_length, end)
        last = min(first + self.bptt_length, end)
        ids, targets = ([int(token) for token in self.stream[first + shift : last + shift]] for shift in (0, 1))
        return StreamSample(ids, [], targets, first, batch == 0)

    def batch(self, step: int) -> list[int]:
        first = self.locate(step)[1] * self.batch_size
        return list(range(first, first + self.batch_size))


@dataclass(frozen=True)
class StreamBatch(Batch):
    """The same stretch of every stream; `opens`: the state of the batch before is not used."""

    opens: bool


@dataclass(frozen=True)
class NextToken(Objective):
    """-log p of each token, given all tokens of its sample before it; a sample's target is the token after each."""

    head: str = "next_token"

    def prepare(self, samples: Sequence[Sample], device: torch.device) -> Batch:
        targets = torch.tensor([token for sample in samples for token in sample.target], dtype=torch.long)
        tokens = pack([sample.ids for sample in samples], device=device)
        return Batch(tokens, targets.to(device), {self.head: float(len(targets))})

    def losses(self, model: Any, batch: Batch) -> dict[str, Tensor]:
        return {self.head: model.vocabulary_loss(model(batch.tokens), batch.targets)}

    def scores(self, model: Any, batch: Batch) -> Tensor:
        return model.vocabulary_scores(model(batch.tokens))  # type: ignore[no-any-return]


class CarriedNextToken(NextToken):
    """-log p of each token, given all tokens of its stream before it."""

    stateful = True

    def prepare(self, samples: Sequence[Sample], device: torch.device) -> StreamBatch:
        opens = {sample.opens for sample in samples if isinstance(sample, StreamSample)}
        assert len(opens) == 1, "streams move together"
        batch = super().prepare(samples, device)
        return StreamBatch(batch.tokens, batch.targets, batch.counts, opens.pop())

    def carry(self, model: Any, batch: Batch, state: CellState | None) -> tuple[dict[str, Tensor], CellState]:
        assert isinstance(batch, StreamBatch)
        hidden, after = model.body.read(batch.tokens, None if batch.opens else state)
        total = model.vocabulary_loss(hidden, batch.targets)
        return {self.head: total}, tuple(tensor.detach() for tensor in after)

    def losses(self, model: Any, batch: Batch) -> dict[str, Tensor]:
        return self.carry(model, batch, None)[0]


@torch.no_grad()
def mean_loss(
    model: Any, stream: Sequence[int] | np.ndarray, batch_size: int = 1, overlap: float = 0.5, every: int = 1
) -> float:
    """The mean -log p of each token of a stream but the first, each scored once, in nats. A carried state holds all
    tokens before; with more streams at once (`batch_size`) it is faster and a little worse. A model with a context
    reads windows of that many tokens, of which neighbours share the part `overlap`; or only every n-th of them."""
    if model.config.carries_state:
        return _carried_loss(model, stream, batch_size)
    context = model.config.context
    stride, ids = max(1, round((1 - overlap) * context)), torch.as_tensor(np.asarray(stream), dtype=torch.long)
    count, shared, total, tokens = len(ids) - 1, context - stride, 0.0, 0
    if count < 1:
        raise InputError(f"{len(ids)} tokens are too few to score: the first one has nothing before it")
    for some in chunks(range(0, max(1, count - shared), stride * every), max(1, SCORED_TOKENS // context)):
        # each window: read from, scored from (what is before was scored in the window before), read to
        windows = [(start, start + (shared if start else 0), min(start + context, count)) for start in some]
        hidden = model(pack([ids[start:end].tolist() for start, _, end in windows], device=model.device))
        scored = torch.cat([torch.arange(start, end) >= first for start, first, end in windows])
        targets = torch.cat([ids[first + 1 : end + 1] for _, first, end in windows])
        total += float(model.vocabulary_loss(hidden[scored], targets.to(model.device)))
        tokens += len(targets)
    return total / tokens


def _carried_loss(model: Any, stream: Sequence[int] | np.ndarray, batch_size: int) -> float:
    streams, objective, total = ContiguousStreams(stream, batch_size, SCORED_LENGTH), CarriedNextToken(), 0.0
    state: CellState | None = None
    for step in range(streams.batches):
        batch = objective.prepare([streams[index] for index in streams.batch(step)], model.device)
        losses, state = objective.carry(model, batch, state)
        total += float(losses[objective.head])
    return float(total / (len(stream) - 1))


class TokenBlocks(EpochSamples):
    """A stream cut into blocks of `length` tokens, every epoch elsewhere; its end is followed by its beginning."""

    def __init__(self, stream: Sequence[int] | np.ndarray, length: int, batch_size: int, seed: int):
        self.stream, self.period = np.asarray(stream), len(stream) - 1  # it begins and ends with the same token
        self.length = min(length, self.period)
        super().__init__(math.ceil(self.period / self.length), batch_size, seed)

    def make(self, epoch: int, index: int, generator: random.Random) -> Sample:
        start = self.shift(epoch, self.length) + index * self.length
        positions = np.arange(start, start + self.length) % self.period
        ids, targets = self.stream[positions].tolist(), self.stream[positions + 1].tolist()
        return Sample(ids, [], targets, int(positions[0]))


class LanguageModelTask(PretrainingTask):
    """Next-token prediction: on contiguous streams where a state is carried, else on blocks."""

    note = (
        "Perplexity of the dev text: exp of the mean negative log-likelihood of a token, the ends of texts included; "
        "each token is scored once, given what stands before it. nats_per_character: the same sum per character."
    )

    def __post_init__(self) -> None:
        end = self.config.end_id
        self.streams = self.train.stream(end), self.dev.stream(end)
        if self.config.carries_state:
            self.samples = ContiguousStreams(self.streams[0], self.batch_size, self.length)
            self.objective = CarriedNextToken()
        else:
            self.samples = TokenBlocks(self.streams[0], self.length, self.batch_size, self.seed)
            self.objective = NextToken()

    def evaluate(self, model: Any, thorough: bool = False) -> dict[str, float]:
        """While training in several streams, or in windows here and there: faster and a little higher."""
        dev = self.streams[1]
        if thorough:
            loss = mean_loss(model, dev)
        elif self.config.carries_state:
            loss = mean_loss(model, dev, max(1, min(EVAL_STREAMS, len(dev) // 2)))
        else:
            loss = mean_loss(model, dev, overlap=0.0, every=math.ceil((len(dev) - 1) / EVAL_TOKENS))
        return self._metrics(loss)

    def evaluated_tokens(self, thorough: bool = False) -> float:
        tokens = float(len(self.streams[1]))
        if self.config.carries_state:
            return tokens * ONE_STREAM if thorough else tokens
        return 2 * tokens if thorough else min(tokens, EVAL_TOKENS)  # halves of the windows overlap

    def baselines(self) -> dict[str, float]:
        return self._metrics(self.unigram_entropy)

    def _metrics(self, loss: float) -> dict[str, float]:
        per_character = loss * ((len(self.streams[1]) - 1) / self.dev.characters)  # the ends of documents included
        return {"perplexity": math.exp(loss), "nats_per_character": per_character}

    def location(self, example: int) -> str:
        return f"token {example:,} of the corpus"


# One token ends a text and stands before the first one, so that a text is read as training read it.
ENDS = {**dict.fromkeys(("bos", "cls", "eos", "sep"), "</s>"), "pad": "<pad>", "unk": "<unk>"}
RECURRENT = Pretraining(
    family="kinfolk-recurrent-lm",
    preset="recurrent-lm",
    size="small",
    task=LanguageModelTask,
    heads={"next_token": 0},
    tokenizer="bpe",
    roles=ENDS,
    batch_size=32,
    length=35,
    effect="predicts the next token of a text",
    pipeline="text-generation",
    example='print(model.generate("a text of yours"))\nprint(model.perplexity(["texts", "of yours"]))',
    length_name="bptt_length",
    settings={"learning_rate": 2e-3, "schedule": "cosine", "warmup": 0.05, "weight_decay": 0.0},
)
GPT2 = replace(
    RECURRENT,
    family="gpt2",
    preset="gpt2",
    size="mini",
    tokenizer="byte_bpe",
    roles=dict.fromkeys(("unk", "bos", "eos"), "<|endoftext|>"),
    batch_size=16,
    length=128,
    length_name="max_length",
    settings={"learning_rate": 1e-3, "schedule": "cosine", "warmup": 0.05, "weight_decay": 0.1, "betas": (0.9, 0.95)},
)
PRETRAINING = {
    kind: replace(RECURRENT, changes={"kind": kind}) for kind in ("lstm", "gru", "rnn", "gru_reset_before")
} | {"gpt2": GPT2}
