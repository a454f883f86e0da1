"""State: what a model remembers between two steps of generation.

    state = model.start(source, beams)           the sources are read once
    scores, state = model.step(ids, state)       each row's last token in, scores of its next token out
    state = state.reorder(rows)                  row i goes on from what row rows[i] was
    state = state.keep(sentences)                the others are finished

Rows are sentences x beams, the rows of one sentence side by side. Memory is reused: only the newest state is good.
Sentences that are finished make room for the last of the others (`compaction_order`), so that few are moved.

Keys and values of past tokens lie in slots that stay when beams change places. A prompt is read once for all beams;
each step writes a slot for every row, and a mask says which slots a row descends from:

    slots        p0 p1 | a0 b0 | a1 b1 | a2 b2
    row a sees   p0 p1   a0      a1      a2           it went on from itself each time
    row b sees   p0 p1   a0      a1         b2        it went on from a after the second step
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from kinfolk.nn.packed import Layout

FIRST_ROOM = 32  # steps

# Of recurrence: (h,), or (h, c) of an LSTM, each (layers x directions, sequences, hidden).
CellState = tuple[Tensor, ...]


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values of the tokens so far, for all layers of a decoder: prompts, padded and masked, then the steps."""

    slots: Tensor  # (layers, 2, sentences, heads, room, head_width)
    beams: int
    lengths: tuple[int, ...]  # of the prompts
    prompt: int = 0  # slots that prompts take, padding included
    steps: int = 0
    mask: Tensor | None = None  # (sentences, 1, beams, used): 0 or -inf; None where every row sees every slot

    @classmethod
    def empty(cls, layers: int, sentences: int, beams: int, heads: int, head_width: int, like: Tensor) -> KeyValueCache:
        slots = like.new_empty(layers, 2, sentences, heads, FIRST_ROOM * beams, head_width)
        return cls(slots, beams, (0,) * sentences, mask=like.new_zeros(sentences, 1, beams, 0) if beams > 1 else None)

    @property
    def used(self) -> int:
        return self.prompt + self.steps * self.beams

    @property
    def positions(self) -> Tensor:
        """(rows,): the position of the next token of each row, counted from its prompt's first."""
        lengths = torch.tensor(self.lengths, device=self.slots.device)
        return lengths.repeat_interleave(self.beams) + self.steps

    def with_prompts(self, layout: Layout) -> KeyValueCache:
        assert self.used == 0, "prompts come before the first step"
        longest, mask = max(layout.lengths, default=0), None
        if min(layout.lengths, default=0) < longest or self.beams > 1:
            lengths = torch.tensor(layout.lengths, device=self.slots.device).view(-1, 1, 1, 1)
            padding = torch.arange(longest, device=self.slots.device) >= lengths
            mask = _minus_infinity(padding, self.slots).expand(-1, -1, self.beams, -1)
        slots = self._with_room(longest + self.slots.shape[4])
        return KeyValueCache(slots, self.beams, layout.lengths, longest, mask=mask)

    def write_prompts(self, layer: int, keys_values: Tensor, layout: Layout) -> None:
        self.slots[layer][:, :, :, : self.used] = layout.pad(keys_values).permute(2, 0, 3, 1, 4)

    def advance(self) -> KeyValueCache:
        """One more step: a slot for each row, which that row sees."""
        slots, mask, used = self.slots, self.mask, self.used
        if used + self.beams > slots.shape[4]:
            slots = self._with_room(2 * used + self.beams)
            slots[..., :used, :] = self.slots[..., :used, :]
        if mask is not None:
            newest = torch.full((self.beams, self.beams), float("-inf"), dtype=mask.dtype, device=mask.device)
            newest.fill_diagonal_(0.0)
            mask = torch.cat([mask, newest.expand(len(mask), 1, -1, -1)], dim=-1)
        return KeyValueCache(slots, self.beams, self.lengths, self.prompt, self.steps + 1, mask)

    def _with_room(self, room: int) -> Tensor:
        return self.slots.new_empty(*self.slots.shape[:4], room, self.slots.shape[5])

    def write(self, layer: int, keys_values: Tensor) -> tuple[Tensor, Tensor]:
        """Write the newest (rows, 2, heads, head_width) of one layer: all its keys and values so far."""
        slots, end = self.slots[layer], self.used
        newest = keys_values.view(slots.shape[1], self.beams, *keys_values.shape[1:])
        slots[:, :, :, end - self.beams : end] = newest.permute(2, 0, 3, 1, 4)
        keys, values = slots[:, :, :, :end].unbind(0)
        return keys, values

    def reorder(self, rows: Tensor) -> KeyValueCache:
        """Only the mask's rows are exchanged; with one beam there is nothing to exchange."""
        if self.mask is None or self.beams == 1:
            return self
        return replace(self, mask=self.mask.flatten(0, 2).index_select(0, rows).view(self.mask.shape))

    def keep(self, sentences: Tensor) -> KeyValueCache:
        mask = None if self.mask is None else self.mask.index_select(0, sentences)
        lengths = keep_lengths(self.lengths, sentences)[0] if self.prompt else self.lengths[: len(sentences)]
        return replace(self, slots=_keep_slots(self.slots, sentences, self.used), lengths=lengths, mask=mask)


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
        return None if padding is None else _minus_infinity(padding, self.slots)[:, None, None]

    def keep(self, sentences: Tensor) -> CrossCache:
        lengths, longest = keep_lengths(self.lengths, sentences)
        return CrossCache(_keep_slots(self.slots, sentences, longest)[..., :longest, :], lengths)


