"""Bodies against the reference library: every layer's vectors, attention weights, the pooled output, in float64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kinfolk.nn.packed import Layout
from kinfolk.nn.trace import Trace
from support.tiny import CASES, ENCODERS, LENGTHS, batch_for, both, close, has_segments, one_by_one, ragged

ACTIVATIONS = ["gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu", "silu", "swish", "tanh"]


@pytest.mark.parametrize("case", CASES)
def test_every_layer_and_attention_weight_equals_the_reference(case: str, tmp_path: Path) -> None:
    theirs, ours = both(case, "Model", tmp_path)
    ids, segments = ragged(pairs=True)
    expected = one_by_one(theirs, case, ids, segments, output_hidden_states=True, output_attentions=True)
    tokens, trace = batch_for(case, ids, segments), Trace()
    with torch.no_grad():
        hidden = ours(tokens, trace)
    assert len(trace.hidden) == len(expected[0].hidden_states) == 4
    assert len(trace.weights) == len(expected[0].attentions) == 3
    close(hidden, torch.cat([output.last_hidden_state[0] for output in expected]))
    for layer, rows in enumerate(trace.hidden):
        close(rows, [output.hidden_states[layer][0] for output in expected])
    for layer, weights in enumerate(trace.weights):
        close(weights, [output.attentions[layer][0] for output in expected])


@pytest.mark.parametrize("case", [case for case in ENCODERS if case != "distilbert"])
def test_the_pooled_output_equals_the_reference(case: str, tmp_path: Path) -> None:
    theirs, ours = both(case, "Model", tmp_path)
    ids, segments = ragged(pairs=True)
    tokens = batch_for(case, ids, segments)
    with torch.no_grad():
        pooled = ours.body.pooler(tokens.layout.first(ours(tokens)))
    close(pooled, torch.cat([output.pooler_output for output in one_by_one(theirs, case, ids, segments)]))


@pytest.mark.parametrize("case", CASES)
def test_packed_equals_padded_and_masked(case: str, tmp_path: Path) -> None:
    theirs, ours = both(case, "Model", tmp_path)
    ids, segments = ragged(pairs=True)
    layout = Layout(LENGTHS)
    tokens = batch_for(case, ids, segments)
    inputs = {
        "input_ids": layout.pad(tokens.ids, fill=theirs.config.pad_token_id),
        "attention_mask": layout.pad(torch.ones_like(tokens.ids)),
    }
    if has_segments(case):
        inputs["token_type_ids"] = layout.pad(tokens.segments)
    with torch.no_grad():
        close(ours(tokens), layout.unpad(theirs(**inputs).last_hidden_state))


@pytest.mark.parametrize("case", CASES)
def test_without_segments_all_tokens_are_in_the_first(case: str, tmp_path: Path) -> None:
    theirs, ours = both(case, "Model", tmp_path)
    ids, segments = ragged()
    tokens = batch_for("roberta", ids, segments)
    assert tokens.segments is None
    with torch.no_grad():
        close(ours(tokens), torch.cat([output[0][0] for output in one_by_one(theirs, case, ids, segments)]))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_name_means_what_it_means_there(activation: str, tmp_path: Path) -> None:
    theirs, ours = both("bert", "Model", tmp_path, hidden_act=activation)
    ids, segments = ragged((5, 2))
    with torch.no_grad():
        hidden = ours(batch_for("bert", ids, segments))
    # gelu_fast has its constant cut to seven digits
    tolerance = 1e-6 if activation == "gelu_fast" else 1e-9
    expected = torch.cat([output[0][0] for output in one_by_one(theirs, "bert", ids, segments)])
    torch.testing.assert_close(hidden, expected, rtol=0, atol=tolerance)


def test_settings_that_change_numbers_are_read(tmp_path: Path) -> None:
    """Epsilon, activation, and the padding id, which is RoBERTa's first position less one."""
    for case, changes in {
        "bert": {"layer_norm_eps": 0.1},
        "roberta": {"pad_token_id": 3, "layer_norm_eps": 0.01, "type_vocab_size": 1},
        "mpnet": {"layer_norm_eps": 0.05},
        "albert": {"layer_norm_eps": 0.1, "hidden_act": "relu"},
    }.items():
        theirs, ours = both(case, "Model", tmp_path / case, **changes)
        ids, segments = ragged((9, 4))
        with torch.no_grad():
            hidden = ours(batch_for(case, ids, segments))
        close(hidden, torch.cat([output[0][0] for output in one_by_one(theirs, case, ids, segments)]))
