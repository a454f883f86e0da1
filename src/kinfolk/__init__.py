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
    from kinfolk.api.loaded import Encoder, load
    from kinfolk.api.pretrain import pretrain
    from kinfolk.api.search import Index, build_index
    from kinfolk.api.train_translator import train_translator
    from kinfolk.api.translator import Translator
    from kinfolk.nn.trace import Trace
    from kinfolk.text.tokenizer import Tokenizer
    from kinfolk.text.train import train_tokenizer

__version__ = "0.1.0"
__all__ = [
    "Encoder",
    "Index",
    "KinfolkError",
    "Tokenizer",
    "Trace",
    "Translator",
    "__version__",
    "build_index",
    "finetune",
    "load",
    "pretrain",
    "train_tokenizer",
    "train_translator",
]

_HOMES = {
    "Encoder": "kinfolk.api.loaded",
    "Index": "kinfolk.api.search",
    "Tokenizer": "kinfolk.text.tokenizer",
    "Trace": "kinfolk.nn.trace",
    "Translator": "kinfolk.api.translator",
    "build_index": "kinfolk.api.search",
    "finetune": "kinfolk.api.finetune",
    "load": "kinfolk.api.loaded",
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
