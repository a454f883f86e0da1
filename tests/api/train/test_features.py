"""Feature-based use: a frozen encoder, cached vectors, a small head."""

from __future__ import annotations

import random
import signal
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sklearn.linear_model import LogisticRegression

import kinfolk
from kinfolk.api.evaluate import evaluate
from kinfolk.api.experiment import Callbacks, Trained
from kinfolk.api.finetune import finetune
from kinfolk.api.frozen import FeatureModel, FrozenHeadConfig, features_of
from kinfolk.data.examples import Example, Sentence
from kinfolk.errors import FolderError, InputError, StopSignalError
from kinfolk.objectives.objective import pack_samples
from kinfolk.tasks.tag import TagTask
from kinfolk.tasks.text import score_texts
from kinfolk.training.settings import OptimizerSettings, TrainSettings

WORDS = ["water", "bread", "light", "stone", "river", "bird", "paper", "house"]


def sentences(count: int, seed: int = 0) -> list[Sentence]:
    """`salt` starts an entity, and `sand` after it belongs to it."""
    draw = random.Random(seed)
    results = []
    for index in range(count):
        words = draw.choices(WORDS, k=draw.randint(3, 7))
        position = draw.randrange(len(words) - 1)
        words[position : position + 2] = ["salt", "sand"]
        tags = ["O"] * len(words)
        tags[position : position + 2] = ["B-FOOD", "I-FOOD"]
        results.append(Sentence(tuple(words), tuple(tags), None, f"made:{index + 1}"))
    return results


def texts(count: int, seed: int = 0) -> list[Example]:
    """A text with `salt` in it is salty, one with `sand` sandy, others are plain."""
    draw = random.Random(seed)
    results = []
    for index in range(count):
        word, label = draw.choice([("salt", "salty"), ("sand", "sandy"), ("bird", "plain")])
        words = [word, *draw.choices(WORDS[:5], k=draw.randint(1, 5))]
        draw.shuffle(words)
        results.append(Example(" ".join(words), None, label, f"made:{index + 1}"))
    return results


def fit(model: Path, output: Path, epochs: float = 3.0, **options: Any) -> Trained:
    """Few, large steps on tags, or whatever `task` says."""
    settings = TrainSettings(
        epochs=epochs, batch_size=16, evaluations=2, optimization=OptimizerSettings(learning_rate=2e-2)
    )
    tags = options.get("task", "tag") == "tag"
    train, dev = (sentences(96), sentences(32, 1)) if tags else (texts(160), texts(60, 1))
    usual = {"train": train, "dev": dev, "settings": settings, "device": "cpu", "report": False}
    if options.get("head") == "logistic":  # which is solved, not trained
        del usual["settings"]
    usual |= {"task": "tag", "head": "bilstm" if tags else "linear", "hidden": 16, "dropout": 0.0}
    inputs = usual | options
    reading = FrozenHeadConfig(
        **{field.name: inputs.pop(field.name) for field in fields(FrozenHeadConfig) if field.name in inputs}
    )
    return finetune(model, output=output, frozen=reading, **inputs)


@pytest.mark.parametrize("head", ["linear", "linear-crf", "bilstm", "bilstm-crf"])
def test_taggers_learn_and_the_saved_model_says_the_same(head: str, tiny_bert: Path, tmp_path: Path) -> None:
    fitted = fit(tiny_bert, tmp_path / "run", head=head, epochs=6.0)
    assert fitted.metrics["f1"] > 0.75
    model = kinfolk.load(tmp_path / "run", device="cpu")
    file = tmp_path / "dev.txt"
    lines = ["\n".join(map(" ".join, zip(item.words, item.tags or (), strict=True))) for item in sentences(32, 1)]
    file.write_text("\n\n".join(lines) + "\n")
    assert evaluate(model, file).metrics["f1"] == pytest.approx(fitted.metrics["f1"], abs=0.02)
    tagged = model.tag("a bird and salt sand")
    assert tagged.words[-2].tag == "B-FOOD"
    again = model.tag(["a bird and salt sand", "salt"])[0]
    assert [word.tag for word in again.words] == [word.tag for word in tagged.words]
    assert [word.probability for word in again.words] == pytest.approx([word.probability for word in tagged.words])


