"""What a type checker says of the verbs: mypy reads this file (scripts/check), nothing runs it."""

from __future__ import annotations

from typing import assert_type

import numpy as np

import kinfolk
from kinfolk.api.embed import TokenVectors


def vectors(encoder: kinfolk.Encoder) -> None:
    assert_type(encoder.embed("a text"), np.ndarray)
    assert_type(encoder.embed(["a text", ("a", "pair")], pool="mean", layers=[0, 1], normalize=True), np.ndarray)
    assert_type(encoder.embed("a text", pool="none"), TokenVectors)
    assert_type(encoder.embed(["a text"], pool="none", on_long="cut"), list[TokenVectors])


def kinds(folder: str) -> None:
    assert_type(kinfolk.load_encoder(folder), kinfolk.Encoder)
    assert_type(kinfolk.load_language_model(folder), kinfolk.LanguageModel)
    assert_type(kinfolk.load_translator(folder), kinfolk.Translator)
