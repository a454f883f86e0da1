"""Tokens per second of training a translator: kinfolk beside transformers' Marian, same weights, pairs and batches.

Tasks are "shuffled" and "sorted" (batches of pairs of similar length, so that little is padded), and "check": the first
losses without dropout, which must agree.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bench.harness import DATA, ROOT, Run

FOLDER = ROOT / "runs" / "translate-bench"
START, PAIRS = FOLDER / "start", FOLDER / "pairs.json"  # the weights to begin with, and the ids of all pairs
VOCABULARY, BATCH, STEPS, STRETCH, CHECKED = 8_000, 128, 16, 50, 4
RATE, BETAS, CLIP = 5e-4, (0.9, 0.98), 1.0
SHAPE = {
    "vocabulary_size": VOCABULARY, "pad_id": VOCABULARY - 1, "start_id": VOCABULARY - 1, "end_id": 0, "width": 256,
    "encoder_layers": 3, "decoder_layers": 3, "heads": 4, "inner_width": 1024, "activation": "silu", "dropout": 0.1,
}  # fmt: skip

Pair = tuple[list[int], list[int]]
Learn = Callable[[list[Pair]], float]  # a batch -> its loss


def lines(name: str) -> list[str]:
    """A file of Multi30k."""
    return (DATA / "multi30k" / name).read_text(encoding="utf-8").splitlines()


def prepare() -> None:
    """Learn a vocabulary, and write the pairs' ids and weights that every contestant starts from."""
    from kinfolk.checkpoints.folder import TextModel, write_checkpoint
    from kinfolk.models.family import family as family_of
    from kinfolk.models.family import init_model
    from kinfolk.models.marian import MarianConfig
    from kinfolk.text.marian import as_marian
    from kinfolk.text.train import train_pair_tokenizer

    texts = lines("train.en"), lines("train.de")
    words, _ = as_marian(train_pair_tokenizer("bpe", *texts, VOCABULARY + 1), 512)  # one is lost: the start pads
    ids = [(words.encode_source(one), words.encode_target(other)) for one, other in zip(*texts, strict=True)]
    shutil.rmtree(START, ignore_errors=True)
    START.mkdir(parents=True)
    PAIRS.write_text(json.dumps(ids))
    model: Any = init_model(family_of("marian"), MarianConfig.make(**SHAPE))
    model.body.token_embedding.weight.data[-1] = 0.0
    write_checkpoint(START, TextModel(model))


@cache
def batches(task: str) -> list[list[Pair]]:
    """The batches of a task, the same in every process."""
    rows: list[Pair] = json.loads(PAIRS.read_text())
    random.Random(0).shuffle(rows)
    if task == "sorted":
        stretch = sorted(rows[: STRETCH * BATCH], key=lambda pair: len(pair[0]) + len(pair[1]))
        cut = [stretch[start : start + BATCH] for start in range(0, len(stretch), BATCH)]
        return [cut[index * STRETCH // STEPS] for index in range(STEPS)]
    steps = CHECKED if task == "check" else STEPS
    return [rows[start * BATCH : (start + 1) * BATCH] for start in range(steps)]


def tokens(task: str) -> int:
    """Of both sides, their ends included; what pads is not counted."""
    return sum(len(side) for batch in batches(task) for pair in batch for side in pair)


def padding(task: str) -> float:
    """The share of paths that pad when a batch is a rectangle on each side."""
    sides = [[pair[side] for pair in batch] for batch in batches(task) for side in (0, 1)]
    slots = sum(len(rows) * max(map(len, rows)) for rows in sides)
    return 1 - tokens(task) / slots


def contestant(begin: Callable[[float], Learn], tuned: bool) -> Run:
    """Every task begins anew, with dropout but for the check; `tuned` asks for our commands' allocator setting."""
    from kinfolk.machine import tune

    if tuned:
        tune()

    def run(task: str) -> np.ndarray:
        learn = begin(0.0 if task == "check" else float(SHAPE["dropout"]))
        return np.array([learn(batch) for batch in batches(task)])

    return run


def run_kinfolk(tuned: bool = True) -> Run:
    import dataclasses

    from kinfolk.checkpoints.folder import read_checkpoint
    from kinfolk.models.family import Model
    from kinfolk.models.transformer import FAMILY, TransformerConfig
    from kinfolk.objectives.translation import Translate, pair_sample
    from kinfolk.training.distributed import world
    from kinfolk.training.settings import TrainSettings
    from kinfolk.training.step import TrainStep

    settings = TrainSettings(max_grad_norm=CLIP).but(learning_rate=RATE, betas=BETAS, weight_decay=0.0)
    start = read_checkpoint(Path(START)).model.state_dict()
    del start["heads.next_token.bias"]  # of zeros, and transformers does not train it
    config = TransformerConfig.make(**SHAPE, sinusoid="halves", zero_start=True)

    def begin(dropout: float) -> Learn:
        model = Model(FAMILY, dataclasses.replace(config, dropout=dropout))
        model.load_state_dict(start)
        learner = TrainStep(model, Translate(config.start_id, smoothing=0.0), settings, world())
        learner.unfreeze(0)

        def learn(batch: list[Pair]) -> float:
            items = [pair_sample(*pair, index) for index, pair in enumerate(batch)]
            losses = learner.step([items], factor=1.0)
            return float("nan") if losses is None else losses.total

        return learn

    return contestant(begin, tuned)


def run_transformers(tuned: bool = False) -> Run:
    import torch
    from torch.nn.utils.rnn import pad_sequence
    from transformers import MarianMTModel, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()

    def padded(rows: list[list[int]], fill: int) -> torch.Tensor:
        return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=fill)

    def begin(dropout: float) -> Learn:
        model = MarianMTModel.from_pretrained(START, dropout=dropout, attn_implementation="sdpa").train()
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(weights, lr=RATE, betas=BETAS, weight_decay=0.0, fused=True)

        def learn(batch: list[Pair]) -> float:
            sources, targets = ([pair[side] for pair in batch] for side in (0, 1))
            ids = padded(sources, model.config.pad_token_id)
            mask = padded([[1] * len(row) for row in sources], 0)
            loss = model(input_ids=ids, attention_mask=mask, labels=padded(targets, -100), use_cache=False).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, CLIP)
            optimizer.step()
            optimizer.zero_grad()
            return float(loss.detach())

        return learn

    return contestant(begin, tuned)


CONTESTANTS = {
    "kinfolk": run_kinfolk,
    "kinfolk, allocator untouched": lambda: run_kinfolk(tuned=False),
    "transformers, padded": run_transformers,
    "transformers, padded, with our allocator setting": lambda: run_transformers(tuned=True),
}
