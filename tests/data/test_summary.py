"""What is printed before training is right, and warns of what spoils a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kinfolk.data.examples import Choice, Example, Question, Sentence
from kinfolk.data.summary import DataSummary, summarize
from kinfolk.data.tables import read_examples
from kinfolk.data.tagging import read_slots
from kinfolk.demo import passages
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.train import train_tokenizer
from kinfolk.text.windows import TokenCounts
from surroundings import shared_data


@pytest.fixture(scope="module")
def letters() -> Tokenizer:
    """A vocabulary in which every word here is one piece, and capitals are the same as small letters."""
    return train_tokenizer("wordpiece", ["alpha beta gamma delta"] * 50, vocabulary_size=36)


@pytest.fixture(scope="module")
def english(minilm: Path) -> Tokenizer:
    return Tokenizer.load(minilm)


def example(text: str, label: str | float | tuple[str, ...] | None = "a", line: int = 1, name: str = "t") -> Example:
    return Example(text, None, label, f"{name}:{line}")


def summary(train: list[Any], dev: list[Any], tokenizer: Tokenizer, limit: int) -> DataSummary:
    counts = TokenCounts(tokenizer)
    for one in train:
        first, *others = one.content
        for other in others or [None]:
            counts.add(tokenizer.encode(first if other is None else (first, other)), other is not None)
    return summarize(train, dev, counts, limit)


def test_lengths_balance_and_repeats_by_hand(letters: Tokenizer) -> None:
    texts = ["alpha", "alpha beta", "alpha beta gamma", "Alpha  beta", "delta " * 8]
    train = [example(text, "no" if index == 5 else "yes", index) for index, text in enumerate(texts, start=1)]
    dev = [example("ALPHA", "yes", 1, "d"), example("beta", "yes", 2, "d")]
    stats = summary(train, dev, letters, limit=9)
    assert (stats.tokens.median, stats.tokens.p95, stats.tokens.longest, stats.tokens.over_limit) == (4, 10, 10, 0.2)
    assert (stats.tokens.subwords_per_word, stats.tokens.unknown_rate, stats.tokens.words) == (1.0, 0.0, 16)
    assert stats.labels == (("yes", 4), ("no", 1))
    assert (stats.duplicates.count, stats.duplicates.first) == (1, (("t:4", "t:2"),))
    assert (stats.overlap.count, stats.overlap.first) == (1, (("d:1", "t:1"),))
    assert str(stats).splitlines() == [
        "examples    5 train, 2 dev",
        "labels      yes 80.0% (4), no 20.0% (1)",
        "tokens      median 4, 95% up to 10, longest 10; 20.0% above the limit of 9",
        "subwords    1.00 per word, 0.0% unknown",
        "duplicates  1 (t:4 = t:2) in train; train/dev overlap 1 (d:1 = t:1)",
        "warning     fewer than 5 examples in train: no (1), yes (4)",
    ]


def test_labels_that_only_dev_has_are_named(letters: Tokenizer) -> None:
    train = [example(f"alpha {index}", "a") for index in range(5)]
    stats = summary(train, [example("beta", "b"), example("gamma", "c")], letters, limit=9)
    assert stats.warnings == ("in dev but not in train, so they can never be predicted: b, c",)


def test_empty_texts_are_reported_with_their_place(letters: Tokenizer) -> None:
    train = [example("alpha" * (index < 4), "a", index) for index in range(6)]
    assert summary(train, [], letters, limit=9).warnings == ("empty text in 2 examples: t:4, t:5",)


def test_every_kind_of_example_can_be_surveyed(letters: Tokenizer) -> None:
    numbers = summary([example("alpha", value) for value in (0.0, 2.5, 5.0)], [], letters, 9)
    assert "labels      numbers from 0 to 5, median 2.5" in str(numbers)
    several = summary([example("alpha", ("a", "b")), example("beta", ("a",)), example("gamma", ())], [], letters, 9)
    assert several.labels == (("a", 2), ("b", 1))
    choice = summary([Choice("alpha", ("beta", "beta gamma"), 1, "t:1")], [], letters, 9)
    assert (choice.labels, choice.tokens.longest) == ((("option 1", 1),), 6)
    question = summary([Question("q", "alpha", "beta gamma", (), "t:q")], [], letters, 9)
    assert (question.labels, question.tokens.longest) == ((("without answer", 1),), 6)
    sentence = summary([Sentence(("alpha", "beta"), ("B-x", "O"), "intent", "t:1")], [], letters, 9)
    assert (sentence.labels, sentence.tags) == ((), (("B-x", 1), ("O", 1)))  # tags are learned, not the intent
    assert "labels" not in str(sentence)
    assert summary([example("alpha", None)], [], letters, 9).labels == ()


def test_published_repeats_are_found(english: Tokenizer) -> None:
    header = ("source", "label", "mark", "text")
    train, dev = (
        read_examples(shared_data(f"glue/CoLA/{split}.tsv"), header=header).examples for split in ("train", "dev")
    )
    assert summary(train, dev, english, 512).overlap.count == 16
    assert summary(dev, dev, english, 512).overlap.count == len(dev)


def test_atis_labels_that_train_lacks_are_named(english: Tokenizer) -> None:
    train, test = (read_slots(shared_data(f"atis/{split}")).examples for split in ("train", "test"))
    intents = [
        [Example(" ".join(sentence.words), None, sentence.label, sentence.location) for sentence in side]
        for side in (train, test)
    ]
    for sides, count, one in (((train, test), 6, "B-booking_class"), (intents, 4, "atis_day_name")):  # as published
        (absent,) = [warning for warning in summary(*sides, english, 512).warnings if "in dev but not" in warning]
        names = absent.split(": ")[1].split(", ")
        assert len(names) == count
        assert one in names


def language_warnings(texts: list[str], tokenizer: Tokenizer) -> list[str]:
    stats = summary([example(text) for text in texts], [], tokenizer, 512)
    return [warning for warning in stats.warnings if "language" in warning]


def test_a_language_that_the_model_knows_gives_no_warning(english: Tokenizer) -> None:
    assert language_warnings(passages(), english) == []


@pytest.mark.parametrize(("name", "reason"), [("fr", "subwords"), ("zh", "unknown to the vocabulary")])
def test_a_language_that_the_model_does_not_know_gives_a_warning(english: Tokenizer, name: str, reason: str) -> None:
    lines = shared_data(f"wikipedia/{name}.txt").read_text("utf-8").splitlines()
    (warning,) = language_warnings([line for line in lines if line][:100], english)
    assert reason in warning
