"""State: what a model remembers between two steps of generation.

    state = model.start(source, beams)           the sources are read once
    scores, state = model.step(ids, state)       each row's last token in, scores of its next token out
    state = state.reorder(rows)                  row i goes on from what row rows[i] was
    state = state.keep(sentences)                the others are finished

Rows are sentences x beams, the rows of one sentence side by side; no row ever leaves its sentence. A state is passed
in and returned, never kept on a module. Memory is reused: only the newest state is good. Sentences that are finished
make room for the last of the others (`compaction_order`), so that the slots of few have to be moved.

Keys and values of past tokens lie in slots that are never moved when beams change places. Each step writes a slot for
every row, and a mask says which slots a row descends from. Two beams of one sentence after three steps:

    slots        a0 b0 | a1 b1 | a2 b2
    row a sees   a0       a1      a2           it went on from itself each time
    row b sees   a0       a1         b2        it went on from a after the second step

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
    """Keys and values of the tokens written so far, for all layers of a decoder."""

    slots: Tensor  # (layers, 2, sentences, heads, room x beams, head_width)
    beams: int
    steps: int = 0
    mask: Tensor | None = None  # (sentences, 1, beams, steps x beams): 0 or -inf; one beam alone sees every slot

    @classmethod
    def empty(
        cls, layers: int, sentences: int, beams: int, heads: int, head_width: int, like: Tensor, room: int = FIRST_ROOM
    ) -> KeyValueCache:
        """No tokens yet, on the device and in the type of `like`."""
        slots = like.new_empty(layers, 2, sentences, heads, room * beams, head_width)
        return cls(slots, beams, mask=like.new_zeros(sentences, 1, beams, 0) if beams > 1 else None)

    @property
    def sentences(self) -> int:
        return self.slots.shape[2]

    @property
    def used(self) -> int:
        """How many slots of each sentence hold something."""
        return self.steps * self.beams

    def opened(self) -> KeyValueCache:
        """One more step: a slot for each row, which that row sees."""
        slots, mask = self.slots, self.mask
        if self.used == slots.shape[4]:
            slots = self._moved(slots[..., : self.used, :], room=2 * self.used)
        if mask is not None:
            own = torch.full((self.beams, self.beams), float("-inf"), dtype=mask.dtype, device=mask.device)
            own.fill_diagonal_(0.0)
            mask = torch.cat([mask, own.expand(self.sentences, 1, -1, -1)], dim=-1)
        return KeyValueCache(slots, self.beams, self.steps + 1, mask)

    def put(self, layer: int, keys_values: Tensor) -> tuple[Tensor, Tensor]:
        """Write the newest keys and values (rows, 2, heads, head_width) of one layer.

        All that its rows may look at comes back: twice (sentences, heads, slots, head_width).
        """
        slots, end = self.slots[layer], self.used
        newest = keys_values.view(self.sentences, self.beams, *keys_values.shape[1:])
        slots[:, :, :, end - self.beams : end] = newest.permute(2, 0, 3, 1, 4)
        keys, values = slots[:, :, :, :end].unbind(0)
        return keys, values

    def reorder(self, rows: Tensor) -> KeyValueCache:
        """Only sight is exchanged; with one beam there is nothing to exchange."""
        if self.mask is None:
            return self
        return replace(self, mask=self.mask.flatten(0, 2).index_select(0, rows).view(self.mask.shape))

    def keep(self, sentences: Tensor) -> KeyValueCache:
        mask = None if self.mask is None else self.mask.index_select(0, sentences)
        return KeyValueCache(kept_slots(self.slots, sentences, self.used), self.beams, self.steps, mask)

    def _moved(self, used: Tensor, room: int) -> Tensor:
        slots = used.new_empty(*used.shape[:4], room, used.shape[5])
        slots[..., : used.shape[4], :] = used
        return slots


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
        """(sentences, 1, 1, longest), -inf at holes, but not for an empty source: its slots hold zeros and add zero."""
        holes = behind_sources(self.lengths, self.slots.shape[4], self.slots.device)
        if holes is None:
            return None
        return self.slots.new_zeros(holes.shape).masked_fill_(holes, float("-inf"))[:, None, None]

    def layer(self, number: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer: twice (sentences, heads, longest, head_width)."""
        keys, values = self.slots[number].unbind(0)
        return keys, values

    def keep(self, sentences: Tensor) -> CrossCache:
        lengths, longest = kept_lengths(self.lengths, sentences)
        return CrossCache(kept_slots(self.slots, sentences, longest)[..., :longest, :], lengths)


def compaction_order(alive: Tensor) -> Tensor:
    """Numbers of sentences, rising, in an order in which few change places: the last ones fill the gaps."""
    count = len(alive)
    order, at_home = torch.arange(count, device=alive.device), alive < count
    gaps = torch.ones_like(order, dtype=torch.bool)
    gaps[alive[at_home]] = False
    order[gaps] = alive[~at_home]
    return order


def kept_slots(slots: Tensor, sentences: Tensor, used: int) -> Tensor:
    """The slots (layers, 2, sentences, heads, room, head_width) of these sentences, of which `used` hold something.

    Who stays where it is, or comes from behind the last that stays, is moved within the same memory.
    """
    count = len(sentences)
    moved = (sentences != torch.arange(count, device=sentences.device)).nonzero().squeeze(1)
    origins = sentences[moved]
    if bool((origins < count).any()):
        return slots.index_select(2, sentences)
    slots[:, :, moved, :, :used] = slots[:, :, origins, :, :used]
    return slots[:, :, :count]


def behind_sources(lengths: Sequence[int], longest: int, device: torch.device) -> Tensor | None:
    """(sentences, longest): True behind a source's end, but nowhere in an empty one; None where there is no hole."""
    ends = [length or longest for length in lengths]
    if min(ends, default=longest) == longest:
        return None
    return torch.arange(longest, device=device) >= torch.tensor(ends, device=device).unsqueeze(1)


def kept_lengths(lengths: Sequence[int], sentences: Tensor) -> tuple[tuple[int, ...], int]:
    """The lengths of these sources, and how many places the longest of them needs: at least one."""
    kept = tuple(lengths[number] for number in sentences.tolist())
    return kept, max(kept, default=1) or 1
