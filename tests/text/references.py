"""transformers' tokenizers and ours, built from the same vocabulary files, once per run."""

from __future__ import annotations

from functools import cache
from typing import Any

import transformers

from kinfolk.text.tokenizer import Tokenizer
from surroundings import shared_fixture

CLASSES = {
    "bert-base-uncased": transformers.BertTokenizer,
    "bert-base-cased": transformers.BertTokenizer,
    "bert-base-chinese": transformers.BertTokenizer,
    "roberta-base": transformers.RobertaTokenizer,
    "gpt2": transformers.GPT2Tokenizer,
    "openai-gpt": transformers.OpenAIGPTTokenizer,
    "albert-base": transformers.AlbertTokenizer,
    "xlnet-base-cased": transformers.XLNetTokenizer,
}


@cache
def both(name: str) -> tuple[Tokenizer, Any]:
    folder = shared_fixture(f"vocab/{name}")
    said = {"do_lower_case": False} if name == "bert-base-cased" else {}  # ours sees the capitals of the vocabulary
    return Tokenizer.load(folder), CLASSES[name].from_pretrained(str(folder), **said)
