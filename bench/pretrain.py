"""Tokens per second of BERT's pre-training: kinfolk beside transformers' BertForPreTraining, same weights and batches.

Masks and pairs are drawn once, so that every contestant sees the same. Tasks are the sizes of the vocabulary, and
"check": the first losses without dropout, which must agree.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from bench.harness import DATA, GOAL_HEADER, ROOT, Run, compete, goal_cells, table, write_result

FOLDER = ROOT / "runs" / "pretrain-bench"
CORPUS = DATA / "wikipedia" / "plain.txt"
DOCUMENTS, BATCH, LENGTH, STEPS, CHECKED, ROUNDS = 200, 16, 128, 20, 3, 5
SHAPE = {"width": 256, "layers": 4, "heads": 4, "inner_width": 1024, "positions": LENGTH}
VOCABULARIES = {"30k": 30_522, "8k": 8_000}
RATE, DECAY, BETAS, CLIP = 1e-4, 0.01, (0.9, 0.999), 1.0
DEFAULTS, BEST = "transformers", "transformers, fused AdamW, no dropout"
OURS, OURS_PLAIN = "kinfolk", "kinfolk, no dropout"
FLOORS = {DEFAULTS: (2.0, 2.4), BEST: (1.8, 2.1)}  # at 30k
SMALL_FLOOR = (1.6, 2.0)  # at 8k

Learn = Callable[[Any], float]  # a batch -> its loss


def prepare() -> None:
    """Learn the small vocabulary, and write the weights that every contestant starts from."""
    from kinfolk.checkpoints.folder import TextModel, write_checkpoint
    from kinfolk.data.corpus import read_documents
    from kinfolk.models.family import family, init_model
    from kinfolk.text.train import train_tokenizer

    shutil.rmtree(FOLDER, ignore_errors=True)
    bert = family("bert")
    train_tokenizer("wordpiece", read_documents(CORPUS)[:DOCUMENTS], VOCABULARIES["8k"]).save(FOLDER / "tokenizer")
    for name, size in VOCABULARIES.items():
        (FOLDER / name).mkdir(parents=True)
        config = bert.config.make(vocabulary_size=size, **SHAPE)
        model = init_model(bert, config, 0, {"masked_lm": 0, "next_sentence": 2})
        write_checkpoint(FOLDER / name, TextModel(model))


@cache
def batches(count: int) -> list[Any]:
    """The same masked pairs in every process; ids of the small vocabulary serve the large one as well."""
    import torch

    from kinfolk.data.corpus import encode_corpus, read_documents
    from kinfolk.objectives.masked_lm import MaskedLm
    from kinfolk.objectives.sentence_pairs import SentencePairs
    from kinfolk.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(FOLDER / "tokenizer", "bert")
    corpus = encode_corpus(tokenizer, read_documents(CORPUS)[:DOCUMENTS], sentences=True)
    pairs, objective = SentencePairs(corpus, tokenizer, LENGTH, BATCH, seed=0), MaskedLm(tokenizer, 2)
    generator = torch.Generator().manual_seed(0)
    return [
        objective.prepare([pairs[index] for index in pairs.batch(step)], torch.device("cpu"), generator)
        for step in range(count)
    ]


def contestant(begin: Callable[[str, float], Learn], dropout: float) -> Run:
    """Every task begins anew."""
    from kinfolk.machine import tune

    tune()

    def run(task: str) -> np.ndarray:
        if task == "check":
            learn = begin("8k", 0.0)
            return np.array([learn(batch) for batch in batches(CHECKED)])
        learn = begin(task, dropout)
        return np.array([learn(batch) for batch in batches(STEPS)]) * 0  # losses under dropout are not compared

    return run


def run_kinfolk(dropout: float = 0.1) -> Run:
    import dataclasses

    from kinfolk.checkpoints.folder import read_checkpoint
    from kinfolk.models.family import Model
    from kinfolk.objectives.masked_lm import MaskedLm
    from kinfolk.text.tokenizer import Tokenizer
    from kinfolk.training.distributed import world
    from kinfolk.training.settings import OptimizerSettings, TrainSettings
    from kinfolk.training.step import TrainStep

    optimizer = OptimizerSettings(learning_rate=RATE, betas=BETAS, weight_decay=DECAY)
    settings = TrainSettings(max_grad_norm=CLIP, optimization=optimizer)

    class ReadyBatch(MaskedLm):
        def prepare(self, samples: Any, device: Any, generator: Any = None) -> Any:  # the batch is made already
            return samples[0]

    objective = ReadyBatch(Tokenizer.load(FOLDER / "tokenizer", "bert"), 2)

    def begin(vocabulary: str, dropout: float) -> Learn:
        start = read_checkpoint(FOLDER / vocabulary).model
        config = dataclasses.replace(start.config, dropout=dropout, attention_dropout=dropout)
        model = Model(start.family, config, {"masked_lm": 0, "next_sentence": 2}, pooler=True)
        model.load_state_dict(start.state_dict())
        step = TrainStep(model, objective, settings, world())
        step.unfreeze(0)

        def learn(batch: Any) -> float:
            losses = step.step([[batch]], 1.0)
            assert losses is not None
            return losses.total

        return learn

    return contestant(begin, dropout)


def run_transformers(dropout: float, fused: bool) -> Run:
    import torch
    from transformers import BertForPreTraining

    def begin(vocabulary: str, dropout: float) -> Learn:
        model = BertForPreTraining.from_pretrained(
            FOLDER / vocabulary, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
        ).train()
        bare = [weight for name, weight in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
        known = {id(weight) for weight in bare}
        others = [weight for weight in model.parameters() if id(weight) not in known]
        groups = [{"params": others}, {"params": bare, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, RATE, BETAS, weight_decay=DECAY, fused=fused)

        def learn(batch: Any) -> float:
            layout = batch.tokens.layout
            labels = torch.full((layout.tokens,), -100).index_put((batch.rows,), batch.targets)
            loss = model(
                input_ids=layout.pad(batch.tokens.ids),
                attention_mask=layout.pad(torch.ones_like(batch.tokens.ids)),
                token_type_ids=layout.pad(batch.tokens.segments),
                labels=layout.pad(labels, fill=-100),
                next_sentence_label=batch.labels,
            ).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()
            return float(loss.detach())

        return learn

    return contestant(begin, dropout)


CONTESTANTS: dict[str, Callable[[], Run]] = {
    OURS: run_kinfolk,
    DEFAULTS: lambda: run_transformers(0.1, fused=False),
    OURS_PLAIN: lambda: run_kinfolk(0.0),
    BEST: lambda: run_transformers(0.0, fused=True),
}


def main() -> None:
    prepare()
    names, tasks = list(CONTESTANTS), ["check", *VOCABULARIES]
    seconds, differences = compete("bench.pretrain", names, tasks, ROUNDS)
    apart = max(differences["check", name] for name in names)
    if not apart < 1e-3:
        raise SystemExit(f"the first losses differ by {apart:.2g}: the contestants do not compute the same")
    best = {key: min(rounds) for key, rounds in seconds.items()}
    tokens = sum(batch.tokens.layout.tokens for batch in batches(STEPS))
    speeds = [[name, *(f"{tokens / best[task, name]:,.0f}" for task in VOCABULARIES)] for name in names]
    goals = []
    for task in VOCABULARIES:
        for mine, theirs in ((OURS, DEFAULTS), (OURS_PLAIN, BEST)):
            floor, aim = FLOORS[theirs] if task == "30k" else SMALL_FLOOR
            goals.append([task, theirs, *goal_cells(best[task, theirs] / best[task, mine], floor, aim)])
    filled = tokens / (STEPS * BATCH * LENGTH)
    body = (
        f"BERT of {SHAPE['layers']} layers and width {SHAPE['width']}, {BATCH} pairs of at most {LENGTH} tokens "
        f"({filled:.0%} of a padded batch are tokens), masked LM and next sentence, AdamW; tokens per second, best of "
        f"{ROUNDS} rounds of {STEPS} steps. All contestants have our allocator setting. The first losses agree within "
        f"{apart:.1g}.\n\n"
        + table(["", *VOCABULARIES], speeds)
        + "\n\n"
        + table(["vocabulary", "kinfolk beside", "times as fast", *GOAL_HEADER], goals)
        + "\n\nkinfolk computes no padding, and scores the vocabulary at the hidden tokens alone.\n"
    )
    write_result("pretrain", "Pre-training speed", body)


if __name__ == "__main__":
    main()
