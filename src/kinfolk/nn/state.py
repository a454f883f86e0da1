"""State: what a model remembers between two steps of generation.

    state = model.start(source, beams)           the sources are read once
    scores, state = model.step(ids, state)       each row's last token in, scores of its next token out
    state = state.reorder(rows)                  row i goes on from what row rows[i] was
    state = state.keep(sentences)                the others are finished

Rows are sentences x beams, the rows of one sentence side by side; no row ever leaves its sentence. A state is passed
in and returned, never kept on a module. Memory is reused: only the newest state is good. Sentences that are finished
make room for the last of the others (`compaction_order`), so that the slots of few have to be moved.

Keys and values of past tokens lie in slots that are never moved when beams change places. A prompt is read once for all
beams (`prefill`); each step writes a slot for every row, and a mask says which slots a row descends from. A prompt of
two tokens, and two beams after three steps:

    slots        p0 p1 | a0 b0 | a1 b1 | a2 b2
    row a sees   p0 p1   a0      a1      a2           it went on from itself each time
    row b sees   p0 p1   a0      a1         b2        it went on from a after the second step

So the beams of a sentence are queries that look at the same keys, at their source as at their past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from kinfolk.nn.packed import Layout, Tokens

FIRST_ROOM = 32  # steps


class State(Protocol):
    """What a search needs of it."""

    @property
    def beams(self) -> int:
        """Rows per sentence."""

    def reorder(self, rows: Tensor) -> Self:
        """Row i goes on from what row rows[i] was; that row belongs to the same sentence."""

    def keep(self, sentences: Tensor) -> Self:
        """Only these sentences, in this order, with all their beams."""


AnyState = TypeVar("AnyState", bound=State)


class StepModel(Protocol[AnyState]):
    """A model that writes a target for a source, a token at a time."""

    def start(self, source: Tokens, beams: int) -> AnyState:
        """Read the sources."""

    def step(self, ids: Tensor, state: AnyState) -> tuple[Tensor, AnyState]:
        """Each row's last token (rows,) -> scores of its next one (rows, vocabulary), and the state after it."""


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values of the tokens so far, for all layers of a decoder: prompts of any lengths, then the steps.

    A prompt takes the first slots of its sentence, once for all beams; behind a shorter one lies padding, which the
    mask hides. Each step then takes a slot for every beam.
    """

    slots: Tensor  # (layers, 2, sentences, heads, room, head_width)
    beams: int
    lengths: tuple[int, ...]  # of the prompts
    prompt: int = 0  # slots that prompts take, padding included
    steps: int = 0
    mask: Tensor | None = None  # (sentences, 1, beams, used): 0 or -inf; None where every row sees every slot

    @classmethod
    def empty(cls, layers: int, sentences: int, beams: int, heads: int, head_width: int, like: Tensor) -> KeyValueCache:
        """No tokens yet, on the device and in the type of `like`."""
        slots = like.new_empty(layers, 2, sentences, heads, FIRST_ROOM * beams, head_width)
        return cls(slots, beams, (0,) * sentences, mask=like.new_zeros(sentences, 1, beams, 0) if beams > 1 else None)

    @property
    def sentences(self) -> int:
        return self.slots.shape[2]

    @property
    def used(self) -> int:
        """How many slots of each sentence hold something."""
        return self.prompt + self.steps * self.beams

    @property
    def positions(self) -> Tensor:
        """(rows,): the position of the next token of each row, counted from its prompt's first."""
        lengths = torch.tensor(self.lengths, device=self.slots.device)
        return lengths.repeat_interleave(self.beams) + self.steps

    def with_prompts(self, layout: Layout) -> KeyValueCache:
        """Room for a prompt of each sentence, before the first step."""
        assert self.used == 0, "prompts come before the first step"
        assert layout.sequences == self.sentences, "there is one prompt for each sentence"
        longest = max(layout.lengths, default=0)
        ragged = min(layout.lengths, default=0) < longest
        mask = None
        if ragged or self.beams > 1:
            lengths = torch.tensor(layout.lengths, device=self.slots.device).view(-1, 1, 1, 1)
            padding = torch.arange(longest, device=self.slots.device) >= lengths
            mask = self.slots.new_zeros(padding.shape).masked_fill_(padding, float("-inf"))
            mask = mask.expand(-1, -1, self.beams, -1)
        room = longest + self.slots.shape[4]
        slots = self.slots.new_empty(*self.slots.shape[:4], room, self.slots.shape[5])
        return KeyValueCache(slots, self.beams, layout.lengths, longest, mask=mask)

    def write_prompts(self, layer: int, keys_values: Tensor, layout: Layout) -> None:
        """Write the keys and values of packed prompts (tokens, 2, heads, head_width) of one layer."""
        self.slots[layer][:, :, :, : self.used] = layout.pad(keys_values).permute(2, 0, 3, 1, 4)

    def advance(self) -> KeyValueCache:
        """One more step: a slot for each row, which that row sees."""
        slots, mask, used = self.slots, self.mask, self.used
        if used + self.beams > slots.shape[4]:
            slots = slots.new_empty(*slots.shape[:4], 2 * used + self.beams, slots.shape[5])
            slots[..., :used, :] = self.slots[..., :used, :]
        if mask is not None:
            newest = torch.full((self.beams, self.beams), float("-inf"), dtype=mask.dtype, device=mask.device)
            newest.fill_diagonal_(0.0)
            mask = torch.cat([mask, newest.expand(self.sentences, 1, -1, -1)], dim=-1)
        return KeyValueCache(slots, self.beams, self.lengths, self.prompt, self.steps + 1, mask)

    def write(self, layer: int, keys_values: Tensor) -> tuple[Tensor, Tensor]:
        """Write the newest keys and values (rows, 2, heads, head_width) of one layer.

        All that its rows may look at comes back: twice (sentences, heads, slots, head_width).
        """
        slots, end = self.slots[layer], self.used
        newest = keys_values.view(self.sentences, self.beams, *keys_values.shape[1:])
        slots[:, :, :, end - self.beams : end] = newest.permute(2, 0, 3, 1, 4)
        keys, values = slots[:, :, :, :end].unbind(0)
        return keys, values

    def reorder(self, rows: Tensor) -> KeyValueCache:
        """Only the mask's rows are exchanged; with one beam there is nothing to exchange."""
        if self.mask is None or self.beams == 1:
            return self
        return replace(self, mask=self.mask.flatten(0, 2).index_select(0, rows).view(self.mask.shape))

    def keep(self, sentences: Tensor) -> KeyValueCache:
        """Only these sentences, with all their beams."""
        mask = None if self.mask is None else self.mask.index_select(0, sentences)
        lengths = (
            tuple(self.lengths[index] for index in sentences.tolist())
            if self.prompt
            else self.lengths[: len(sentences)]
        )
        slots = _keep_slots(self.slots, sentences, self.used)
        return KeyValueCache(slots, self.beams, lengths, self.prompt, self.steps, mask)