@dataclass(frozen=True)
class DecoderState:
    """The state of a decoder made of blocks: its past, its sources, and perhaps a table of position vectors."""

    cache: KeyValueCache
    source: CrossCache | None = None
    positions: Tensor | None = None  # (positions, width), some of them still to come

    @classmethod
    def of(
        cls, stack: Any, sentences: int, beams: int, like: Tensor, source: tuple[Tensor, Layout] | None = None
    ) -> DecoderState:
        """Nothing written yet. Keys and values of packed sources (n, width) are computed here, once."""
        blocks = [stack.block(layer) for layer in range(stack.layers)]
        heads, width = blocks[0].attention.heads, blocks[0].attention.qkv.in_features
        cache = KeyValueCache.empty(stack.layers, sentences, beams, heads, width // heads, like)
        if source is None:
            return cls(cache)
        return cls(cache, CrossCache.of([block.cross.project(source[0]) for block in blocks], source[1]))

    @property
    def beams(self) -> int:
        return self.cache.beams

    def reorder(self, rows: Tensor) -> DecoderState:
        return DecoderState(self.cache.reorder(rows), self.source, self.positions)

    def keep(self, sentences: Tensor) -> DecoderState:
        source = None if self.source is None else self.source.keep(sentences)
        return DecoderState(self.cache.keep(sentences), source, self.positions)


@dataclass(frozen=True)
class RecurrentState:
    """The state of a recurrent decoder: hidden vectors of each row."""

    beams: int
    memory: CellState  # (layers, rows, hidden) each

    @classmethod
    def of(cls, memory: CellState, beams: int) -> RecurrentState:
        return cls(beams, tuple(piece.repeat_interleave(beams, dim=1) for piece in memory))

    def reorder(self, rows: Tensor) -> Self:
        return replace(self, memory=tuple(piece.index_select(1, rows) for piece in self.memory))

    def keep(self, sentences: Tensor) -> Self:
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
    """The `used` slots of these sentences; moved within the same memory if all come from behind the last that stays."""
    count = len(sentences)
    moved = (sentences != torch.arange(count, device=sentences.device)).nonzero().squeeze(1)
    origins = sentences[moved]
    if bool((origins < count).any()):
        return slots.index_select(2, sentences)
    slots[:, :, moved, :, :used] = slots[:, :, origins, :, :used]
    return slots[:, :, :count]


def _minus_infinity(padding: Tensor, like: Tensor) -> Tensor:
    return like.new_zeros(padding.shape).masked_fill_(padding, float("-inf"))


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
