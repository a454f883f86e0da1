"""Choosing from end to end: a tiny model learns which option belongs to a context, is saved, opened again and asked."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from kinfolk.api.evaluate import evaluate
from kinfolk.api.experiment import Trained
from kinfolk.api.finetune import finetune
from kinfolk.api.loaded import Encoder, load
from kinfolk.data.examples import Choice
from kinfolk.data.tables import read_choices
from kinfolk.errors import InputError, MissingHeadError
from kinfolk.nn.packed import pack
from kinfolk.tasks.choice import ChoiceTask, choose
from kinfolk.tasks.task import TaskOptions, make_task, saved_task
from kinfolk.text.windows import CutWarning, Windows, split_text
from kinfolk.training.settings import OptimizerSettings, TrainSettings
from support.tiny import write_folder
from surroundings import shared_data

WORDS = ["water", "bread", "light", "stone", "river", "bird", "paper", "house", "glass", "cloud"]


def choices(count: int, seed: int) -> list[Choice]:
    """Two to five options; the right one has the word `salt`."""
    draw, found = random.Random(seed), []
    for number in range(count):
        options = [draw.choices(WORDS, k=draw.randint(1, 6)) for _ in range(draw.randint(2, 5))]
        answer = draw.randrange(len(options))
        options[answer][draw.randrange(len(options[answer]))] = "salt"
        context = " ".join(draw.choices(WORDS, k=draw.randint(1, 5)))
        found.append(Choice(context, tuple(map(" ".join, options)), answer, f"made:{number + 1}"))
    return found


@pytest.fixture(scope="module")
def trained(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    settings = TrainSettings(epochs=4, batch_size=8, evaluations=1, optimization=OptimizerSettings(learning_rate=3e-3))
    output = tmp_path_factory.mktemp("runs") / "choices"
    return finetune(tiny_bert, choices(100, 0), output, choices(30, 1), task="choose", settings=settings, device="cpu")


@pytest.fixture(scope="module")
def chooser(trained: Trained) -> Encoder:
    return load(trained.folder, device="cpu")


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """A random model that reads 60 tokens."""
    folder = write_folder(tmp_path_factory.mktemp("models") / "chooser", suffix="ForMultipleChoice")
    return load(folder, device="cpu")


def test_a_tiny_model_learns_to_choose_among_any_number_of_options(trained: Trained, chooser: Encoder) -> None:
    assert list(trained.metrics) == ["accuracy"]
    assert trained.metrics["accuracy"] > 0.9
    found = chooser.choose("river bird", ["paper house", "light", "cloud salt", "glass"])
    assert (found.option, found.index) == ("cloud salt", 2)
    assert found.probability == found.probabilities[2] == max(found.probabilities)
    assert sum(found.probabilities) == pytest.approx(1)


def test_the_saved_model_chooses_as_the_trained_one_did(trained: Trained, chooser: Encoder, tmp_path: Path) -> None:
    assert saved_task(chooser) == ChoiceTask()
    rows = [{"context": one.context, "options": one.options, "answer": one.answer} for one in choices(30, 1)]
    (tmp_path / "dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert evaluate(chooser, tmp_path / "dev.jsonl").metrics == pytest.approx(trained.metrics)


def test_the_reference_library_opens_the_folder_and_scores_alike(trained: Trained, chooser: Encoder) -> None:
    theirs, report = transformers.AutoModelForMultipleChoice.from_pretrained(
        trained.folder / "model", output_loading_info=True
    )
    assert {kind: keys for kind, keys in report.items() if keys} == {}
    options = ["stone bird", "salt house"]
    pairs = [chooser.tokenizer.encode(("river", option)) for option in options]
    with torch.no_grad():
        said = [
            theirs.eval()(torch.tensor([[pair.ids]]), token_type_ids=torch.tensor([[pair.segments]])).logits.item()
            for pair in pairs
        ]
    shares = torch.tensor(said).softmax(0).tolist()
    assert chooser.choose("river", options).probabilities == pytest.approx(shares, abs=1e-5)


def test_company_does_not_change_a_choice(untrained: Encoder) -> None:
    asked = [(one.context, one.options) for one in choices(20, 3)]
    together = untrained.choose(asked)
    for given, found in zip(asked, together, strict=True):
        np.testing.assert_allclose(found.probabilities, untrained.choose(*given).probabilities, rtol=0, atol=1e-5)


def test_a_long_option_scores_the_weighted_mean_of_its_windows(untrained: Encoder) -> None:
    long, short = " ".join(WORDS * 12), "stone bird"

    def scored(ids: list[int], segments: list[int]) -> float:
        tokens = pack([ids], [segments])
        with torch.inference_mode():
            return untrained.model.scores("choose", tokens, untrained.model(tokens)).item()

    windows = split_text(untrained.tokenizer, ("river", long), 0, untrained.context)
    assert len(windows) > 2
    each = [scored(window.encoding.ids, window.encoding.segments) for window in windows]
    alone = untrained.tokenizer.encode(("river", short))
    scores = [np.average(each, weights=[window.weight for window in windows]), scored(alone.ids, alone.segments)]
    powers = np.exp(np.array(scores) - max(scores))
    found = untrained.choose("river", [long, short])
    np.testing.assert_allclose(found.probabilities, powers / powers.sum(), rtol=0, atol=1e-5)


def test_mistakes_show_the_context_and_both_options(untrained: Encoder) -> None:
    dataset = ChoiceTask().dataset(untrained.tokenizer, choices(20, 4), untrained.context)
    judged = ChoiceTask().evaluate(untrained.model, dataset)
    guessed = list(choose(untrained, choices(20, 4)))
    wrong = [one for one, guess in zip(choices(20, 4), guessed, strict=True) if guess.index != one.answer]
    assert judged.metrics["accuracy"] == pytest.approx(1 - len(wrong) / 20)
    assert {mistake.location for mistake in judged.mistakes} <= {one.location for one in wrong}
    assert all("salt" in mistake.truth and "salt" not in mistake.guess for mistake in judged.mistakes)


def test_what_has_no_meaning_is_refused(untrained: Encoder, tiny_bert: Path) -> None:
    for options in (TaskOptions(class_weights="balanced"), TaskOptions(crf=True)):
        with pytest.raises(InputError, match="has no meaning for the task choose"):
            make_task("choose", choices(3, 0), options)
    assert make_task("choose", choices(3, 0), TaskOptions(windows=Windows(30))).to_hf()["window"] == 30
    with pytest.raises(MissingHeadError, match="multiple-choice head"):
        load(tiny_bert).choose("river", ["a", "b"])
    for given in (("river", ["only one"]), ("river", "ab"), ("river", ["a", 1]), "ab", (1, ["a", "b"])):
        with pytest.raises(InputError, match="choice 1: expected a context and two or more options"):
            untrained.choose([given])  # type: ignore[list-item]


def test_two_long_texts_are_cut_and_counted(untrained: Encoder) -> None:
    with pytest.warns(CutWarning, match="1 text was cut"):
        found = untrained.choose("river " * 90, ["stone", "bird " * 90])
    assert len(found.probabilities) == 2


def test_a_public_sample_is_read_and_scored(untrained: Encoder) -> None:
    path = shared_data("swag/sample.jsonl")
    right = [json.loads(line)["label"] for line in path.read_text(encoding="utf-8").splitlines()]
    found = read_choices(path).examples
    dataset = ChoiceTask().dataset(untrained.tokenizer, found, untrained.context)
    assert [item.target.count for item in dataset.samples] == [4] * len(found)
    taken = list(choose(untrained, found))
    assert all(guess.option == one.options[guess.index] for guess, one in zip(taken, found, strict=True))
    share = np.mean([guess.index == label for guess, label in zip(taken, right, strict=True)])
    assert evaluate(untrained, path).metrics["accuracy"] == pytest.approx(share)
