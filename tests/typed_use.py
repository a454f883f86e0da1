"""What a type checker says of the verbs: mypy reads this file (scripts/check), nothing runs it."""

from __future__ import annotations

from typing import assert_type

import numpy as np

import kinfolk
from kinfolk.api.embed import TokenVectors
from kinfolk.api.translate import Translation
from kinfolk.tasks.answer import Answer
from kinfolk.tasks.choice import Chosen
from kinfolk.tasks.tag import Tagged
from kinfolk.tasks.text import Prediction


def vectors(encoder: kinfolk.Encoder) -> None:
    assert_type(encoder.embed("a text"), np.ndarray)
    assert_type(encoder.embed(["a text", ("a", "pair")], pool="mean", layers=[0, 1], normalize=True), np.ndarray)
    assert_type(encoder.embed("a text", pool="none"), TokenVectors)
    assert_type(encoder.embed(["a text"], pool="none", on_long="cut"), list[TokenVectors])


def heads(encoder: kinfolk.Encoder) -> None:
    assert_type(encoder.classify("a text"), Prediction)
    assert_type(encoder.classify(("a", "pair")), Prediction)
    assert_type(encoder.classify(["a text", ("a", "pair")]), list[Prediction])
    assert_type(encoder.tag("a text"), Tagged)
    assert_type(encoder.tag(["a text"]), list[Tagged])
    assert_type(encoder.tag(["a", "text"], words=True), Tagged)
    assert_type(encoder.tag([["a", "text"]], words=True), list[Tagged])
    assert_type(encoder.answer("who?", "she", top=2), list[Answer])
    assert_type(encoder.answer([("who?", "she")], top=2), list[list[Answer]])
    assert_type(encoder.choose("either", ["or", "both"]), Chosen)
    assert_type(encoder.choose([("either", ("or", "both"))]), list[Chosen])


def texts(writer: kinfolk.LanguageModel, translator: kinfolk.Translator) -> None:
    assert_type(writer.generate(), str)
    assert_type(writer.generate("a prompt", 9, seed=1), str)
    assert_type(writer.generate(["a prompt"], beam=4), list[str])
    assert_type(translator.translate("a text", beam=1, max_tokens=9), str)
    assert_type(translator.translate(["a text"]), list[str])
    assert_type(translator.translate("a text", n_best=2), list[Translation])
    assert_type(translator.translate(["a text"], n_best=2), list[list[Translation]])


def kinds(folder: str) -> None:
    assert_type(kinfolk.load_encoder(folder), kinfolk.Encoder)
    assert_type(kinfolk.load_language_model(folder), kinfolk.LanguageModel)
    assert_type(kinfolk.load_translator(folder), kinfolk.Translator)
