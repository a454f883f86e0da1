"""X and y in whatever form they come; wrong ones are refused in one line."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from salt_and_sand import classifier, regressor, texts
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import MultiLabelBinarizer

from kinfolk.errors import InputError, KinfolkError
from kinfolk.sklearn.estimators import LISTS, ONE, TABLE, labels_of, numbers_of, texts_of
from kinfolk.tasks.text import FormWarning

TEXTS, LABELS = texts(24)
PAIRS = [(first, second) for first, second in zip(TEXTS, reversed(TEXTS), strict=True)]


class Taste(enum.Enum):
    SANDY = "b"
    SALTY = "a"


@pytest.mark.parametrize(
    "container",
    [tuple, iter, np.array, pandas.Series, lambda rows: pandas.DataFrame({"remark": rows})],
    ids=["tuple", "generator", "array", "Series", "frame"],
)
def test_every_container_holds_the_same_texts(container: Callable[[list[str]], object]) -> None:
    assert texts_of(container(TEXTS)) == TEXTS


@pytest.mark.parametrize(
    "container",
    [list, lambda rows: [list(pair) for pair in rows], np.array, pandas.Series, pandas.DataFrame],
    ids=["tuples", "lists", "array", "Series", "frame"],
)
def test_two_texts_are_a_pair_in_every_container(container: Callable[[list[tuple[str, str]]], object]) -> None:
    assert texts_of(container(PAIRS)) == PAIRS


def test_pairs_are_learned_from_a_frame_and_evaluated_from_a_list(tiny_bert: Path) -> None:
    model = classifier(tiny_bert).fit(pandas.DataFrame(PAIRS), pandas.Series(LABELS))
    assert model.predict(PAIRS).shape == (24,)
    with pytest.warns(FormWarning, match="text 0"):
        alone = model.predict_proba(TEXTS)
    assert not np.array_equal(model.predict_proba(PAIRS), alone)


@pytest.mark.parametrize(
    ("salty", "sandy", "kind"),
    [
        ("salty", "sandy", np.str_),
        (2, 10, np.int64),  # as text "10" would come first
        (True, False, np.bool_),
        (1.0, 3.0, np.float64),
        (Taste.SALTY, Taste.SANDY, np.object_),
    ],
    ids=["str", "int", "bool", "float", "enum"],
)
def test_labels_keep_their_type_and_stand_in_order(salty: Any, sandy: Any, kind: type, tiny_bert: Path) -> None:
    labels = [{"salty": salty, "sandy": sandy}[label] for label in LABELS]
    model = classifier(tiny_bert, validation_fraction=0).fit(TEXTS, labels)
    key: Any = str if isinstance(salty, Taste) else None
    assert model.classes_.tolist() == sorted([salty, sandy], key=key)
    assert model.classes_.dtype.type is kind
    predictions = model.predict(TEXTS)
    assert predictions.dtype == model.classes_.dtype
    assert model.score(TEXTS, labels) == np.mean([one == other for one, other in zip(predictions, labels, strict=True)])


def test_arrays_keep_their_own_kind_of_number() -> None:
    assert labels_of(np.array([3, 1, 3], dtype=np.int8)).classes.dtype == np.int8
    assert labels_of(pandas.Series(["b", "a"], dtype=object)).classes.tolist() == ["a", "b"]
    assert labels_of(pandas.Series(["b", "a"], dtype="category")).classes.tolist() == ["a", "b"]
    assert labels_of(pandas.DataFrame({"label": [1, 0]})).rows == [1, 0]


def test_several_labels_are_inferred_from_their_form() -> None:
    lists = [["b", "a"], [], ("c",), {"a"}]
    table = [[0, 1], [1, 1], [0, 0], [1, 0]]
    labels = labels_of(lists)
    assert (labels.form, labels.classes.tolist()) == (LISTS, ["a", "b", "c"])
    assert labels.rows == [("b", "a"), (), ("c",), ("a",)]
    for value in (table, np.array(table), np.array(table, dtype=bool)):
        labels = labels_of(value)
        assert (labels.form, labels.classes.tolist()) == (TABLE, [0, 1])
        assert labels.rows == [(1,), (0, 1), (), (0,)]
    assert labels_of(pandas.DataFrame(table, columns=["x", "y"])).rows[0] == ("y",)
    assert labels_of([0, 1, 1]).form == ONE


def test_predictions_of_several_labels_have_the_form_that_fit_saw(tiny_bert: Path) -> None:
    lists = [[label, "watery"] if "water" in text else [label] for text, label in zip(TEXTS, LABELS, strict=True)]
    binarizer = MultiLabelBinarizer()
    table = binarizer.fit_transform(lists)
    of_lists = classifier(tiny_bert, epochs=8).fit(TEXTS, lists)
    of_table = classifier(tiny_bert, epochs=8).fit(TEXTS, np.hstack([table, np.zeros((24, 1), dtype=int)]))
    assert of_lists.classes_.tolist() == ["salty", "sandy", "watery"]
    assert of_table.classes_.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(of_table.predict_proba(TEXTS)[:, :3], of_lists.predict_proba(TEXTS))
    assert (of_table.predict_proba(TEXTS)[:, 3] == 0).all()  # no text had this label
    np.testing.assert_array_equal(binarizer.transform(of_lists.predict(TEXTS)), of_table.predict(TEXTS)[:, :3])
    assert of_lists.score(TEXTS, lists) == np.mean((of_table.predict(TEXTS)[:, :3] == table).all(1))


def test_several_labels_can_be_cross_validated_as_a_table(tiny_bert: Path) -> None:
    table = np.array([[label == "salty", "water" in text] for text, label in zip(TEXTS, LABELS, strict=True)], int)
    model = classifier(tiny_bert, validation_fraction=0)
    for scoring in (None, "f1_micro"):
        assert np.isfinite(cross_val_score(model, TEXTS, table, cv=2, scoring=scoring, error_score="raise")).all()


def test_class_weights_are_given_by_label_in_its_own_type(tiny_bert: Path) -> None:
    numbers = [7 if label == "salty" else 3 for label in LABELS]
    rare = TEXTS[:2] + TEXTS[3::2], numbers[:2] + numbers[3::2]  # one text of 13 is a 7
    plain, balanced, heavy = (
        classifier(tiny_bert, epochs=2, validation_fraction=0, class_weight=weight).fit(*rare).predict_proba(TEXTS)
        for weight in (None, "balanced", {7: 100.0})
    )
    assert plain[:, 1].mean() < balanced[:, 1].mean() < heavy[:, 1].mean()


@pytest.mark.parametrize(
    ("inputs", "labels", "reason"),
    [
        (TEXTS, LABELS[:-1], "24 texts, y 23 labels"),
        ([], [], "X is empty"),
        ("one text", ["salty"], "single str"),
        ({"text": TEXTS}, LABELS, "single dict"),
        (TEXTS, "salty", "single str"),
        (TEXTS, None, "single NoneType"),
        (TEXTS, ["salty"] * 24, "only one class"),
        ([*TEXTS[:-1], None], LABELS, "text 23 .*NoneType"),
        (pandas.Series([*TEXTS[:-1], float("nan")]), LABELS, "text 23 .*float"),
        (np.zeros((24, 3)), LABELS, r"X .*\(24, 3\)"),
        (TEXTS, [*LABELS[:-1], None], "label 23 "),
        (TEXTS, pandas.Series([*LABELS[:-1], None]), "label 23 "),
        (TEXTS, [float("nan")] * 24, "label 0 .*missing"),
        (TEXTS, [0.5] * 24, "label 0 .*0.5.*TextRegressor"),
        (TEXTS, [*LABELS[:-1], 3], "int, str"),
        (TEXTS, [*LABELS[:-1], ["salty"]], "items 0 and 23"),
        (TEXTS, [{"a": 1}] * 24, "label 0 .*dict"),
        (TEXTS, np.full((24, 2), 7), "y .*table"),
        (TEXTS, [[]] * 24, "no text"),
        (TEXTS[:2], LABELS[:2], "2 texts"),
    ],
    ids=str,
)
def test_wrong_texts_and_labels_are_refused_in_one_line(inputs: Any, labels: Any, reason: str, tiny_bert: Path) -> None:
    with pytest.raises(KinfolkError, match=reason) as caught:
        classifier(tiny_bert).fit(inputs, labels)
    assert "\n" not in str(caught.value)


def test_wrong_class_weights_are_refused(tiny_bert: Path) -> None:
    for weight, labels, reason in (
        ({"sweet": 2.0}, LABELS, "sweet"),
        ("balance", LABELS, "balanced"),
        ({"salty": 0.0}, LABELS, "salty=0.0"),
    ):
        with pytest.raises(InputError, match=reason):
            classifier(tiny_bert, class_weight=weight).fit(TEXTS, labels)


def test_numbers_are_read_and_what_is_none_is_refused(tiny_bert: Path) -> None:
    for numbers in ([1, 2], (1.0, 2), np.array([[1], [2]], dtype=np.int16), pandas.Series([1, 2], dtype="Int64")):
        assert numbers_of(numbers) == [1.0, 2.0]
    for wrong in ([1.0, None], [1.0, "2"], [True, 1.0], [1.0, float("inf")], pandas.Series([1, None], dtype="Int64")):
        with pytest.raises(InputError, match=r"label \d"):
            numbers_of(wrong)
    with pytest.raises(InputError, match=r"y .*\(3, 2\)"):
        numbers_of(np.zeros((3, 2)))
    with pytest.raises(InputError, match="24 texts, y 2 labels"):
        regressor(tiny_bert).fit(TEXTS, [1, 2])


def test_errors_on_the_held_out_part_are_in_the_units_of_y(tiny_bert: Path) -> None:
    small, large = (
        regressor(tiny_bert).fit(TEXTS, [size * index for index in range(24)]).validation_metrics_ for size in (1, 1000)
    )
    for name in ("mean_absolute_error", "root_mean_squared_error"):
        assert large[name] == pytest.approx(1000 * small[name], rel=1e-3)
    assert large["pearson"] == pytest.approx(small["pearson"], rel=1e-3)


def test_nothing_in_gives_nothing_out(tiny_bert: Path) -> None:
    model = classifier(tiny_bert).fit(TEXTS, LABELS)
    assert model.predict([]).shape == (0,)
    assert model.predict_proba([]).shape == (0, 2)
    assert regressor(tiny_bert).fit(TEXTS, range(24)).predict([]).shape == (0,)
