"""TextEmbedder is a scikit-learn transformer in every way that scikit-learn relies on."""

from __future__ import annotations

import doctest
import io
import pickle
import pickletools
import runpy
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

import kinfolk
import kinfolk.sklearn as door
from kinfolk import demo
from kinfolk.checkpoints.weights import tensors_to_bytes
from kinfolk.errors import FolderError, InputError, KinfolkError
from kinfolk.sklearn import TextEmbedder, forget_models, loaded
from support.tiny import write_sentence_encoder

TEXTS, LABELS = (column[:24] for column in demo.sentences())
FAMILIES = ("bert", "roberta", "albert", "distilbert", "mpnet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentence_encoder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
        estimator_checks.check_dont_overwrite_parameters,
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_estimator_tags_renamed,
        estimator_checks.check_estimators_fit_returns_self,
        estimator_checks.check_estimators_overwrite_params,
        estimator_checks.check_fit_check_is_fitted,
        estimator_checks.check_get_feature_names_out_error,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_mixin_order,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_set_params,
        estimator_checks.check_transformers_unfitted,
        estimator_checks.check_valid_tag_types,
    ],
    ids=lambda check: check.__name__,
)
def test_scikit_learns_own_check_passes(check: Callable[[str, TextEmbedder], None], folder: Path) -> None:
    check("TextEmbedder", TextEmbedder(folder))


def test_the_example_in_the_docstring_runs(minilm: Path) -> None:
    examples = doctest.DocTestParser().get_examples(door.__doc__ or "")
    with redirect_stdout(io.StringIO()) as printed:
        exec("".join(example.source for example in examples), {})
    # One sentence of 600 may fall on the other side on another processor.
    assert float(printed.getvalue()) == pytest.approx(float(examples[-1].want), abs=0.01)


def test_vectors_are_those_of_embed(folder: Path) -> None:
    model = kinfolk.load(folder)
    assert np.array_equal(TextEmbedder(folder).fit_transform(TEXTS), model.embed(TEXTS))
    vectors = TextEmbedder(folder, layers="concat_last_4", pool="first", normalize=True).fit_transform(TEXTS)
    assert np.array_equal(vectors, model.embed(TEXTS, "concat_last_4", "first", True))


@pytest.mark.parametrize(
    "container",
    [
        tuple,
        iter,
        np.array,
        lambda texts: np.array(texts, dtype=object),
        lambda texts: np.array(texts, dtype=object)[:, None],
        pandas.Series,
        lambda texts: pandas.Series(texts, dtype=object),
        lambda texts: pandas.DataFrame({"remark": texts}),
    ],
    ids=["tuple", "generator", "array of str", "array of objects", "column", "Series", "Series of objects", "frame"],
)
def test_every_container_gives_the_same_vectors(container: Callable[[list[str]], object], folder: Path) -> None:
    two = TEXTS[:2]
    expected = TextEmbedder(folder).fit_transform(two)
    assert expected.shape == (2, 16)
    assert np.array_equal(TextEmbedder(folder).fit_transform(container(two)), expected)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("one text", "single str"),
        (np.array("one text"), "single ndarray"),
        (7, "single int"),
        (pandas.DataFrame({"a": TEXTS, "b": TEXTS, "c": TEXTS}), r"\(24, 3\)"),
        (np.zeros((2, 1)), "text 0 .*float"),
        (pandas.Series(["a", None]), "text 1 "),
        ([["a"], ["b"]], "text 0 .*list"),
    ],
    ids=["str", "scalar", "number", "three columns", "numbers", "missing value", "nested"],
)
def test_what_is_not_texts_is_refused_in_one_line(wrong: object, reason: str, folder: Path) -> None:
    with pytest.raises(InputError, match=reason):
        TextEmbedder(folder).fit_transform(wrong)


@pytest.mark.parametrize("settings", [{"pool": "none"}, {"pool": "sum"}, {"layers": [9]}, {"device": "tpu"}], ids=str)
def test_a_meaningless_setting_is_refused_at_fit(settings: dict[str, object], folder: Path) -> None:
    with pytest.raises(InputError):
        TextEmbedder(folder).set_params(**settings).fit(TEXTS)


def test_transform_wants_fit_first_and_keeps_what_fit_saw(folder: Path) -> None:
    embedder = TextEmbedder(folder)
    with pytest.raises(NotFittedError):
        embedder.transform(TEXTS)
    embedder.fit(TEXTS).set_params(layers="concat_last_4")
    assert embedder.transform(TEXTS).shape == (24, embedder.n_features_out_) == (24, 16)
    assert embedder.fit_transform(TEXTS).shape == (24, embedder.n_features_out_) == (24, 64)
    assert embedder.transform([]).shape == (0, 64)


