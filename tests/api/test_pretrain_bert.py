"""BERT and GPT-2 pre-trained on one's own text: what is learned, saved, resumed and continued."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

import kinfolk
from kinfolk.api.experiment import Callbacks, Trained
from kinfolk.errors import DataError, FolderError, InputError, KinfolkError
from kinfolk.nn.packed import pack
from support.tiny import close

THINGS = {"snow": "cold white deep", "sun": "hot yellow bright", "sea": "wet blue wide", "stone": "hard grey old"}
SMALL: dict[str, Any] = {
    "width": 32,
    "layers": 2,
    "heads": 2,
    "inner_width": 64,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}


def documents(count: int = 120, seed: int = 0) -> list[str]:
    """Each document is about one thing, in four to eight sentences."""
    rng, texts = random.Random(seed), []
    for _ in range(count):
        thing = rng.choice(list(THINGS))
        words = THINGS[thing].split()
        texts.append(" ".join(f"The {thing} is {rng.choice(words)}." for _ in range(rng.randint(4, 8))))
    return texts


def train(kind: str, output: Path, **changes: Any) -> Trained:
    usual: dict[str, Any] = {
        "corpus": documents(), "dev": documents(20, 1), "changes": SMALL, "batch_size": 8, "max_length": 32,
        "steps": 6, "evaluations": 3, "device": "cpu",
    }  # fmt: skip
    return kinfolk.pretrain(kind, output=output, **usual | changes)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert") / "run"
    result = train("bert", folder, dev=documents(120, 1), steps=300, learning_rate=2e-2)
    assert next(iter(result.metrics)) == "loss"
    assert result.metrics["masked_lm_loss"] < 0.6 * result.baselines["masked_lm_loss"]
    assert result.metrics["masked_lm_accuracy"] > result.baselines["masked_lm_accuracy"]
    assert result.metrics["next_sentence_loss"] < 0.95 * math.log(2)  # of a coin
    assert result.metrics["next_sentence_accuracy"] > result.baselines["next_sentence_accuracy"] + 0.1
    assert result.baselines["next_sentence_accuracy"] == 0.5
    return folder


def test_bert_learns_words(bert: Path) -> None:
    model = kinfolk.load_encoder(bert, device="cpu")
    assert model.context == 32
    known = " ".join(THINGS.values()).split()
    for thing in THINGS:
        assert model.fill(f"The {thing} is [MASK].", top=1)[0].word in known  # type: ignore[union-attr]
    log = [json.loads(line) for line in (bert / "log.jsonl").read_text().splitlines()]
    assert set(log[0]["losses"]) == {"masked_lm", "next_sentence"}
    report = (bert / "report.md").read_text()
    assert "| masked\\_lm\\_loss |" in report
    assert "without a model" in report


def test_the_folder_is_a_bert_for_pretraining(bert: Path) -> None:
    theirs, report = transformers.AutoModelForPreTraining.from_pretrained(bert / "model", output_loading_info=True)
    assert type(theirs) is transformers.BertForPreTraining
    assert not any(report.values())
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert / "model")
    model = kinfolk.load_encoder(bert, device="cpu")
    pair = ("The sea is [MASK].", "The sea is wide.")
    inputs = tokenizer(*pair, return_tensors="pt")
    ours = model.tokenizer.encode(pair)
    assert inputs["input_ids"][0].tolist() == ours.ids
    tokens = pack([ours.ids], [ours.segments])
    with torch.no_grad():
        expected = theirs.double()(**inputs)
        network = model.model.double()
        hidden = network(tokens)
        close(network.vocabulary_scores(hidden), expected.prediction_logits[0])
        close(network.scores("next_sentence", tokens, hidden), expected.seq_relationship_logits)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_killed_run_ends_with_the_same_bytes(kind: str, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(seed: int, progress: Any) -> None:
        if progress.step == 5:
            raise StopError

    train(kind, tmp_path / "whole")
    with pytest.raises(StopError):
        train(kind, tmp_path / "run", callbacks=Callbacks(step=stop))
    for changes in ({"batch_size": 9}, {"max_length": 16}, {"corpus": documents(119)}, {"seed": 3}):
        with pytest.raises(FolderError, match="differs"):
            train(kind, tmp_path / "run", **changes)
    train(kind, tmp_path / "run")
    whole, resumed = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "run"))
    assert all(tensor.equal(resumed[name]) for name, tensor in whole.items())


def test_a_checkpoint_is_continued_with_its_tokenizer(bert: Path, tmp_path: Path) -> None:
    before = kinfolk.load_encoder(bert, device="cpu")
    result = train("bert", tmp_path / "run", init=bert, changes=None, max_length=None, steps=1, learning_rate=1e-9)
    assert "continued from" in str(result.data)
    after = kinfolk.load_encoder(tmp_path / "run", device="cpu")
    assert after.tokenizer.to_json() == before.tokenizer.to_json()
    weights = after.model.state_dict()
    torch.testing.assert_close(weights, before.model.state_dict(), rtol=0, atol=1e-6)
    for wrong in ({"size": "mini"}, {"vocabulary_size": 100}, {"changes": SMALL}, {"tokenizer": before.tokenizer}):
        with pytest.raises(InputError, match="leave out"):
            train("bert", tmp_path / "other", **{"init": bert, "changes": None} | wrong)
    with pytest.raises(InputError, match="max_length=64: the checkpoint reads 32"):
        train("bert", tmp_path / "other", init=bert, changes=None, max_length=64)
    with pytest.raises(InputError, match="max_length=64: the tokenizer is for texts of 32 tokens"):
        train("bert", tmp_path / "other", tokenizer=before.tokenizer, max_length=64)
    with pytest.raises(InputError, match="GPT-2 is needed"):
        train("gpt2", tmp_path / "other", init=bert, changes=None)


def test_a_head_that_a_checkpoint_lacks_is_new(tiny_bert: Path, tmp_path: Path) -> None:
    """Hidden tokens it predicts, but it has neither pooler nor next-sentence head."""
    transformers.BertForMaskedLM.from_pretrained(tiny_bert).save_pretrained(tmp_path / "masked")
    kinfolk.load_encoder(tiny_bert).tokenizer.save(tmp_path / "masked")
    assert list(kinfolk.load_encoder(tmp_path / "masked").model.heads) == ["masked_lm"]
    result = train("bert", tmp_path / "run", init=tmp_path / "masked", changes=None, steps=2)
    assert {name.split(".")[1] for name in result.initialized} == {"pooler", "next_sentence"}
    model = kinfolk.load_encoder(tmp_path / "run", device="cpu")
    assert list(model.model.heads) == ["masked_lm", "next_sentence"]
    assert 0 < model.next_sentence("The snow is cold.", "It is deep.") < 1


def test_gpt2_writes_on_in_its_own_words(tmp_path: Path) -> None:
    result = train("gpt2", tmp_path / "run", steps=150, learning_rate=5e-3, changes=SMALL | {"inner_width": 128})
    assert result.metrics["perplexity"] < 0.3 * result.baselines["perplexity"]
    model = kinfolk.load_language_model(tmp_path / "run", device="cpu")
    text = model.generate("The snow is", max_tokens=12, temperature=0)
    assert text.split()[3].rstrip(".") in THINGS["snow"].split()
    config = transformers.AutoConfig.from_pretrained(tmp_path / "run" / "model")
    assert config.n_positions == 32
    assert config.eos_token_id == model.tokenizer.eos_id
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
    assert config.bos_token_id == config.eos_token_id
    assert theirs.generate(max_new_tokens=3, do_sample=False)[0, 0] == config.eos_token_id  # from nothing
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "run" / "model").model_max_length == 32
    dev = documents(20, 1)
    assert model.perplexity(dev) == pytest.approx(result.metrics["perplexity"], rel=1e-4)


@pytest.mark.parametrize(
    ("kind", "changes", "error", "told"),
    [
        ("bret", {}, InputError, 'did you mean "bert"'),
        ("bert", {"corpus": ["Only one. Document."], "dev": None}, DataError, "impossible: the corpus is one document"),
        ("bert", {"dev": ["Only one. Document."]}, DataError, "the text is one document"),
        ("bert", {"corpus": documents(3), "dev": None, "documents": "lines"}, InputError, "documents"),
        ("bert", {"bptt_length": 9}, InputError, "max_length"),
        ("bert", {"max_length": 3}, InputError, "max_length=3"),
        ("gpt2", {"size": "enormous"}, InputError, "choose one of"),
        ("gpt2", {"batch_tokens": 9}, InputError, "batch_tokens"),
        ("gpt2", {"changes": {"layers": 0, "wide": 1}}, KinfolkError, "wide"),
        ("gpt2", {"corpus": []}, DataError, "no text"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_told_at_once(
    kind: str, changes: dict[str, Any], error: Any, told: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=told):
        train(kind, tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@pytest.mark.parametrize(("named", "expected"), [({}, 96), ({"inner_width": 40}, 40)], ids=["follows", "named"])
def test_the_inner_width_follows_the_width_unless_it_is_named(
    kind: str, named: dict[str, int], expected: int, tmp_path: Path
) -> None:
    train(kind, tmp_path / "run", changes={"width": 24, "layers": 1, "heads": 2, **named}, steps=1)
    assert kinfolk.load_encoder(tmp_path / "run", device="cpu").model.config.inner_width == expected
