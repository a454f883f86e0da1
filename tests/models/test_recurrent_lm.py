"""Recurrent language models: they read, write and go on alike; what they learned can be carried elsewhere."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from kinfolk.errors import ConfigError
from kinfolk.generation.config import DecodingConstraints, Request, Sampling
from kinfolk.generation.sampling import sample
from kinfolk.generation.search import beam, greedy
from kinfolk.models.family import Model, count_parameters, init_model, with_new_head
from kinfolk.models.recurrent_lm import FAMILY, PRESETS, RecurrentLmConfig
from kinfolk.models.seq2seq import require_shape, start_decoder_from
from kinfolk.nn.packed import pack
from kinfolk.nn.recurrent import KINDS
from kinfolk.objectives.objective import Sample
from kinfolk.objectives.supervised import Classify, Tag
from support.tiny import close, our_lm, our_seq2seq, randomise, rows

every_kind = pytest.mark.parametrize("kind", KINDS)
LENGTHS = (3, 1, 6)
READER = {"vocabulary_size": 30, "width": 8, "layers": 2}


def reader(seed: int = 1, **changes: Any) -> Model:
    config = RecurrentLmConfig.make(**READER | changes)
    made = Model(FAMILY, config, {"classify": 3, "tag": 3})
    return randomise(made, seed).double().eval()  # type: ignore[no-any-return]


@every_kind
def test_steps_equal_reading_at_once_and_a_state_goes_on(kind: str) -> None:
    model, tokens = our_lm(kind=kind), torch.tensor(rows((7, 7)))
    with torch.no_grad():
        expected = model.vocabulary_scores(model(pack(tokens.tolist()))).view(2, 7, -1)
        early, state = model.body.read(pack(tokens[:, :4].tolist()))
        late, _ = model.body.read(pack(tokens[:, 4:].tolist()), state)
    close(model.vocabulary_scores(early).detach().view(2, 4, -1), expected[:, :4])
    close(model.vocabulary_scores(late).detach().view(2, 3, -1), expected[:, 4:])
    written = model.start(pack(tokens[:, :3].tolist()), beams=1)  # a beginning, then token by token
    for index in range(3, 7):
        scores, written = model.step(tokens[:, index], written)
        close(scores, expected[:, index])


@every_kind
def test_writing_does_not_depend_on_the_batch(kind: str) -> None:
    model, beginnings = our_lm(kind=kind), [*rows(LENGTHS), []]

    def ask(chosen: list[list[int]]) -> Request:
        return Request(
            pack([row[:-1] for row in chosen]),
            [(row or [0])[-1] for row in chosen],
            [6] * len(chosen),
            DecodingConstraints(0),
        )

    together = [greedy(model, ask(beginnings)), [texts[0] for texts in beam(model, ask(beginnings))]]
    for index, row in enumerate(beginnings):
        alone = [greedy(model, ask([row])), beam(model, ask([row]))[0]]
        assert [texts[index].ids for texts in together] == [texts[0].ids for texts in alone]
    drawn = [[text.ids for text in sample(model, ask(beginnings), Sampling(seed=5))] for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_presets_have_zaremba_s_sizes() -> None:
    counts = {name: count_parameters(FAMILY, preset.config) for name, preset in PRESETS.items()}
    assert counts == {
        "recurrent-lm-small": 4_653_200, "recurrent-lm-medium": 19_780_400, "recurrent-lm-large": 66_034_000,
    }  # fmt: skip


def test_a_fresh_model_is_seeded_and_every_weight_has_a_depth() -> None:
    config = RecurrentLmConfig.make(**READER)
    first, second, third = (init_model(FAMILY, config, seed).state_dict() for seed in (0, 0, 1))
    assert all(tensor.equal(second[name]) for name, tensor in first.items())
    assert not first["body.table.weight"].equal(third["body.table.weight"])
    for kind, parts in {"lstm": "cells.1.weight_hh_l0", "gru_reset_before": "cells.1.gates.weight"}.items():
        layer_ids = our_lm(kind=kind, tied=False).layer_ids()
        assert layer_ids[f"body.stack.{parts}"] == 2
        heads = (layer_ids["heads.next_token.table.weight"], layer_ids["heads.next_token.bias"])
        assert (layer_ids["body.table.weight"], *heads) == (0, 3, 3)


@every_kind
def test_a_language_model_starts_a_decoder(kind: str) -> None:
    lm, model = our_lm(kind=kind), our_seq2seq(seed=1, kind=kind, score="bilinear")
    untouched = model.body.encoder.state_dict()
    before = {name: tensor.clone() for name, tensor in untouched.items()}
    start_decoder_from(lm, model)
    tokens = pack(rows(LENGTHS))
    with torch.no_grad():
        scores = model.body.decoder(tokens)
        close(model.vocabulary_scores(scores), lm.vocabulary_scores(lm(tokens)))
    assert all(tensor.equal(before[name]) for name, tensor in untouched.items())
    assert model.body.decoder.table.weight is not lm.body.table.weight


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocabulary_size": 31}, "target_vocabulary=30 .*31"),
        ({"kind": "gru", "width": 6}, "kind=lstm .*gru, width=8 .*6, hidden=8 .*6"),
        ({"layers": 1}, "layers=2 .*1"),
        ({"tied": False}, "tied=True .*False"),
    ],
)
def test_a_language_model_of_other_sizes_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        require_shape(our_lm(**settings).config, our_seq2seq().config)


@every_kind
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_classifier_reads_final_states_and_a_tagger_every_token(kind: str, bidirectional: bool) -> None:
    model, tokens = reader(kind=kind, bidirectional=bidirectional), pack(rows(LENGTHS))
    with torch.no_grad():
        hidden, end = model.body.stack(model.body.table(tokens.ids), tokens.layout)
        last = end[0][-2:].transpose(0, 1).flatten(1) if bidirectional else end[0][-1]
        close(model.hidden_for("classify", tokens), hidden)
        close(model.scores("classify", tokens, hidden), model.heads["classify"].output(last))
        assert model.scores("tag", tokens, hidden).shape == (10, 3)
    assert model.layer_ids()["heads.classify.output.bias"] == 3
    weight = "inputs.bias" if kind == "gru_reset_before" else "weight_hh_l0"
    assert (
        model.layer_ids()[f"body.stack.cells.{1 + bidirectional}.{weight}"],
        model.layer_ids()["body.table.weight"],
    ) == (2, 0)


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_a_reader_learns_under_the_losses_of_every_other_model(task: str) -> None:
    config = RecurrentLmConfig.make(**READER | {"dropout": 0.0, "bidirectional": True})
    model, _ = with_new_head(init_model(FAMILY, config, heads={}), task, 3)
    targets: list[Any] = [0, 1, 2] if task == "classify" else [[number % 3 for number in row] for row in rows(LENGTHS)]
    items = [Sample(row, [], target, 0) for row, target in zip(rows(LENGTHS), targets, strict=True)]
    objective: Any = Classify(1) if task == "classify" else Tag(1)
    batch = objective.prepare(items, torch.device("cpu"))
    optimizer, losses = torch.optim.Adam(model.parameters(), 0.02), []
    for _ in range(40):
        loss = objective.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "xlstm"}, "kind 'xlstm'"),
        ({"width": 0}, "width "),
        ({"end_id": 30}, "end_id=30 .* 30"),
        ({"width": 9, "bidirectional": True}, "width 9 "),
    ],
)
def test_an_impossible_setting_is_refused_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RecurrentLmConfig.make(**READER | settings)


def test_a_model_that_reads_from_both_ends_cannot_guess_what_comes_next() -> None:
    with pytest.raises(ConfigError, match="both ends"):
        Model(FAMILY, RecurrentLmConfig.make(**READER | {"bidirectional": True}))


def test_every_setting_is_saved() -> None:
    names = {item.name for item in dataclasses.fields(RecurrentLmConfig)}
    assert set(RecurrentLmConfig.hf_names) == names - {"segments"}
