"""Answering from end to end: a tiny model learns a toy task, is saved, opened again and asked."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from kinfolk.api.evaluate import evaluate
from kinfolk.api.experiment import Trained
from kinfolk.api.finetune import finetune
from kinfolk.api.loaded import Encoder, load
from kinfolk.data.examples import Question
from kinfolk.data.tables import read_squad
from kinfolk.errors import ConfigError, InputError, MissingHeadError
from kinfolk.models.family import with_new_head
from kinfolk.tasks.answer import AnswerTask
from kinfolk.tasks.task import TaskOptions, make_task, saved_task
from kinfolk.text.windows import Windows
from kinfolk.training.settings import OptimizerSettings, TrainSettings
from surroundings import shared_data

WORDS = ["water", "bread", "light", "stone", "river", "bird", "paper", "house", "glass", "cloud"]
ASKED = "what is it ?"


def questions(count: int, seed: int, least: int = 2, most: int = 9, without: float = 0.3) -> list[Question]:
    """The answer is the word `salt` or `sand`; where neither stands in the context there is none."""
    draw, results = random.Random(seed), []
    for index in range(count):
        words = draw.choices(WORDS, k=draw.randint(least, most))
        answers: tuple[tuple[str, int], ...] = ()
        if draw.random() >= without:
            position = draw.randrange(len(words))
            words[position] = draw.choice(["salt", "sand"])
            answers = ((words[position], len(" ".join([*words[:position], ""]))),)
        results.append(Question(f"q{index}", ASKED, " ".join(words), answers, f"made:{index + 1}"))
    return results


def squad_file(path: Path, asked: list[Question]) -> Path:
    """The questions as SQuAD 2.0 writes them."""
    paragraphs = [
        {
            "context": question.context,
            "qas": [
                {
                    "id": question.id,
                    "question": question.question,
                    "is_impossible": not question.answers,
                    "answers": [{"text": text, "answer_start": start} for text, start in question.answers],
                }
            ],
        }
        for question in asked
    ]
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "made", "paragraphs": paragraphs}]}))
    return path


@pytest.fixture(scope="module")
def trained(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    settings = TrainSettings(epochs=3, batch_size=8, evaluations=1, optimization=OptimizerSettings(learning_rate=3e-3))
    output = tmp_path_factory.mktemp("runs") / "answers"
    dev = questions(30, seed=1, most=60)
    return finetune(tiny_bert, questions(160, seed=0), output, dev, task="answer", settings=settings, device="cpu")


@pytest.fixture(scope="module")
def reader(trained: Trained) -> Encoder:
    return load(trained.folder, device="cpu")


def test_a_tiny_model_learns_where_answers_stand_and_when_there_is_none(trained: Trained, reader: Encoder) -> None:
    assert trained.metrics["f1"] > 0.9
    assert list(trained.metrics)[:2] == ["f1", "exact"]
    assert trained.metrics["unanswerable_f1"] > 0.7 < trained.metrics["answerable_f1"]
    (best,) = reader.answer(ASKED, "river bird sand house")
    assert (best.text, best.start, best.end) == ("sand", 11, 15)
    (nothing,) = reader.answer(ASKED, "river bird house")
    assert (nothing.text, nothing.start, nothing.end) == ("", None, None)
    assert 0.5 < nothing.probability <= 1


def test_the_answer_is_found_in_any_window_of_a_context_far_longer_than_the_model(reader: Encoder) -> None:
    words = random.Random(3).choices(WORDS, k=200)
    contexts = [" ".join([*words[:index], "salt", *words[index + 1 :]]) for index in range(0, 200, 20)]
    assert min(len(reader.tokenizer.encode(context)) for context in contexts) > 10 * reader.context
    result = [best for (best,) in reader.answer([(ASKED, context) for context in contexts])]
    right = [best.start == context.index("salt") for best, context in zip(result, contexts, strict=True)]
    assert sum(right) >= 9
    for best, context in zip(result, contexts, strict=True):
        assert best.text == ("" if best.start is None else context[best.start : best.end])


def test_the_best_answers_differ_and_their_probabilities_fall(reader: Encoder) -> None:
    context = "river sand bird sand house sand"
    answers = reader.answer(ASKED, context, top=30)
    assert len({answer.text for answer in answers}) == len(answers) == 30
    assert "" in [answer.text for answer in answers]
    shares = [answer.probability for answer in answers]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 1 + 1e-9
    assert len(reader.answer(ASKED, "sand", top=100)) < 20  # there are no more


def test_company_does_not_change_an_answer(reader: Encoder) -> None:
    asked = [(question.question, question.context) for question in questions(20, seed=5, most=50)]
    together = reader.answer(asked, top=3)
    assert len(together) == 20
    for pair, result in zip(asked, together, strict=True):
        alone = reader.answer(*pair, top=3)
        assert [one.text for one in result] == [one.text for one in alone]
        np.testing.assert_allclose([one.score for one in result], [one.score for one in alone], rtol=0, atol=1e-4)


def test_the_saved_model_says_what_the_trained_one_said(trained: Trained, reader: Encoder, tmp_path: Path) -> None:
    task = saved_task(reader)
    assert isinstance(task, AnswerTask)
    assert task.unanswerable
    assert task.null_threshold is not None
    assert task.null_threshold == reader.hf_config["null_threshold"]
    evaluation = evaluate(reader, squad_file(tmp_path / "dev.json", questions(30, seed=1, most=60)))
    assert evaluation.metrics == pytest.approx(trained.metrics)


def test_the_reference_library_opens_the_folder_and_scores_alike(trained: Trained, reader: Encoder) -> None:
    theirs, report = transformers.AutoModelForQuestionAnswering.from_pretrained(
        trained.folder / "model", output_loading_info=True
    )
    assert {kind: keys for kind, keys in report.items() if keys} == {}
    encoding = reader.tokenizer.encode((ASKED, "river bird sand house"))
    with torch.no_grad():
        said = theirs.eval()(torch.tensor([encoding.ids]), token_type_ids=torch.tensor([encoding.segments]))
    scores = said.start_logits[0], said.end_logits[0]
    first, last = (int(row.argmax()) for row in scores)
    (best,) = reader.answer(ASKED, "river bird sand house")
    assert encoding.offsets[first][0] == best.start
    assert encoding.offsets[last][1] == best.end
    assert float(scores[0][first] + scores[1][last]) == pytest.approx(best.score, abs=1e-4)


def test_the_threshold_is_tuned_on_the_dev_set(reader: Encoder) -> None:
    task = replace(saved_task(reader), null_threshold=None)  # type: ignore[type-var]
    dev = task.dataset(reader.tokenizer, questions(40, seed=7), reader.context)
    calibrate = task.calibrate(reader.model, dev)
    tuned = calibrate.evaluate(reader.model, dev).metrics["f1"]
    assert task.evaluate(reader.model, dev).metrics["f1"] == tuned
    for threshold in (-50.0, 0.0, 50.0):
        assert replace(task, null_threshold=threshold).evaluate(reader.model, dev).metrics["f1"] <= tuned
    always = replace(task, null_threshold=1e9).evaluate(reader.model, dev).metrics
    assert always["unanswerable_f1"] == 0.0
    assert replace(task, null_threshold=-1e9).evaluate(reader.model, dev).metrics["unanswerable_f1"] == 1.0


def test_without_questions_that_have_no_answer_there_always_is_one(reader: Encoder) -> None:
    task = make_task("answer", questions(10, seed=0, without=0.0), TaskOptions())
    assert isinstance(task, AnswerTask)
    assert task.to_hf()["null_threshold"] is None
    dataset = task.dataset(reader.tokenizer, questions(10, seed=0, without=1.0), reader.context)
    assert all(result[0].text for result in task.answers(reader.model, dataset))
    assert task.calibrate(reader.model, dataset) == task
    undecided = make_task("answer", questions(10, seed=0), TaskOptions())  # no dev set to tune it on
    assert undecided.to_hf()["null_threshold"] == 0.0


def test_mistakes_show_question_truth_and_guess(reader: Encoder) -> None:
    task = replace(saved_task(reader), null_threshold=-1e9)  # type: ignore[type-var]
    dev = task.dataset(reader.tokenizer, questions(10, seed=9), reader.context)
    wrong = task.evaluate(reader.model, dev).mistakes
    assert {mistake.guess for mistake in wrong} == {"(no answer)"}
    assert {mistake.truth for mistake in wrong} <= {"salt", "sand"}
    assert {mistake.text for mistake in wrong} == {ASKED}


def test_windows_are_384_tokens_unless_the_user_or_the_model_says_otherwise() -> None:
    from kinfolk.demo import passages
    from kinfolk.text.train import train_tokenizer

    tokenizer = train_tokenizer("wordpiece", passages(), vocabulary_size=300)
    long = [Question("q", "Why?", " ".join(passages()), (), "made:1")]
    for windows, context, expected in (
        (Windows(), 512, 384),
        (Windows(), 100, 100),
        (Windows(window=450), 512, 450),
        (Windows(window=60, stride=0), 512, 60),
    ):
        items = AnswerTask(windows).dataset(tokenizer, long, context).samples
        assert max(map(len, items)) == expected
    with pytest.raises(InputError, match=r"window=600 .* 512 tokens"):
        AnswerTask(Windows(window=600)).dataset(tokenizer, long, 512)


def test_what_has_no_meaning_is_refused(reader: Encoder, tiny_bert: Path) -> None:
    for option, options in {
        "class_weights": TaskOptions(class_weights="balanced"),
        "crf": TaskOptions(crf=True),
    }.items():
        with pytest.raises(InputError, match=f"{option} .*answer"):
            make_task("answer", questions(3, seed=0), options)
    with pytest.raises(MissingHeadError, match="question-answering"):
        load(tiny_bert).answer("why ?", "so")
    with pytest.raises(InputError, match="top=0"):
        reader.answer("why ?", "so", top=0)
    with pytest.raises(InputError, match=r"question .*context"):
        reader.answer("why ?")
    with pytest.raises(InputError, match=r"question 2: .*'so'"):
        reader.answer([("why ?", "so"), "so"])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="null_threshold"):
        AnswerTask.saved(replace(reader, hf_config={"null_threshold": "high"}))


def test_public_questions_are_read_and_evaluated(minilm: Path) -> None:
    result = read_squad(shared_data("squad/dev-v2.0-sample.json")).examples[:6]
    encoder = load(minilm)
    model, _ = with_new_head(encoder.model, "span", 2)
    task = AnswerTask(unanswerable=True)
    dataset = task.dataset(encoder.tokenizer, result, encoder.context)
    evaluation = task.evaluate(model.eval(), dataset)
    assert all(0 <= value <= 1 for value in evaluation.metrics.values())
    for question, item, view in zip(result, dataset.samples, dataset.views, strict=True):
        if question.answers:  # none of these contexts needs a second window
            first, last = (index - view.first for index in item.target)
            assert question.context[view.offsets[first, 0] : view.offsets[last, 1]] == question.answers[0][0]
    for question, (best,) in zip(result, task.answers(model, dataset), strict=True):
        assert best.text == ("" if best.start is None else question.context[best.start : best.end])
