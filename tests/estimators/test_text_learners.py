"""The trained estimators are scikit-learn's in every way that its tools rely on."""

from __future__ import annotations

import io
import pickle
import pickletools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from salt_and_sand import classifier, regressor, texts
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

import kinfolk
from kinfolk.errors import InputError
from kinfolk.sklearn import TextClassifier, TextRegressor, base, forget_models
from kinfolk.training.settings import TrainSettings

TEXTS, LABELS = texts()
NUMBERS = [100.0 + 20.0 * (label == "salty") for label in LABELS]


@pytest.mark.parametrize("kind", [TextClassifier, TextRegressor])
@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_estimator_tags_renamed,
        estimator_checks.check_estimators_unfitted,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_mixin_order,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_set_params,
        estimator_checks.check_valid_tag_types,
    ],
    ids=lambda check: check.__name__,
)
def test_scikit_learns_own_check_passes(check: Callable[[str, Any], None], kind: type[Any], tiny_bert: Path) -> None:
    check(kind.__name__, kind(tiny_bert))


def test_they_are_what_scikit_learn_takes_them_for() -> None:
    assert is_classifier(TextClassifier())
    assert is_regressor(TextRegressor())
    for estimator in (TextClassifier(), TextRegressor()):
        with pytest.raises(NotFittedError):
            estimator.predict(["water"])


def test_a_classifier_learns(tiny_bert: Path) -> None:
    model = classifier(tiny_bert, epochs=6, learning_rate=3e-3).fit(*texts(96))
    assert model.score(*texts(seed=1)) > 0.9
    assert model.validation_metrics_["accuracy"] > 0.7
    chances = model.predict_proba(TEXTS)
    assert list(model.classes_) == ["salty", "sandy"]
    assert np.abs(chances.sum(1) - 1).max() < 1e-12
    assert (model.classes_[chances.argmax(1)] == model.predict(TEXTS)).all()
    said = model.encoder_.classify(TEXTS)
    assert [guess.label for guess in said] == model.predict(TEXTS).tolist()
    np.testing.assert_allclose(chances[:, 1], [guess.probabilities["sandy"] for guess in said], atol=1e-6)


def test_a_regressor_learns_numbers_of_any_size(tiny_bert: Path) -> None:
    model = regressor(tiny_bert, epochs=12, validation_fraction=0).fit(TEXTS, NUMBERS)
    assert model.score(TEXTS, NUMBERS) > 0.7
    predictions = model.predict(TEXTS)
    assert np.abs(predictions - NUMBERS).mean() < 10
    np.testing.assert_allclose(predictions, [guess.value for guess in model.encoder_.classify(TEXTS)], rtol=1e-5)


