"""BERT and friends, one family.

>>> import kinfolk
>>> model = kinfolk.load("demo")
>>> model.embed(["A cat sits on the mat.", "A kitten rests on a rug."]).shape
(2, 384)

Importing the package is light: torch is loaded when a model is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kinfolk.errors import KinfolkError as KinfolkError

if TYPE_CHECKING:
    from kinfolk.api.finetune import finetune as finetune
    from kinfolk.api.loaded import Encoder as Encoder
    from kinfolk.api.loaded import LanguageModel as LanguageModel
    from kinfolk.api.loaded import Translator as Translator
    from kinfolk.api.loaded import load as load
    from kinfolk.api.loaded import load_encoder as load_encoder
    from kinfolk.api.loaded import load_language_model as load_language_model
    from kinfolk.api.loaded import load_translator as load_translator
    from kinfolk.api.pretrain import pretrain as pretrain
    from kinfolk.api.search import Index as Index
    from kinfolk.api.search import build_index as build_index
    from kinfolk.api.train_translator import train_translator as train_translator
    from kinfolk.nn.trace import Trace as Trace
    from kinfolk.text.tokenizer import Tokenizer as Tokenizer
    from kinfolk.text.train import train_tokenizer as train_tokenizer

__version__ = "0.1.0"

_LOADERS = ("load", "load_encoder", "load_language_model", "load_translator")
_HOMES = {
    **dict.fromkeys(("Encoder", "LanguageModel", "Translator", *_LOADERS), "kinfolk.api.loaded"),
    **dict.fromkeys(("Index", "build_index"), "kinfolk.api.search"),
    **{name: f"kinfolk.api.{name}" for name in ("finetune", "pretrain", "train_translator")},
    "Tokenizer": "kinfolk.text.tokenizer",
    "Trace": "kinfolk.nn.trace",
    "train_tokenizer": "kinfolk.text.train",
}
__all__ = sorted([*_HOMES, "KinfolkError", "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kinfolk' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
