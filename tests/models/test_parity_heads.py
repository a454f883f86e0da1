"""Every head against the reference library, and every written folder read back by it, in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from kinfolk.checkpoints.folder import read_checkpoint, write_checkpoint
from kinfolk.models.family import Model
from support.tiny import CASES, ENCODERS, LABELS, WITH_HEADS, batch_for, both, close, one_by_one, our_model, ragged

AUTO = {
    "Model": "AutoModel",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForPreTraining": "AutoModelForPreTraining",
    "ForNextSentencePrediction": "AutoModelForNextSentencePrediction",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
    "ForMultipleChoice": "AutoModelForMultipleChoice",
    "LMHeadModel": "AutoModelForCausalLM",
}


def their_scores(head: str, outputs: list[Any]) -> Tensor:
    """The reference's scores under one of our heads' names: (tokens, …) or (sequences, …)."""
    if head == "span":
        return torch.cat([torch.stack([output.start_logits[0], output.end_logits[0]], -1) for output in outputs])
    names = {
        "masked_lm": "prediction_logits",
        "next_sentence": "seq_relationship_logits",
        "sentence_order": "sop_logits",
    }
    result = [getattr(output, names.get(head, "logits"), None) for output in outputs]
    result = [output.logits if scores is None else scores for scores, output in zip(result, outputs, strict=True)]
    return torch.cat([scores.flatten(0, -2) for scores in result])


def our_scores(model: Model, case: str, head: str, ids: list[Any], segments: list[Any]) -> Tensor:
    tokens = batch_for(case, ids, segments)
    with torch.no_grad():
        return model.scores(head, tokens, model(tokens))


@pytest.mark.parametrize(("case", "suffix", "heads"), WITH_HEADS)
def test_scores_equal_the_reference(case: str, suffix: str, heads: list[str], tmp_path: Path) -> None:
    theirs, ours = both(case, suffix, tmp_path)
    ids, segments = ragged(pairs=True)
    outputs = one_by_one(theirs, case, ids, segments)
    assert list(ours.heads) == heads
    for head in heads:
        close(our_scores(ours, case, head, ids, segments), their_scores(head, outputs))


@pytest.mark.parametrize(("case", "suffix", "heads"), [*WITH_HEADS, *((case, "Model", []) for case in CASES)])
def test_a_written_folder_leaves_the_reference_no_key_unexplained(
    case: str, suffix: str, heads: list[str], tmp_path: Path
) -> None:
    theirs, _ = both(case, suffix, tmp_path / "theirs")
    write_checkpoint(tmp_path / "ours", read_checkpoint(tmp_path / "theirs"))
    auto = getattr(transformers, AUTO[suffix])
    loaded, report = auto.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert {kind: result for kind, result in report.items() if result} == {}
    assert type(loaded) is type(theirs)
    ids, segments = ragged((1, 9, 4), pairs=True)
    for before, after in zip(
        one_by_one(theirs, case, ids, segments), one_by_one(loaded.double(), case, ids, segments), strict=True
    ):
        names = [name for name, value in before.items() if isinstance(value, Tensor)]  # not the key/value cache
        close([after[name] for name in names], [before[name] for name in names])


@pytest.mark.parametrize("case", ENCODERS)
def test_the_masked_head_scores_only_the_rows_it_is_asked_for(case: str, tmp_path: Path) -> None:
    _, ours = both(case, "ForMaskedLM", tmp_path)
    ids, segments = ragged((4, 2, 6))
    tokens = batch_for(case, ids, segments)
    with torch.no_grad():
        hidden = ours(tokens)
        everywhere = ours.scores("masked_lm", tokens, hidden)
        some = ours.scores("masked_lm", tokens, hidden, torch.tensor([0, 5, 11]))
    close(some, everywhere[[0, 5, 11]])


@pytest.mark.parametrize("labels", [1, 5])
def test_the_number_of_labels_is_read_from_the_weights(labels: int, tmp_path: Path) -> None:
    _, ours = both("bert", "ForTokenClassification", tmp_path / "read", num_labels=labels)
    assert ours.heads["tag"].output.out_features == labels != LABELS
    write_checkpoint(tmp_path / "written", read_checkpoint(tmp_path / "read"))
    assert transformers.AutoConfig.from_pretrained(tmp_path / "written").num_labels == labels
    assert our_model(tmp_path / "written").heads["tag"].output.out_features == labels


@pytest.mark.parametrize("case", ["gpt2", "openai-gpt"])
def test_a_next_token_head_may_have_a_table_of_its_own(case: str, tmp_path: Path) -> None:
    theirs, ours = both(case, "LMHeadModel", tmp_path / "theirs", tie_word_embeddings=False)
    assert ours.heads["next_token"].table is not None
    ids, segments = ragged((4, 2))
    expected = their_scores("next_token", one_by_one(theirs, case, ids, segments))
    close(our_scores(ours, case, "next_token", ids, segments), expected)
    write_checkpoint(tmp_path / "ours", read_checkpoint(tmp_path / "theirs"))
    loaded, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values())
    close(their_scores("next_token", one_by_one(loaded.double(), case, ids, segments)), expected)
