"""GPT and GPT-2 under heads without a bias: transformers reads what they learned, and numbers keep their units."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import kinfolk
from kinfolk.api.experiment import Trained
from kinfolk.api.loaded import Encoder
from kinfolk.demo import passages
from kinfolk.errors import ConfigError
from kinfolk.models.family import family, init_model
from kinfolk.sklearn import TextRegressor
from kinfolk.text.train import train_tokenizer
from support.tiny import change_config

TEXTS = [f"{first} {thing} {last}" for first in ("grey", "old") for thing in ("salt", "sand") for last in ("", "bread")]
TARGETS: dict[str, tuple[Any, Any]] = {  # of texts with salt, of those with sand
    "classify": ("salty", "sandy"),
    "multilabel": (("salty", "dry"), ("sandy",)),
    "regress": (5200.0, 4800.0),
}


def untrained(name: str) -> Encoder:
    tokenizer, made = train_tokenizer("byte_bpe", passages(), 300), family(name)
    sizes = {"vocabulary_size": 300, "width": 32, "layers": 2, "heads": 4, "positions": 32}
    config = made.config.make(**sizes, pad_id=0, end_id=0, dropout=0.0, attention_dropout=0.0)
    return Encoder(init_model(made, config).eval(), tokenizer)


def train(model: Any, output: Path, task: str, **changes: Any) -> Trained:
    rows = [(text, TARGETS[task]["sand" in text]) for text in TEXTS]
    usual = {"steps": 40, "batch_size": 4, "evaluations": 1, "learning_rate": 3e-3, "report": False}
    return kinfolk.finetune(model, rows, output, dev=rows, task=task, device="cpu", **usual | changes)


@pytest.mark.parametrize("task", TARGETS)
@pytest.mark.parametrize("name", ["openai-gpt", "gpt2"])
def test_the_reference_library_opens_what_a_biasless_head_learned(name: str, task: str, tmp_path: Path) -> None:
    run = train(untrained(name), tmp_path / "run", task)
    assert next(iter(run.metrics.values())) > 0.9
    theirs, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "run" / "model", output_loading_info=True
    )
    assert not any(report.values())
    model = kinfolk.load_encoder(tmp_path / "run", device="cpu")
    with torch.no_grad():
        ids = [torch.tensor([model.tokenizer.encode(text).ids]) for text in TEXTS]
        logits = torch.cat([theirs.eval()(row).logits for row in ids])
    said = model.classify(TEXTS)
    if task == "regress":
        values = np.array([one.value for one in said])
        np.testing.assert_allclose(logits[:, 0].double() + theirs.config.middle, values, rtol=0, atol=1e-2)
        np.testing.assert_allclose(values, [4800 if "sand" in text else 5200 for text in TEXTS], rtol=0, atol=100)
        return
    shares = logits.softmax(-1) if task == "classify" else logits.sigmoid()
    np.testing.assert_allclose(shares, [list(one.probabilities.values()) for one in said], rtol=0, atol=1e-5)


def test_the_middle_of_numbers_stays_with_their_task(tmp_path: Path) -> None:
    train(untrained("gpt2"), tmp_path / "numbers", "regress", steps=1, report=True)
    folder = tmp_path / "numbers" / "model"
    assert "what `model` gives plus `model.config.middle`" in (folder / "README.md").read_text()
    before = kinfolk.load_encoder(folder, device="cpu")
    before.save(tmp_path / "copy")
    assert kinfolk.load_encoder(tmp_path / "copy").classify("old salt") == before.classify("old salt")
    train(tmp_path / "copy", tmp_path / "classes", "classify", steps=1)
    assert "middle" not in json.loads((tmp_path / "classes" / "model" / "config.json").read_text())
    (tmp_path / "copy" / "kinfolk.json").unlink()
    for wrong in ("5000", None, True, 10**400):
        change_config(tmp_path / "copy", middle=wrong)
        with pytest.raises(ConfigError, match="middle is not a number"):
            kinfolk.load_encoder(tmp_path / "copy").classify("old salt")


def test_the_regressor_of_scikit_learn_gives_the_same_numbers(tmp_path: Path) -> None:
    untrained("gpt2").save(tmp_path / "gpt2")
    numbers = [TARGETS["regress"]["sand" in text] for text in TEXTS]
    learner = TextRegressor(str(tmp_path / "gpt2"), epochs=2)
    predicted = learner.fit(TEXTS * 4, numbers * 4).predict(TEXTS)
    assert predicted.tolist() == [one.value for one in learner.encoder_.classify(TEXTS)]
    assert 4500 < predicted.mean() < 5500
    assert learner.predict([]).shape == (0,)