def test_the_encoder_itself_stays_as_it_was(tiny_bert: Path, tmp_path: Path) -> None:
    fit(tiny_bert, tmp_path / "run", epochs=1.0)
    before, after = (kinfolk.load(folder, device="cpu") for folder in (tiny_bert, tmp_path / "run"))
    assert np.array_equal(before.embed("some text"), after.embed("some text"))
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "run" / "model").eval()
    ids = after.tokenizer.encode("some text").ids
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).last_hidden_state[0].mean(0).numpy()
    assert np.abs(after.embed("some text") - expected).max() < 1e-5


@pytest.mark.parametrize(
    "layers", ["first", "last", "second_to_last", "sum_all", "sum_last_4", "concat_last_4", [0, 3]]
)
def test_every_choice_of_layers_can_be_read(layers: Any, five_layers: Path, tmp_path: Path) -> None:
    fit(five_layers, tmp_path / "run", layers=layers, head="linear", epochs=0.5)
    model = kinfolk.load(tmp_path / "run", device="cpu")
    readout = model.model.heads["tag"]
    vectors = model.embed("salt and water", layers=layers, pool="none").vectors
    scores = torch.from_numpy(vectors) * readout.config.scale @ readout.output.weight.T + readout.output.bias
    word = model.tag("salt and water").words[0]
    assert word.probability == pytest.approx(float(scores[1].softmax(0).max().detach()), abs=1e-5)


def test_the_logistic_head_is_scikit_learns_on_the_vectors_of_embed(tiny_bert: Path, tmp_path: Path) -> None:
    fitted = fit(tiny_bert, tmp_path / "run", task="classify", head="logistic", layers=[0, 2], kind="float32")
    model = kinfolk.load(tmp_path / "run", device="cpu")
    train, dev = texts(160), texts(60, 1)
    vectors = [model.embed([item.text for item in side], layers=[0, 2], pool="mean") for side in (train, dev)]
    theirs = LogisticRegression(max_iter=10_000, tol=1e-6).fit(vectors[0].astype(float), [item.label for item in train])
    chances = theirs.predict_proba(vectors[1])
    ours = model.classify([item.text for item in dev])
    assert [guess.label for guess in ours] == theirs.predict(vectors[1]).tolist()
    assert np.abs(np.array([list(guess.probabilities.values()) for guess in ours]) - chances).max() < 1e-3
    assert fitted.metrics["accuracy"] == pytest.approx(theirs.score(vectors[1], [item.label for item in dev]))


def test_report_and_card_say_what_learned_and_what_did_not(tiny_bert: Path, tmp_path: Path) -> None:
    rows = [(f"{'salt' if index % 2 else 'sand'} {index}", "ab"[index % 2]) for index in range(12)]
    for frozen, layers, message in (
        ("logistic", "last", "| head | logistic, in closed form |"),
        ("linear", "mix", "| layers | mix |"),
    ):
        folder = tmp_path / frozen
        named = {} if frozen == "logistic" else {"steps": 1}
        kinfolk.finetune(tiny_bert, rows, folder, frozen=frozen, layers=layers, device="cpu", **named)
        for page in (folder / "report.md", folder / "model" / "README.md"):
            text = page.read_text()
            assert message in text
            assert "| encoder | frozen |" in text
            assert ("| schedule |" in text) == (frozen == "linear")
        assert "the encoder is the model of a folder" in text


def test_two_classes_are_solved_as_well(tiny_bert: Path, tmp_path: Path) -> None:
    train, dev = ([item for item in side if item.label != "plain"] for side in (texts(160), texts(60, 1)))
    fitted = fit(tiny_bert, tmp_path / "run", task="classify", head="logistic", layers="first", train=train, dev=dev)
    assert fitted.metrics["accuracy"] > 0.9


@pytest.mark.parametrize(("task", "head"), [("classify", "linear"), ("classify", "bilstm"), ("multilabel", "linear")])
def test_texts_learn_on_a_mix(task: str, head: str, tiny_bert: Path, tmp_path: Path) -> None:
    sides = [texts(160), texts(60, 1)]
    if task == "multilabel":
        sides = [[Example(item.text, None, (str(item.label),), item.location) for item in side] for side in sides]
    fitted = fit(tiny_bert, tmp_path / "run", 8.0, task=task, head=head, train=sides[0], dev=sides[1])
    assert next(iter(fitted.metrics.values())) > 0.6
    model = kinfolk.load(tmp_path / "run", device="cpu")
    assert model.model.heads["classify"].mix.shares.sum().item() == pytest.approx(1)
    together, alone = next(score_texts(model, ["salt", "some sand"])), next(score_texts(model, ["salt"]))
    assert np.abs(together[:1] - alone).max() < 1e-5