def test_the_same_seed_gives_the_same_model_and_another_one_another(tiny_bert: Path) -> None:
    first, again, other = (
        classifier(tiny_bert, random_state=state).fit(TEXTS, LABELS).predict_proba(TEXTS)
        for state in (7, np.int64(7), np.random.RandomState(7))
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_every_parameter_reaches_the_training(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    train = base.finetune
    monkeypatch.setattr(base, "finetune", lambda *arguments, **named: calls.append(named) or train(*arguments, **named))
    changes = {
        "epochs": 0.5,
        "batch_size": 6,
        "learning_rate": 2e-3,
        "schedule": "constant",
        "layer_decay": 0.9,
        "freeze": 1,
        "gradual_unfreezing": 0.25,
    }
    others = {"random_state": 3, "window": 8, "stride": 2, "validation_fraction": 0.25, "class_weight": "balanced"}
    classifier(tiny_bert, **changes, **others).fit(TEXTS, LABELS)
    (call,) = calls
    assert call["settings"] == TrainSettings().but(seed=3, **changes)
    assert (call["window"], call["stride"], call["class_weights"]) == (8, 2, "balanced")
    assert len(call["dev"]) == pytest.approx(48 / 4, abs=1)


def test_without_a_validation_fraction_the_last_weights_are_kept(tiny_bert: Path) -> None:
    model = classifier(tiny_bert, epochs=8, validation_fraction=0).fit(TEXTS, LABELS)
    assert model.validation_metrics_ == {}
    assert model.score(TEXTS, LABELS) > 0.9


def test_a_search_over_two_parameters_loads_the_model_once(tiny_bert: Path, loads: list[object]) -> None:
    forget_models()
    choices = {"textclassifier__learning_rate": np.array([1e-4, 1e-3]), "textclassifier__batch_size": [16, 24]}
    pipeline = make_pipeline(FunctionTransformer(), classifier(tiny_bert, validation_fraction=0))
    search = GridSearchCV(pipeline, choices, cv=2, error_score="raise").fit(TEXTS[:24], LABELS[:24])
    assert len(search.cv_results_["params"]) == 4
    assert search.predict_proba(TEXTS).shape == (48, 2)
    assert loads.count(str(tiny_bert.resolve())) == 1  # the others are those that were trained


def test_cross_validation_scores_with_any_scorer(tiny_bert: Path) -> None:
    for estimator, truth, scoring in (
        (classifier(tiny_bert, validation_fraction=0), LABELS, "neg_log_loss"),
        (regressor(tiny_bert, validation_fraction=0), NUMBERS, None),
    ):
        scores = cross_val_score(estimator, np.array(TEXTS), truth, cv=2, scoring=scoring, error_score="raise")
        assert np.isfinite(scores).all()


def dumped_by_joblib(model: object) -> object:
    stream = io.BytesIO()
    joblib.dump(model, stream)
    stream.seek(0)
    return joblib.load(stream)


@pytest.mark.parametrize("copied", [lambda model: pickle.loads(pickle.dumps(model)), dumped_by_joblib])
def test_a_pickle_says_the_same_without_the_model_folder(
    copied: Callable[[Any], Any], tiny_bert: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_bert, tmp_path / "model")
    models = [classifier(folder).fit(TEXTS, LABELS), regressor(folder).fit(TEXTS, NUMBERS)]
    shutil.rmtree(folder)
    for model in models:
        again = copied(model)
        assert np.array_equal(again.predict(TEXTS), model.predict(TEXTS))
        assert again.get_params() == model.get_params()
        assert again.encoder_.hf_config == model.encoder_.hf_config
    assert np.array_equal(copied(models[0]).predict_proba(TEXTS), models[0].predict_proba(TEXTS))


def test_a_pickle_holds_nothing_of_torch(tiny_bert: Path) -> None:
    stored = pickle.dumps(classifier(tiny_bert).fit(TEXTS, LABELS))
    names = [argument for _, argument, _ in pickletools.genops(stored) if isinstance(argument, str)]
    assert "kinfolk.sklearn" in names
    assert [name for name in names if name.startswith("torch")] == []


def test_the_trained_model_can_be_saved_for_everyone(tiny_bert: Path, tmp_path: Path) -> None:
    model = classifier(tiny_bert).fit(TEXTS, LABELS)
    model.encoder_.save(tmp_path / "model")
    again = kinfolk.load(tmp_path / "model", device="cpu")
    assert [guess.label for guess in again.classify(TEXTS)] == model.predict(TEXTS).tolist()


def test_fit_is_quiet_unless_asked_and_leaves_nothing_behind(
    tiny_bert: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = clone(classifier(tiny_bert)).fit(TEXTS, LABELS)
    assert capfd.readouterr() == ("", "")
    clone(before).set_params(verbose=True).fit(TEXTS, LABELS)
    output = capfd.readouterr().out
    assert "examples   " in output
    assert "accuracy" in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"epochs": "3"}, "epochs=3"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"schedule": "linaer"}, "linaer"),
        ({"validation_fraction": 1.0}, "validation_fraction=1.0"),
        ({"random_state": "seven"}, "random_state: 'seven'"),
        ({"device": "tpu"}, "device='tpu'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_meaningless_setting_is_refused_at_fit(wrong: dict[str, Any], reason: str, tiny_bert: Path) -> None:
    with pytest.raises(InputError, match=reason):
        classifier(tiny_bert).set_params(**wrong).fit(TEXTS, LABELS)
