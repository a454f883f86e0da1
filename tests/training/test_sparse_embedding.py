"""Only the rows that a run names learn, and they learn what they would learn in the whole table."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_runs import examples, settings
from torch import Tensor, nn

import kinfolk
from kinfolk.errors import FolderError
from kinfolk.models.family import with_new_head
from kinfolk.tasks.task import TaskOptions
from kinfolk.tasks.text import TextTask
from kinfolk.training.distributed import load_weights
from kinfolk.training.runs import Run
from kinfolk.training.settings import OptimizerSettings
from kinfolk.training.step import SparseEmbedding, restore_tables, train_only_rows
from kinfolk.training.trainer import Trainer

TABLE = "body.embeddings.tokens.weight"


def trained(folder: Path, output: Path, whole: bool, decay: float) -> tuple[dict[str, Tensor], set[int]]:
    """The weights after some steps in float64, and the ids that the training texts hold."""
    encoder = kinfolk.load(folder, device="cpu")
    task = TextTask.of("classify", examples(40), TaskOptions())
    model = with_new_head(encoder.model, "classify", 2, dropout=0.0)[0].double()
    if whole:
        model.embedding_only_read = lambda: None  # type: ignore[method-assign]
    items = task.dataset(encoder.tokenizer, examples(40), encoder.context).samples
    options = settings(
        epochs=2.0, evaluations=2, weight_averaging=0.5, optimization=OptimizerSettings(1e-3, weight_decay=decay)
    )
    run = Run.open(output, {})
    trainer = Trainer(model, task.objective(model), items, options, run, lambda model: (0.0, {}))
    assert any(isinstance(module, SparseEmbedding) for module in model.modules()) != whole
    trainer.complete()
    run.close()
    return {name: weight.detach() for name, weight in model.named_parameters()}, {
        token for item in items for token in item.ids
    }


def test_a_narrowed_run_ends_with_the_weights_of_a_whole_one(tiny_bert: Path, tmp_path: Path) -> None:
    narrowed, _ = trained(tiny_bert, tmp_path / "narrow", whole=False, decay=0.0)
    whole, _ = trained(tiny_bert, tmp_path / "whole", whole=True, decay=0.0)
    assert list(narrowed) == list(whole)
    for name, weight in whole.items():
        torch.testing.assert_close(narrowed[name], weight, rtol=0, atol=1e-12)


def test_rows_that_no_text_names_stay_as_they_are_and_the_others_decay_as_ever(tiny_bert: Path, tmp_path: Path) -> None:
    narrowed, named = trained(tiny_bert, tmp_path / "narrow", whole=False, decay=0.1)
    whole, _ = trained(tiny_bert, tmp_path / "whole", whole=True, decay=0.1)
    start = kinfolk.load(tiny_bert, device="cpu").model.get_parameter(TABLE).double()
    rest = [row for row in range(len(start)) if row not in named]
    torch.testing.assert_close(narrowed[TABLE][sorted(named)], whole[TABLE][sorted(named)], rtol=0, atol=1e-12)
    assert torch.equal(narrowed[TABLE][rest], start[rest])
    assert not torch.equal(whole[TABLE][rest], start[rest])


def test_a_checkpoint_of_a_whole_table_is_refused_in_one_line(tiny_bert: Path) -> None:
    model = kinfolk.load(tiny_bert, device="cpu").model.with_heads({})
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    train_only_rows(model, [[5, 6, 7]])
    with pytest.raises(FolderError, match=f"^{TABLE}: "):
        load_weights(model, before)


def test_a_narrowed_model_reads_every_text_as_before(tiny_bert: Path) -> None:
    encoder = kinfolk.load(tiny_bert, device="cpu")
    texts = ["salty", "sweet and sour", "something else entirely"]
    before = encoder.embed(texts)
    train_only_rows(encoder.model.with_heads({}), [encoder.tokenizer.encode(texts[0]).ids])
    assert isinstance(encoder.model.body.embeddings.tokens, SparseEmbedding)  # type: ignore[union-attr]
    assert (encoder.embed(texts) == before).all()
    restore_tables(encoder.model)
    assert isinstance(encoder.model.body.embeddings.tokens, nn.Embedding)  # type: ignore[union-attr]
    assert (encoder.embed(texts) == before).all()


@pytest.mark.parametrize("unnamed", [0, 1])
def test_only_a_table_that_is_all_named_stays_whole(tiny_bert: Path, unnamed: int) -> None:
    model = kinfolk.load(tiny_bert, device="cpu").model.with_heads({})
    train_only_rows(model, [range(model.config.vocabulary_size - unnamed)])
    assert any(isinstance(module, SparseEmbedding) for module in model.modules()) == bool(unnamed)


def test_a_table_that_scores_a_vocabulary_stays_whole(tiny_bert: Path) -> None:
    model = kinfolk.load(tiny_bert, device="cpu").model
    assert "masked_lm" in model.heads
    assert model.embedding_only_read() is None
