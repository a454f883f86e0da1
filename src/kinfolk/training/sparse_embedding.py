"""A table of which a run names only some rows: those alone learn.

    vocabulary (30,522 rows)  ──  rows that the training texts name (7,000, say): what gradients, clipping, AdamW and
                                  checkpoints have to do with
                              └─  the others: they have no gradient, and stay as they are

A step on 32 phrases of SST-2 would spend an eighth of its time on a table of which it reads a hundredth. The rows that
are named at all are known before the first step, and learn as they would in the whole table. The others could only
decay: a word that no example holds keeps the vector it was pre-trained with.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@runtime_checkable
class HasTokenTable(Protocol):
    """A model that can tell which of its tables is read by token ids, and by nothing else."""

    def embedding_only_read(self) -> str | None:
        """The name of that module; None where scores of a vocabulary are read from the table too."""


class SparseEmbedding(nn.Module):
    """Row i of a table for id i, of which some rows learn: ids (tokens,) -> (tokens, width)."""

    def __init__(self, whole: nn.Embedding, rows: Tensor):
        super().__init__()
        self.__dict__["whole"] = whole  # aside: no weight of this module
        self.rows = rows
        self.weight = nn.Parameter(whole.weight.detach()[rows])
        self.indices = torch.full((whole.num_embeddings,), -1, device=rows.device)
        self.indices[rows] = torch.arange(len(rows), device=rows.device)

    def forward(self, ids: Tensor) -> Tensor:
        indices = self.indices[ids]
        if self.training:  # on texts whose rows are all here
            return F.embedding(indices, self.weight)
        trained = F.embedding(indices.clamp(min=0), self.weight)
        frozen = F.embedding(ids, self.__dict__["whole"].weight.detach())
        return torch.where((indices < 0).unsqueeze(1), frozen, trained)

    @torch.no_grad()
    def restored(self) -> nn.Embedding:
        """The whole table, with the trained rows."""
        whole: nn.Embedding = self.__dict__["whole"]
        whole.weight[self.rows] = self.weight
        return whole


def train_only_rows(model: nn.Module, ids: Iterable[Iterable[int]]) -> None:
    """Let only those rows of the reading table learn that `ids` name, where the model has one."""
    name = model.embedding_only_read() if isinstance(model, HasTokenTable) else None
    if name is None:
        return
    table = model.get_submodule(name)
    assert isinstance(table, nn.Embedding)
    rows = sorted({token for text in ids for token in text})
    if len(rows) < table.num_embeddings:
        sparse = SparseEmbedding(table, torch.tensor(rows, device=table.weight.device))
        model.set_submodule(name, sparse.train(table.training))


def restore_tables(model: nn.Module) -> None:
    """Put whole tables back."""
    for name, module in list(model.named_modules()):
        if isinstance(module, SparseEmbedding):
            model.set_submodule(name, module.restored())
