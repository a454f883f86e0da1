"""BERT and friends, one family.

>>> import kinfolk
>>> model = kinfolk.load("demo")
>>> model.embed(["A cat sits on the mat.", "A kitten rests on a rug."]).shape
(2, 384)

Importing the package is light: torch is loaded when a model is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinfolk.errors import KinfolkError

if TYPE_CHECKING:
    from kinfolk.api.finetune import finetune
    from kinfolk.api.loaded import (
        Encoder,
        LanguageModel,
        Translator,
        load,
        load_encoder,
        load_language_model,
        load_translator,
    )
    from kinfolk.api.pretrain import pretrain
    from kinfolk.api.search import Index, build_index
    from kinfolk.api.train_translator import train_translator
    from kinfolk.nn.trace import Trace
    from kinfolk.text.tokenizer import Tokenizer
    from kinfolk.text.train import train_tokenizer

__version__ = "0.1.0"
__all__ = [
    "Encoder",
    "Index",
    "KinfolkError",
    "LanguageModel",
    "Tokenizer",
    "Trace",
    "Translator",
    "__version__",
    "build_index",
    "finetune",
    "load",
    "load_encoder",
    "load_language_model",
    "load_translator",
    "pretrain",
    "train_tokenizer",
    "train_translator",
]

_HOMES = {
    "Encoder": "kinfolk.api.loaded",
    "Index": "kinfolk.api.search",
    "Tokenizer": "kinfolk.text.tokenizer",
    "Trace": "kinfolk.nn.trace",
    "Translator": "kinfolk.api.loaded",
    "build_index": "kinfolk.api.search",
    "finetune": "kinfolk.api.finetune",
    "LanguageModel": "kinfolk.api.loaded",
    "load": "kinfolk.api.loaded",
    "load_encoder": "kinfolk.api.loaded",
    "load_language_model": "kinfolk.api.loaded",
    "load_translator": "kinfolk.api.loaded",
    "pretrain": "kinfolk.api.pretrain",
    "train_tokenizer": "kinfolk.text.train",
    "train_translator": "kinfolk.api.train_translator",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kinfolk' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
