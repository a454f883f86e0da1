"""Folders as published translation models have them, with small sentencepiece models trained here."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path

import sentencepiece
from small_tokenizers import SENTENCES

from kinfolk.text.sentencepiece import CONTROL, parse_spiece

SOURCE = [text for text in SENTENCES if text.isascii()] * 3
TARGET = [text for text in SENTENCES if not text.isascii()] * 4
CODES = (">>fra<<", ">>deu<<")


@cache
def trained(side: str, kind: str) -> bytes:
    """A sentencepiece model of one language."""
    written, texts = io.BytesIO(), {"source": SOURCE, "target": TARGET}[side]
    options = {"vocab_size": 90, "model_type": kind, "character_coverage": 0.98, "num_threads": 1, "minloglevel": 3}
    options["hard_vocab_limit"] = kind != "unigram"
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=written, **options)
    return written.getvalue()


def marian_folder(folder: Path, kind: str = "unigram", separate: bool = False) -> Path:
    """source.spm, target.spm, vocab.json (target_vocab.json) and tokenizer_config.json."""
    pieces = {}
    for side in ("source", "target"):
        content = trained(side, kind)
        (folder / f"{side}.spm").write_bytes(content)
        model = parse_spiece(content, side)
        pieces[side] = [piece.text for piece in model.pieces if piece.kind != CONTROL]
    lists = {"vocab.json": [*pieces["source"], *pieces["target"]]}
    if separate:
        lists = {"vocab.json": pieces["source"], "target_vocab.json": pieces["target"]}
    for name, tokens in lists.items():
        ordered = dict.fromkeys(["</s>", "<unk>", "<pad>", *CODES, *tokens])
        (folder / name).write_text(json.dumps({token: index for index, token in enumerate(ordered)}))
    settings = {"tokenizer_class": "MarianTokenizer", "source_lang": "eng", "target_lang": "fra"}
    settings |= {"model_max_length": 512, "separate_vocabs": separate}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
