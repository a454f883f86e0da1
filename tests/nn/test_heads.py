"""Heads: vectors in, scores out."""

from __future__ import annotations

import torch
from torch import nn

from kinfolk.models.bert import Pooler
from kinfolk.nn.fast.linear import ActivatedLinear, Embedding
from kinfolk.nn.heads import TextHead, VocabularyHead


def fill(module: nn.Module, value: float) -> None:
    for weight in module.parameters():
        nn.init.constant_(weight, value)


def test_the_pooler_is_a_tanh_of_a_linear_layer() -> None:
    pooler = Pooler(2)
    with torch.no_grad():
        pooler.dense.weight.copy_(torch.tensor([[1.0, 0.0], [1.0, -1.0]]))
        pooler.dense.bias.copy_(torch.tensor([0.0, 0.5]))
    expected = torch.tanh(torch.tensor([[2.0, -0.5]]))
    torch.testing.assert_close(pooler(torch.tensor([[2.0, 3.0]])), expected)


def test_the_masked_head_scores_by_the_given_table_or_by_its_own() -> None:
    torch.manual_seed(0)
    head = VocabularyHead(2, 4, transform=ActivatedLinear(3, 2, "relu"), norm=nn.LayerNorm(2))
    hidden, embedding = torch.randn(5, 3), Embedding(4, 2)
    transformed = head.norm(torch.relu(hidden @ head.transform.weight.T + head.transform.bias))
    nn.init.normal_(head.bias)
    torch.testing.assert_close(head(hidden, embedding), transformed @ embedding.weight.T + head.bias)
    head.untie()
    expected = transformed @ head.table.weight.T + head.bias
    torch.testing.assert_close(head(hidden, embedding), expected)
    with torch.no_grad():
        torch.testing.assert_close(head.eval().step(hidden, embedding), expected)
    targets = torch.tensor([0, 3, 1, 1, 2])
    summed = nn.functional.cross_entropy(expected, targets, reduction="sum")
    torch.testing.assert_close(head.loss(hidden, embedding, targets), summed)


def test_a_text_head_has_its_dense_layer_only_with_an_activation() -> None:
    plain, dense = TextHead(3, 2, "pooled", 0.0), TextHead(3, 2, "first", 0.0, "tanh")
    fill(plain, 0.5)
    fill(dense, 0.5)
    vectors = torch.tensor([[1.0, 2.0, 3.0]])
    assert plain.dense is None
    torch.testing.assert_close(plain(vectors), torch.tensor([[3.5, 3.5]]))
    torch.testing.assert_close(dense(vectors), 0.5 + 1.5 * torch.tanh(torch.tensor([[3.5, 3.5]])))


def test_a_token_head_scores_every_row() -> None:
    head = TextHead(3, 4, "tokens", 0.0)
    hidden = torch.randn(6, 3)
    torch.testing.assert_close(head(hidden), hidden @ head.output.weight.T + head.output.bias)


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    vectors = torch.ones(200, 3)
    for head in (TextHead(3, 2, "pooled", 0.5), TextHead(3, 2, "tokens", 0.5)):
        head.train()
        assert len(head(vectors).unique(dim=0)) > 1
        head.eval()
        assert len(head(vectors).unique(dim=0)) == 1