def test_columns_have_names(folder: Path) -> None:
    embedder = TextEmbedder(folder).fit(TEXTS)
    assert list(embedder.get_feature_names_out())[:2] == ["textembedder0", "textembedder1"]
    frame = pandas.DataFrame({"remark": TEXTS, "stars": range(24)}, index=range(100, 124))
    columns = ColumnTransformer([("text", embedder, "remark"), ("rest", "passthrough", ["stars"])])
    vectors = columns.set_output(transform="pandas").fit_transform(frame)
    assert vectors.shape == (24, 17)
    assert (vectors.index == frame.index).all()


def test_a_search_loads_the_model_once(folder: Path, loads: list[object]) -> None:
    forget_models()
    pipeline = make_pipeline(TextEmbedder(folder), LogisticRegression())
    choices = {"textembedder__layers": ["first", "last"], "textembedder__pool": ["first", "mean"]}
    search = GridSearchCV(pipeline, choices, cv=2, error_score="raise").fit(TEXTS, LABELS)
    assert len(search.cv_results_["params"]) == 4
    assert len(loads) == 1


@pytest.mark.slow
def test_a_search_runs_in_two_processes(folder: Path) -> None:
    pipeline = make_pipeline(TextEmbedder(folder), LogisticRegression())
    search = GridSearchCV(pipeline, {"textembedder__pool": ["first", "max"]}, cv=2, error_score="raise")
    alone = clone(search).fit(TEXTS, LABELS).cv_results_["mean_test_score"]
    assert np.array_equal(search.set_params(n_jobs=2).fit(TEXTS, LABELS).cv_results_["mean_test_score"], alone)


def test_a_changed_folder_is_loaded_again(tmp_path: Path) -> None:
    folder = write_sentence_encoder(tmp_path / "model")
    before = loaded(folder)
    assert loaded(str(folder)) is before
    shutil.rmtree(folder)
    write_sentence_encoder(folder, seed=1)
    assert not np.array_equal(loaded(folder).embed(TEXTS), before.embed(TEXTS))


@pytest.mark.parametrize("relative", FAMILIES)
def test_a_pickle_works_without_the_folder(relative: str, tmp_path: Path) -> None:
    folder = write_sentence_encoder(tmp_path / "model", relative)
    pipeline = make_pipeline(TextEmbedder(folder), LogisticRegression()).fit(TEXTS, LABELS)
    vectors, stored = pipeline[0].transform(TEXTS), pickle.dumps(pipeline)
    shutil.rmtree(folder)
    forget_models()
    again = pickle.loads(stored)
    assert np.array_equal(again[0].transform(TEXTS), vectors)
    assert list(again.predict(TEXTS)) == list(pipeline.predict(TEXTS))
    assert again[0].get_params() == pipeline[0].get_params()
    assert again[0].encoder_.recipe == pipeline[0].encoder_.recipe


def test_a_pickle_holds_nothing_of_torch(folder: Path) -> None:
    stored = pickle.dumps(TextEmbedder(folder).fit(TEXTS))
    texts = [argument for _, argument, _ in pickletools.genops(stored) if isinstance(argument, str)]
    assert "kinfolk.sklearn" in texts
    assert [text for text in texts if text.startswith("torch")] == []


def test_a_pickle_of_the_first_version_which_told_of_no_heads_works(folder: Path) -> None:
    embedder = TextEmbedder(folder).fit(TEXTS)
    state = embedder.__getstate__()
    state["encoder_"] = {
        name: state["encoder_"][name] for name in ("family", "config", "weights", "tokenizer", "recipe")
    }
    again = TextEmbedder.__new__(TextEmbedder)
    again.__setstate__(state)
    assert np.array_equal(again.transform(TEXTS), embedder.transform(TEXTS))


@pytest.mark.parametrize(
    ("part", "value", "reason"),
    [
        ("weights", tensors_to_bytes({"embeddings.LayerNorm.bias": torch.ones(3)}), r"missing .*tensors"),
        ("config", "none", "pickle"),
        ("recipe", {"pool": "mean", "colour": "red"}, "pickle"),
    ],
)
def test_a_damaged_pickle_is_reported_in_one_line(part: str, value: object, reason: str, folder: Path) -> None:
    fitted = TextEmbedder(str(folder)).fit(["a text"])
    state = fitted.__getstate__()
    state["encoder_"] = state["encoder_"] | {part: value}
    with pytest.raises(FolderError, match=reason):
        TextEmbedder().__setstate__(state)


def test_an_unfitted_embedder_pickles_without_weights(folder: Path) -> None:
    stored = pickle.dumps(TextEmbedder(str(folder), pool="max"))
    assert len(stored) < 1000
    assert pickle.loads(stored).pool == "max"


def test_without_scikit_learn_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(KinfolkError, match=r"scikit-learn .*pip install"):
        runpy.run_path(str(door.__file__))
