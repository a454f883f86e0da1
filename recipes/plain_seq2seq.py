"""What a plain torch script learns from pairs of short texts: characters, one bidirectional GRU of 256, bilinear
attention, padded batches of 64, Adam at 2e-3. The control of recipes/minutes.py."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Pair = tuple[str, str]
PAD, BEGIN, END = 0, 1, 2
WIDTH, BATCH, RATE, LONGEST = 256, 64, 2e-3, 100


class Plain(nn.Module):
    def __init__(self, characters: int):
        super().__init__()
        self.table = nn.Embedding(characters, WIDTH, padding_idx=PAD)
        self.encoder = nn.GRU(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.score, self.output = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(2 * WIDTH, characters)

    def read(self, source: Tensor) -> tuple[Tensor, Tensor]:
        states, end = self.encoder(self.table(source))
        return states, end.transpose(0, 1).flatten(1).unsqueeze(0)

    def write(self, source: Tensor, states: Tensor, target: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        hidden, memory = self.decoder(self.table(target), memory)
        scores = (hidden @ self.score(states).transpose(1, 2)).masked_fill((source == PAD).unsqueeze(1), -1e9)
        return self.output(torch.cat([hidden, scores.softmax(-1) @ states], -1)), memory


class Script:
    """A model that learned from pairs for some seconds."""

    def __init__(self, pairs: Sequence[Pair], seconds: float, seed: int = 0):
        torch.manual_seed(seed)
        draw, self.steps, start = random.Random(seed), 0, time.monotonic()
        self.characters = sorted({character for pair in pairs for text in pair for character in text})
        self.ids = {character: index + 3 for index, character in enumerate(self.characters)}
        self.model = Plain(len(self.ids) + 3)
        optimizer = torch.optim.Adam(self.model.parameters(), RATE)
        while time.monotonic() - start < seconds:
            batch = draw.sample(pairs, BATCH)
            source, target = self.padded([pair[0] for pair in batch]), self.padded([pair[1] for pair in batch])
            states, memory = self.model.read(source)
            before = torch.cat([torch.full((BATCH, 1), BEGIN), target[:, :-1]], 1)
            scores = self.model.write(source, states, before, memory)[0]
            loss = F.cross_entropy(scores.flatten(0, 1), target.flatten(), ignore_index=PAD)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            self.steps += 1

    def padded(self, texts: Sequence[str]) -> Tensor:
        rows = [torch.tensor([*(self.ids[each] for each in text if each in self.ids), END]) for text in texts]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)

    @torch.inference_mode()
    def translate(self, texts: Sequence[str]) -> list[str]:
        """Greedily."""
        source, written = self.padded(texts), [""] * len(texts)
        states, memory = self.model.read(source)
        last, open_ones = torch.full((len(texts), 1), BEGIN), set(range(len(texts)))
        for _ in range(LONGEST):
            scores, memory = self.model.write(source, states, last, memory)
            last = scores.argmax(-1)
            for row in list(open_ones):
                token = int(last[row])
                if token < 3:
                    open_ones.discard(row)
                else:
                    written[row] += self.characters[token - 3]
            if not open_ones:
                break
        return written
