"""The texts that come with the package are what their docstring says."""

from __future__ import annotations

from collections import Counter

from kinfolk.demo import passages, sentences


def test_there_are_three_hundred_sentences_of_each_label():
    texts, labels = sentences()
    assert len(texts) == len(labels) == 600
    assert Counter(labels) == {"positive": 300, "negative": 300}


def test_no_sentence_stands_there_twice():
    texts, _ = sentences()
    assert len({text.casefold() for text in texts}) == len(texts)


def test_sentences_are_clean_lines_of_ordinary_length():
    texts, _ = sentences()
    for text in texts:
        assert text == " ".join(text.split()), text  # no tab, no blank at the ends, no double blank
        assert '"' not in text, text  # readers of csv files treat it specially
        assert text[-1] in ".!?", text
        assert 3 <= len(text.split()) <= 40, text


def test_the_labels_are_mixed_throughout():
    _, labels = sentences()
    for start in range(0, 600, 60):
        assert 15 <= labels[start : start + 60].count("positive") <= 45
    assert labels != ["positive", "negative"] * 300


def test_there_are_sixty_different_passages():
    facts = passages()
    assert len(facts) == len(set(facts)) == 60
    for fact in facts:
        assert fact == " ".join(fact.split()), fact
        assert fact.endswith("."), fact
        assert 5 <= len(fact.split()) <= 60, fact
