"""Small random Marians, the reference library's and ours with the same weights, that write texts of various lengths."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers

from kinfolk.checkpoints.folder import read_checkpoint
from kinfolk.nn.packed import pack
from support.tiny import MARIAN

END, UNKNOWN, PAD = 0, 1, MARIAN["pad_token_id"]
SMALL = MARIAN | {"encoder_layers": 1, "decoder_layers": 1, "eos_token_id": END, "forced_eos_token_id": None}


@cache
def both(seed: int, spread: float, end_bias: float) -> tuple[Any, Any]:
    """The reference's model and ours, in float64; the bias makes the end likely enough."""
    torch.manual_seed(seed)
    theirs = transformers.MarianMTModel(transformers.MarianConfig(**SMALL, init_std=spread)).eval()
    theirs.final_logits_bias[0, END] = end_bias
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = read_checkpoint(Path(folder)).model
    return theirs.double(), ours.double().eval()


def generated(theirs: Any, sources: list[list[int]], **options: Any) -> list[tuple[list[int], bool, float]]:
    """(ids, finished, score) of every text that the library writes, sentence after sentence."""
    batch = pack(sources)
    padded = batch.layout.pad(batch.ids, PAD)
    common = {"do_sample": False, "output_scores": True, "return_dict_in_generate": True}
    texts = theirs.generate(padded, attention_mask=padded != PAD, **common, **options)
    scores = texts.sequences_scores.tolist() if "sequences_scores" in texts else [0.0] * len(texts.sequences)
    results = []
    for row, score in zip(texts.sequences[:, 1:].tolist(), scores, strict=True):
        ids = row[: row.index(END)] if END in row else [token for token in row if token != PAD]
        results.append((ids, END in row, score))
    return results
