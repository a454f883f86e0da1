"""TextTagger learns tags of words, and is scikit-learn's as the others are."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils import estimator_checks

from kinfolk.errors import InputError
from kinfolk.sklearn import TextTagger
from kinfolk.sklearn.estimators import tags_of, words_of
from small_tags import sentences

WORDS, TAGS = ([list(getattr(each, name)) for each in sentences(60)] for name in ("words", "tags"))
NEW_WORDS, NEW_TAGS = ([list(getattr(each, name)) for each in sentences(40, seed=1)] for name in ("words", "tags"))


def tagger(model: Path, **changes: Any) -> TextTagger:
    """Few, large steps. Twelve epochs learn the tags."""
    return TextTagger(
        **({"model": model, "epochs": 1, "batch_size": 8, "learning_rate": 6e-3, "device": "cpu"} | changes)
    )


@pytest.mark.parametrize("crf", [False, True], ids=["words", "paths"])
def test_it_learns_and_its_pickle_says_the_same(crf: bool, tiny_bert: Path) -> None:
    model = tagger(tiny_bert, epochs=12, crf=crf, validation_fraction=0).fit(WORDS, TAGS)
    assert model.score(NEW_WORDS, NEW_TAGS) > 0.7
    assert model.classes_.tolist() == ["B-STONE", "B-TUNE", "I-STONE", "I-TUNE", "O"]
    predictions = model.predict(NEW_WORDS)
    assert [len(tags) for tags in predictions] == [len(words) for words in NEW_WORDS]
    assert predictions == [[word.tag for word in each.words] for each in model.encoder_.tag(NEW_WORDS, words=True)]
    again = pickle.loads(pickle.dumps(model))
    assert again.predict(NEW_WORDS) == predictions
    assert again.get_params() == model.get_params()


@pytest.mark.parametrize("crf", [False, True], ids=["words", "paths"])
def test_every_word_has_the_probabilities_of_all_tags(crf: bool, tiny_bert: Path) -> None:
    model = tagger(tiny_bert, epochs=2, crf=crf).fit(WORDS, TAGS)
    texts = [*NEW_WORDS, ["water", "\x01"], [], "quartz kettle"]
    tables, guesses = model.predict_proba(texts), model.predict(texts)
    assert [table.shape for table in tables] == [(len(tags), len(model.classes_)) for tags in guesses]
    for table in tables:
        np.testing.assert_allclose(table.sum(1), 1, rtol=0, atol=1e-9)
    assert tables[-3][1].tolist() == (model.classes_ == "O").astype(float).tolist()  # no token is left of this word
    if not crf:
        assert [model.classes_[table.argmax(1)].tolist() for table in tables] == guesses
    for table, tagged in zip(tables, model.encoder_.tag(NEW_WORDS, words=True), strict=False):
        columns = [model.classes_.tolist().index(word.tag) for word in tagged.words]
        chances = [word.probability for word in tagged.words]
        np.testing.assert_allclose(table[range(len(columns)), columns], chances, rtol=0, atol=1e-5)
    assert model.predict_proba([]) == []


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_set_params,
        estimator_checks.check_valid_tag_types,
    ],
    ids=lambda check: check.__name__,
)
def test_scikit_learns_own_check_passes(check: Any, tiny_bert: Path) -> None:
    check("TextTagger", TextTagger(tiny_bert))


def test_texts_are_words_or_strings_in_any_container(tiny_bert: Path) -> None:
    strings = [" ".join(words) for words in WORDS]
    for texts in (WORDS, strings, pandas.Series(WORDS), pandas.Series(strings), np.array(strings), map(tuple, WORDS)):
        assert words_of(texts) == WORDS
    assert words_of([np.array(["a", "b"]), [], "Don't stop!"]) == [["a", "b"], [], ["Don't", "stop", "!"]]
    model = tagger(tiny_bert).fit(strings, pandas.Series(TAGS))
    assert model.predict(strings) == model.predict(WORDS)
    assert model.predict([[], "", "water"])[:2] == [[], []]
    assert model.predict([]) == []


def test_cross_validation_scores_entities(tiny_bert: Path) -> None:
    model = tagger(tiny_bert, validation_fraction=0, class_weight={"O": 0.5})
    scores = cross_val_score(model, WORDS, TAGS, cv=2, error_score="raise")
    assert ((scores >= 0) & (scores <= 1)).all()


def test_span_tags_of_any_scheme_are_learned_in_iob2() -> None:
    assert tags_of([["B-X", "E-X", "O", "S-Y"]]) == [("B-X", "I-X", "O", "B-Y")]
    assert tags_of([["B-X", "L-X", "O", "U-Y"], []]) == [("B-X", "I-X", "O", "B-Y"), ()]
    assert tags_of([["NOUN", "VERB"]]) == [("NOUN", "VERB")]


@pytest.mark.parametrize(
    ("words", "tags", "reason"),
    [
        (WORDS, TAGS[:-1], "60 texts, y 59 labels"),
        ([], [], "X is empty"),
        ([["a", "b"]], [["O"]], "text 0 .*2 words, y 1 tags"),
        ([["a", 3]], [["O", "O"]], "text 0 "),
        ([["a"]], [[3]], "list of tags"),
        ([["a"]], ["O"], "list of tags"),
        ([["a"], ["b", "c"]], [["B-X"], ["O", "I-X"]], "text 1, word 2: .*I-X"),
        ([["a"], ["b"]] * 9, [["O"], ["O"]] * 9, "only one tag"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_words_and_tags_are_one_line(words: Any, tags: Any, reason: str, tiny_bert: Path) -> None:
    with pytest.raises(InputError, match=reason):
        tagger(tiny_bert).fit(words, tags)


def test_predict_wants_fit_first() -> None:
    with pytest.raises(NotFittedError):
        TextTagger().predict([["a"]])
    with pytest.raises(NotFittedError):
        TextTagger().predict_proba([["a"]])
    with pytest.raises(NotFittedError):
        TextTagger().score([["a"]], [["O"]])