@dataclass(frozen=True)
class CrossCache:
    """Keys and values of the sources, for all layers: computed once per sentence, whatever the number of beams."""

    slots: Tensor  # (layers, 2, sentences, heads, longest, head_width)
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, projected: Sequence[Tensor], layout: Layout) -> CrossCache:
        """From each layer's packed keys and values (tokens, 2, heads, head_width)."""
        padded = torch.stack([layout.pad(packed) for packed in projected])  # (layers, sentences, longest, 2, heads, …)
        if padded.shape[2] == 0:  # only empty sources: one slot of zeros, which adds nothing
            padded = padded.new_zeros(*padded.shape[:2], 1, *padded.shape[3:])
        return cls(padded.permute(0, 3, 1, 4, 2, 5).contiguous(), layout.lengths)

    @cached_property
    def mask(self) -> Tensor | None:
        """(sentences, 1, 1, longest), -inf at padding, but not for an empty source: its slots hold zeros."""
        padding = source_padding(self.lengths, self.slots.shape[4], self.slots.device)
        if padding is None:
            return None
        return self.slots.new_zeros(padding.shape).masked_fill_(padding, float("-inf"))[:, None, None]

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer: twice (sentences, heads, longest, head_width)."""
        keys, values = self.slots[index].unbind(0)
        return keys, values

    def keep(self, sentences: Tensor) -> CrossCache:
        """Only these sentences."""
        lengths, longest = keep_lengths(self.lengths, sentences)
        return CrossCache(_keep_slots(self.slots, sentences, longest)[..., :longest, :], lengths)


@dataclass(frozen=True)
class DecoderState:
    """The state of a decoder made of blocks: its past, its sources, and perhaps a table of position vectors."""

    cache: KeyValueCache
    source: CrossCache | None = None
    positions: Tensor | None = None  # (positions, width), some of them still to come

    @property
    def beams(self) -> int:
        return self.cache.beams

    def reorder(self, rows: Tensor) -> DecoderState:
        """Row i goes on from what row rows[i] was."""
        return DecoderState(self.cache.reorder(rows), self.source, self.positions)

    def keep(self, sentences: Tensor) -> DecoderState:
        """Only these sentences, with all their beams."""
        source = None if self.source is None else self.source.keep(sentences)
        return DecoderState(self.cache.keep(sentences), source, self.positions)


@dataclass(frozen=True)
class RecurrentState:
    """The state of a recurrent decoder: hidden vectors of each row."""

    beams: int
    memory: tuple[Tensor, ...]  # (h,), or (h, c) of an LSTM: each (layers, rows, hidden)

    @classmethod
    def of(cls, memory: tuple[Tensor, ...], beams: int) -> RecurrentState:
        """From the state of each sentence; all its beams begin there."""
        return cls(beams, tuple(piece.repeat_interleave(beams, dim=1) for piece in memory))

    def reorder(self, rows: Tensor) -> Self:
        """Row i goes on from what row rows[i] was."""
        return replace(self, memory=tuple(piece.index_select(1, rows) for piece in self.memory))

    def keep(self, sentences: Tensor) -> Self:
        """Only these sentences, with all their beams."""
        beams = torch.arange(self.beams, device=sentences.device)
        return self.reorder((sentences.unsqueeze(1) * self.beams + beams).flatten())


def compaction_order(alive: Tensor) -> Tensor:
    """Indices of sentences, rising, in an order in which few are moved: the last ones fill the gaps."""
    count = len(alive)
    order, unmoved = torch.arange(count, device=alive.device), alive < count
    gaps = torch.ones_like(order, dtype=torch.bool)
    gaps[alive[unmoved]] = False
    order[gaps] = alive[~unmoved]
    return order


def _keep_slots(slots: Tensor, sentences: Tensor, used: int) -> Tensor:
    """The slots (layers, 2, sentences, heads, room, head_width) of these sentences, of which `used` hold something.

    A sentence that stays where it is, or comes from behind the last that stays, is moved within the same memory.
    """
    count = len(sentences)
    moved = (sentences != torch.arange(count, device=sentences.device)).nonzero().squeeze(1)
    origins = sentences[moved]
    if bool((origins < count).any()):
        return slots.index_select(2, sentences)
    slots[:, :, moved, :, :used] = slots[:, :, origins, :, :used]
    return slots[:, :, :count]


def source_padding(lengths: Sequence[int], longest: int, device: torch.device) -> Tensor | None:
    """(sentences, longest): True behind a source's end, but nowhere in an empty one; None where all are as long."""
    ends = [length or longest for length in lengths]
    if min(ends, default=longest) == longest:
        return None
    return torch.arange(longest, device=device) >= torch.tensor(ends, device=device).unsqueeze(1)


def keep_lengths(lengths: Sequence[int], sentences: Tensor) -> tuple[tuple[int, ...], int]:
    """The lengths of these sources, and how many slots the longest of them needs: at least one."""
    kept = tuple(lengths[index] for index in sentences.tolist())
    return kept, max(kept, default=1) or 1
