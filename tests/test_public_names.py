"""What users may rely on: the public names, and that folders saved by earlier versions still load."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

import kinfolk

SAVED = Path(__file__).parent / "saved"


def test_the_public_names_are_these() -> None:
    classes = ["Encoder", "Index", "KinfolkError", "LanguageModel", "Tokenizer", "Trace", "Translator"]
    loaders = ["load", "load_encoder", "load_language_model", "load_translator"]
    functions = ["build_index", "finetune", *loaders, "pretrain", "train_tokenizer", "train_translator"]
    assert kinfolk.__all__ == [*classes, "__version__", *functions]
    assert dir(kinfolk) == sorted(kinfolk.__all__)
    assert all(hasattr(kinfolk, name) for name in kinfolk.__all__)


def test_the_verbs_and_their_arguments_are_these() -> None:
    verbs = {
        name: list(inspect.signature(verb).parameters)[1:]
        for name, verb in inspect.getmembers(kinfolk.LanguageModel, inspect.isfunction)
        if not name.startswith("_")
    }
    assert verbs == {
        "answer": ["question", "context", "top"],
        "choose": ["context", "options"],
        "classify": ["texts"],
        "embed": ["texts", "layers", "pool", "normalize", "on_long", "trace", "window", "stride"],
        "embed_settings": ["layers", "pool", "normalize", "on_long", "window", "stride"],
        "embed_stream": ["texts", "settings", "report"],
        "embed_width": ["settings"],
        "fill": ["text", "top", "pieces", "words"],
        "info": [],
        "generate": [
            "prompts",
            "max_tokens",
            "temperature",
            "top_k",
            "top_p",
            "seed",
            "beam",
            "length_penalty",
            "slide",
        ],
        "next_sentence": ["first", "second"],
        "perplexity": ["texts"],
        "save": ["folder", "card"],
        "sentence_order": ["first", "second"],
        "stream": ["prompt", "max_tokens", "temperature", "top_k", "top_p", "seed", "slide"],
        "tag": ["texts", "words"],
        "to": ["device"],
    }
    translator = {
        name: list(inspect.signature(verb).parameters)[1:]
        for name, verb in inspect.getmembers(kinfolk.Translator, inspect.isfunction)
        if not name.startswith("_")
    }
    drawn = ["temperature", "top_k", "top_p", "seed"]
    assert translator == {
        "align": ["source", "target", "pieces"],
        "info": [],
        "save": ["folder", "card"],
        "to": ["device"],
        "translate": [
            "texts",
            "beam",
            "length_penalty",
            "n_best",
            *drawn,
            "max_tokens",
            "copy_unknown",
            "penalty",
            "early_stopping",
        ],
        "translate_settings": ["n_best", "options"],
        "translate_stream": ["texts", "settings"],
    }
    assert list(inspect.signature(kinfolk.load).parameters) == ["name_or_path", "device", "allow_pickle"]


@pytest.mark.parametrize("folder", sorted(path.name for path in SAVED.iterdir()))
def test_a_folder_saved_by_an_earlier_version_gives_the_same_vectors(folder: str) -> None:
    model = kinfolk.load(SAVED / folder / "model", device="cpu")
    expected = np.load(SAVED / folder / "vectors.npy")
    texts = (SAVED / folder / "texts.txt").read_text(encoding="utf-8").splitlines()
    assert np.abs(model.embed(texts) - expected).max() < 1e-6
