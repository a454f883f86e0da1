"""Questions as items and scores as answers: windows, targets, offsets and decoding, with scores set by hand."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from kinfolk.data.examples import Question
from kinfolk.demo import passages
from kinfolk.errors import InputError
from kinfolk.tasks.answer import LONGEST_ANSWER, NOWHERE, AnswerDataset, AnswerTask, SpanScores, decode
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.train import train_tokenizer
from kinfolk.text.windows import Windows

KINDS = {"wordpiece": 320, "byte_bpe": 400, "unigram": 150}
every_kind = pytest.mark.parametrize("kind", KINDS)
WORDS = ["café", "Müller", "👩‍👧", "naïve", "e\u0301te\u0301", "river", "don't", "3,251", "中文", "Fluß", "\u200bzero"]


@cache
def small(kind: str) -> Tokenizer:
    return train_tokenizer(kind, [*passages(), *WORDS] * 2, KINDS[kind])


def asked(words: list[str], first: int, last: int, question: str = "Which one?") -> Question:
    """A question whose answer is the words from `first` to `last`."""
    context, before = " ".join(words), len(" ".join(words[:first]))
    start = before + 1 if first else 0
    text = " ".join(words[first : last + 1])
    assert context[start : start + len(text)] == text
    return Question("q", question, context, ((text, start),), "made:1")


def perfect_scores(items: AnswerDataset, height: float = 5.0) -> list[np.ndarray]:
    """Scores of a model that knows the targets."""
    results = []
    for item in items.samples:
        scores = np.zeros((len(item), 2), dtype=np.float32)
        scores[item.target[0], 0] = scores[item.target[1], 1] = height
        results.append(scores)
    return results


def question_samples(tokenizer: Tokenizer, questions: list[Question], window: int, stride: int | None) -> AnswerDataset:
    return AnswerTask(Windows(window, stride)).dataset(tokenizer, questions, window)


def best(items: AnswerDataset, scores: list[np.ndarray]) -> list[SpanScores]:
    return [decode(question, windows) for question, windows in items.by_question(scores)]


@every_kind
def test_the_answer_is_found_at_its_characters_wherever_it_stands(kind: str) -> None:
    draw = random.Random(kind)
    words = draw.choices(WORDS, k=60)
    questions = [asked(words, first, min(first + draw.randrange(3), 59)) for first in range(60)]
    items = question_samples(small(kind), questions, 120, None)
    windows = [item.example for item in items.samples]
    assert all(windows.count(index) > 1 for index in range(60))
    for question, result in zip(questions, best(items, perfect_scores(items)), strict=True):
        answer = result.answers(None)[0]
        ((text, start),) = question.answers
        assert answer.text == question.context[answer.start : answer.end]
        # A character that the tokenizer drops at the beginning of a word belongs to no token.
        assert (answer.text.lstrip("\u200b"), answer.end) == (text.lstrip("\u200b"), start + len(text))


@every_kind
def test_windows_hold_the_whole_question_and_every_token_of_the_context(kind: str) -> None:
    tokenizer, words = small(kind), WORDS * 9
    questions = [asked(words, 0, 0), asked(words, 1, 1, "And now?"), asked(WORDS[::-1] * 9, 0, 0)]
    items = question_samples(tokenizer, questions, 44, 5)
    read: list[list[tuple[int, tuple[int, ...]]]] = [[], [], []]
    for item, view in zip(items.samples, items.views, strict=True):
        own = tokenizer.encode(questions[item.example].question, add_special_tokens=False).ids
        assert len(item) <= 44
        assert item.ids[1 : 1 + len(own)] == own
        rows = item.ids[view.first : view.first + len(view.offsets)], map(tuple, view.offsets.tolist())
        read[item.example] += list(zip(*rows, strict=True))[5 if read[item.example] else 0 :]
    for question, result in zip(questions, read, strict=True):
        whole = tokenizer.encode(question.context, add_special_tokens=False)
        assert result == list(zip(whole.ids, whole.offsets, strict=True))


def test_the_context_moves_beside_the_longest_question_there_is_room_for() -> None:
    tokenizer = small("wordpiece")
    for words in range(15, 35):
        question = asked(["river"] * words + ["water"], words, words, question="why" + " ?" * 20)
        length = len(tokenizer.encode(question.question, add_special_tokens=False))
        items = question_samples(tokenizer, [question], 2 * length + tokenizer.special_tokens_count(pair=True), None)
        assert all(item.ids[1 : length + 1] == items.samples[0].ids[1 : length + 1] for item in items.samples)
        assert best(items, perfect_scores(items))[0].answers(None)[0].text == "water"


def test_a_question_that_leaves_too_little_room_is_named() -> None:
    long = Question("q", "why " * 60, "river " * 60, (), "file.json:Title/1/q")
    with pytest.raises(InputError, match=r"file.json:Title/1/q: .*question .* 20 .* 44"):
        question_samples(small("wordpiece"), [long], 44, None)
    assert len(question_samples(small("wordpiece"), [long], 5000, None).samples) == 1  # it fits as it is


def test_neighbours_share_at_most_half_of_their_context() -> None:
    for stride in (None, 40):
        first, second, *_ = question_samples(small("wordpiece"), [asked(WORDS * 9, 0, 0)], 44, stride).views
        room = len(first.offsets)
        assert second.offsets.tolist()[: room // 2] == first.offsets.tolist()[room - room // 2 :]


def test_a_window_without_the_whole_answer_points_to_the_first_token() -> None:
    words = ["river"] * 30 + ["water"] * 5 + ["river"] * 30
    items = question_samples(small("wordpiece"), [asked(words, 30, 34)], 44, 4)
    context = asked(words, 30, 34).context
    for item, view in zip(items.samples, items.views, strict=True):
        text = context[view.offsets[0, 0] : view.offsets[-1, 1]]
        assert (item.target == NOWHERE) == (text.count("water") < 5)
    nothing = Question("q", "Which?", context, (), "made:2")
    assert all(item.target == NOWHERE for item in question_samples(small("wordpiece"), [nothing], 44, 4).samples)


def test_a_blank_at_the_end_of_an_answer_is_not_its_token() -> None:
    question = Question("q", "Which?", "the river  is", ((" river  ", 3),), "made:1")
    items = question_samples(small("wordpiece"), [question], 40, None)
    assert best(items, perfect_scores(items))[0].answers(None)[0].text == "river"


def test_no_span_touches_the_question_or_the_specials_or_goes_back_or_is_too_long() -> None:
    question = asked(["river"] * 50, 0, 0)
    items = question_samples(small("wordpiece"), [question], 200, None)
    (view,), draw = items.views, np.random.default_rng(0)
    scores = draw.normal(size=(len(items.samples[0]), 2)).astype(np.float32)
    scores[: view.first] += 50  # question and [CLS] …
    scores[-1] += 50  # … and the last [SEP]
    scores[view.first + 45, 0] = scores[view.first + 2, 1] = 40  # the best end lies before the best start
    decoded = decode(question, [(view, scores)], top=1000)
    assert len(decoded.spans) > LONGEST_ANSWER
    indices = {tuple(pair): index for index, pair in enumerate(view.offsets.tolist())}
    starts, ends = {start: n for (start, _), n in indices.items()}, {end: n for (_, end), n in indices.items()}
    for _, start, end in decoded.spans:
        assert 0 <= ends[end] - starts[start] < LONGEST_ANSWER


@every_kind
def test_the_best_answers_are_those_of_a_plain_search_and_differ_in_text(kind: str) -> None:
    question = asked(random.Random(1).choices(WORDS[:5], k=40), 0, 0)
    items = question_samples(small(kind), [question], 60, 10)
    draw = np.random.default_rng(2)
    scores = [draw.normal(size=(len(item), 2)).astype(np.float32) for item in items.samples]
    expected: dict[str, float] = {}
    for view, rows in zip(items.views, scores, strict=True):
        for start in range(len(view.offsets)):
            for end in range(start, min(start + LONGEST_ANSWER, len(view.offsets))):
                text = question.context[view.offsets[start, 0] : view.offsets[end, 1]]
                if all(view.offsets[index, 0] < view.offsets[index, 1] for index in (start, end)):
                    total = float(rows[view.first + start, 0] + rows[view.first + end, 1])
                    expected[text] = max(total, expected.get(text, -np.inf))
    ranked = sorted(expected.items(), key=lambda pair: -pair[1])[:50]
    ((_, windows),) = items.by_question(scores)
    answers = decode(question, windows, top=50).answers(None, top=50)
    assert [answer.text for answer in answers] == [text for text, _ in ranked]
    assert [answer.score for answer in answers] == pytest.approx([total for _, total in ranked])
    assert all(answer.text == question.context[answer.start : answer.end] for answer in answers)


def test_few_texts_that_stand_there_often_are_all_found() -> None:
    question = asked(["river"] * 200 + ["water"], 0, 0)
    items = question_samples(small("wordpiece"), [question], 1000, None)
    scores = perfect_scores(items)
    view = items.views[0]
    for index in range(200):  # the same word two hundred times before the other
        scores[0][view.first + index] = 20
    scores[0][view.first + 200] = 10
    result = best(items, scores)[0].spans
    assert len({question.context[start:end] for _, start, end in result}) == len(result) == 20


def test_no_answer_competes_where_it_is_allowed_to() -> None:
    result = SpanScores("red green blue", [(5.0, 0, 3), (3.0, 4, 9), (1.0, 10, 14)], null=4.0)
    assert result.margin == -1
    assert [answer.text for answer in result.answers(None, top=9)] == ["red", "green", "blue"]
    assert [answer.text for answer in result.answers(0.0, top=9)] == ["red", "", "green", "blue"]
    assert [answer.text for answer in result.answers(-1.0)] == ["red"]  # not ahead by more than the threshold
    assert [answer.text for answer in result.answers(-1.5, top=2)] == ["", "red"]
    powers = np.exp([5.0, 4.0, 3.0, 1.0])
    shares = [answer.probability for answer in result.answers(0.0, top=9)]
    assert shares == pytest.approx((powers / powers.sum()).tolist())
    nothing = result.answers(0.0, top=2)[1]
    assert (nothing.start, nothing.end, nothing.score) == (None, None, 4.0)


def test_no_answer_is_scored_in_the_window_where_it_is_least_likely() -> None:
    question = asked(["river"] * 60, 0, 0)
    items = question_samples(small("wordpiece"), [question], 44, None)
    scores = [np.full((len(item), 2), index + 1.0, dtype=np.float32) for index, item in enumerate(items.samples)]
    assert best(items, scores)[0].null == 2.0


@pytest.mark.parametrize("context", ["", "   ", "\n\t"])
def test_a_context_without_words_has_no_answer(context: str) -> None:
    items = question_samples(small("wordpiece"), [Question("q", "Which?", context, (), "made:1")], 44, None)
    for threshold in (None, 0.0, 1e9):
        (answer,) = best(items, perfect_scores(items))[0].answers(threshold, top=3)
        assert (answer.text, answer.start, answer.end, answer.probability) == ("", None, None, 1.0)