def test_features_in_float16_change_scores_by_little(tiny_bert: Path, tmp_path: Path) -> None:
    fit(tiny_bert, tmp_path / "run", epochs=1.0)
    loaded = kinfolk.load(tmp_path / "run", device="cpu")
    model = loaded.model
    task = TagTask.saved(loaded)
    items = task.dataset(loaded.tokenizer, sentences(20), loaded.context).samples
    features = features_of(model, items, range(3), tmp_path / "cache")
    cached = FeatureModel(model.family, model.config, {"tag": model.heads["tag"]}, features)
    tokens = pack_samples(items, model.config.segments, model.device)
    with torch.inference_mode():
        result, exact = (which.scores("tag", tokens, which.hidden_for("tag", tokens)) for which in (cached, model))
    assert 0 < (result - exact).abs().max() < 5e-3
    assert exact.abs().max() > 0.5


def test_a_stopped_run_goes_on_to_the_same_weights(tiny_bert: Path, tmp_path: Path) -> None:
    def stop(seed: int, progress: Any) -> None:
        if progress.step == 11:
            signal.raise_signal(signal.SIGTERM)

    cache = tmp_path / "cache"
    fit(tiny_bert, tmp_path / "whole", dropout=0.3, cache=cache)
    with pytest.raises(StopSignalError):
        fit(tiny_bert, tmp_path / "stopped", dropout=0.3, cache=cache, callbacks=Callbacks(step=stop))
    fit(tiny_bert, tmp_path / "stopped", dropout=0.3, cache=cache)
    heads = [(tmp_path / name / "model" / "head.safetensors").read_bytes() for name in ("whole", "stopped")]
    assert heads[0] == heads[1]
    assert len(list(cache.iterdir())) == 1


def test_minutes_are_measured_on_a_copy_that_reads_the_same_features(tiny_bert: Path, tmp_path: Path) -> None:
    settings = TrainSettings(
        minutes=0.05, batch_size=16, evaluations=1, optimization=OptimizerSettings(learning_rate=2e-2)
    )
    assert fit(tiny_bert, tmp_path / "run", settings=settings, head="linear").metrics
    assert len(list((tmp_path / "run" / "features").iterdir())) == 1


def test_another_readout_in_the_same_folder_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    fit(tiny_bert, tmp_path / "run", epochs=0.5)
    (tmp_path / "run" / "model").rename(tmp_path / "model")
    with pytest.raises(FolderError, match=r'probe\.join was "mix", is "concat"'):
        fit(tiny_bert, tmp_path / "run", epochs=0.5, layers="last")


def test_several_seeds_share_the_features(tiny_bert: Path, tmp_path: Path) -> None:
    fitted = fit(tiny_bert, tmp_path / "run", seeds=2, epochs=1.0)
    assert set(fitted.by_seed) == {0, 1}
    assert len(list((tmp_path / "run" / "features").iterdir())) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "answer"}, "answer"),
        ({"head": "logistic", "layers": "last"}, "frozen='logistic'"),
        ({"head": "bilstm-crf", "task": "classify"}, "frozen='bilstm-crf'"),
        ({"head": "logistic", "task": "classify"}, "mix"),
        (
            {"head": "logistic", "task": "classify", "layers": "last", "seeds": 2},
            "seeds",
        ),
        ({"settings": TrainSettings(gradual_unfreezing=0.5)}, "gradual_unfreezing"),
        ({"layers": "lats"}, 'did you mean "last"'),
        ({"layers": [3]}, r"layers=\[3\].* to 2"),
        ({"layers": "sum_last_4"}, "sum_last_4.* 4 layers"),
        ({"pool": "none", "task": "classify"}, "pool='none'"),
        ({"kind": "int8"}, "kind='int8'"),
        ({"hidden": 0}, "hidden=0"),
        ({"dropout": 1.0}, "dropout=1.0"),
    ],
    ids=str,
)
def test_wrong_options_are_reported_before_anything_is_written(
    options: dict[str, Any], message: str, tiny_bert: Path, tmp_path: Path
) -> None:
    with pytest.raises(kinfolk.KinfolkError, match=message) as caught:
        fit(tiny_bert, tmp_path / "run", **options)
    assert isinstance(caught.value, InputError) or "not a" in str(caught.value)
    assert not (tmp_path / "run" / "features").exists()
