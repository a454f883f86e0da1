"""Tokens per second of training recurrent models: kinfolk beside a plain padded torch script of the same shapes.

A GRU and an LSTM encoder-decoder with bilinear attention (and ours with the additive score beside it), and an LSTM
language model. The script has what tutorials have: nn.GRU / nn.LSTM on padded batches, packed for the encoder alone.
Same weights, batches and fused AdamW, no dropout; the losses must agree.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from bench.harness import DATA, GOAL_HEADER, ROOT, Run, compete, goal_cells, table, write_result

FOLDER = ROOT / "runs" / "recurrent-bench"
VOCABULARY, WIDTH, BATCH, STEPS, ROUNDS, STRETCH = 8_000, 256, 64, 12, 5, 10
STREAMS, BPTT, LAYERS = 32, 35, 2  # of the language model
RATE, CLIP = 1e-3, 1.0
OURS, PLAIN, ADDITIVE = "kinfolk", "plain torch, padded", "kinfolk, additive score"
TASKS = ("gru translator", "lstm translator", "lstm language model")
FLOOR, AIM, ADDITIVE_AT_MOST = 1.0, 1.5, 1.15

Pair = tuple[list[int], list[int]]
Learn = Callable[[Any], float]  # a batch -> its loss


def prepare() -> None:
    """Learn a vocabulary of Multi30k's English and German, and write the pairs' ids."""
    from kinfolk.text.train import train_pair_tokenizer

    texts = [(DATA / "multi30k" / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de")]
    words = train_pair_tokenizer("bpe", *texts, VOCABULARY)
    ids = [(words.encode_source(one), words.encode_target(other)) for one, other in zip(*texts, strict=True)]
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    (FOLDER / "pairs.json").write_text(json.dumps(ids))


@cache
def pairs() -> list[Pair]:
    rows: list[Pair] = json.loads((FOLDER / "pairs.json").read_text())
    random.Random(0).shuffle(rows)
    return rows


def batches(task: str) -> list[Any]:
    """Pairs of similar length, or the streams' next tokens: (streams, length + 1)."""
    if task == TASKS[2]:
        text = np.array([token for pair in pairs() for token in pair[1]])
        rows = text[: STREAMS * (STEPS * BPTT + 1)].reshape(STREAMS, -1)
        return [rows[:, step * BPTT : (step + 1) * BPTT + 1] for step in range(STEPS)]
    stretch = sorted(pairs()[: STRETCH * BATCH], key=lambda pair: len(pair[0]) + len(pair[1]))
    cut = [stretch[start : start + BATCH] for start in range(0, len(stretch), BATCH)]
    return [cut[index % STRETCH] for index in range(STEPS)]


def tokens(task: str) -> int:
    """What is read in all steps; what pads is not counted."""
    if task == TASKS[2]:
        return STREAMS * BPTT * STEPS
    return sum(len(side) for batch in batches(task) for pair in batch for side in pair)


def our_model(task: str, score: str) -> Any:
    """The weights that every contestant starts from."""
    import dataclasses

    from kinfolk.models.family import init_model, preset

    if task == TASKS[2]:
        family, chosen = preset("recurrent-lm-small")
        config = dataclasses.replace(chosen.config, vocabulary_size=VOCABULARY, width=WIDTH, layers=LAYERS, tied=True)
    else:
        family, chosen = preset("attention-tiny", conditional=True)
        kind = task.partition(" ")[0]
        config = dataclasses.replace(chosen.config, vocabulary_size=VOCABULARY, width=WIDTH, kind=kind, score=score)
    return init_model(family, config, 0)


def run_kinfolk(score: str = "bilinear") -> Run:
    from kinfolk.machine import tune
    from kinfolk.objectives.language_model import CarriedNextToken, StreamSample
    from kinfolk.objectives.translation import Translate, pair_sample
    from kinfolk.training.distributed import world
    from kinfolk.training.settings import TrainSettings
    from kinfolk.training.step import TrainStep

    tune()
    settings = TrainSettings(max_grad_norm=CLIP).but(learning_rate=RATE, weight_decay=0.0)

    def run(task: str) -> np.ndarray:
        model = our_model(task, score)
        is_lm = task == TASKS[2]
        objective = CarriedNextToken() if is_lm else Translate(model.config.start_id, smoothing=0.0)
        step = TrainStep(model, objective, settings, world())
        step.unfreeze(0)
        losses = []
        for number, batch in enumerate(batches(task)):
            if is_lm:
                rows = batch.tolist()
                samples: list[Any] = [StreamSample(row[:-1], [], row[1:], 0, number == 0) for row in rows]
            else:
                samples = [pair_sample(*pair, index) for index, pair in enumerate(batch)]
            loss = step.step([samples], 1.0)
            assert loss is not None
            losses.append(loss.total)
        return np.array(losses)

    return run


def run_plain() -> Run:
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    from kinfolk.machine import tune

    tune()

    def padded(rows: list[list[int]], fill: int) -> Any:
        longest = max(map(len, rows))
        return torch.tensor([row + [fill] * (longest - len(row)) for row in rows])

    class Translator(nn.Module):
        def __init__(self, kind: str, pad_id: int, start_id: int):
            super().__init__()
            cell: Any = nn.GRU if kind == "gru" else nn.LSTM
            self.kind, self.pad_id, self.start_id = kind, pad_id, start_id
            self.embedding = nn.Embedding(VOCABULARY, WIDTH)
            self.encoder = cell(WIDTH, WIDTH, batch_first=True, bidirectional=True)
            self.decoder = cell(WIDTH, WIDTH, batch_first=True)
            self.bridge = nn.ModuleList([nn.Linear(2 * WIDTH, WIDTH) for _ in range(1 if kind == "gru" else 2)])
            self.score = nn.Linear(2 * WIDTH, WIDTH, bias=False)
            self.combine = nn.Linear(3 * WIDTH, WIDTH)
            self.bias = nn.Parameter(torch.zeros(VOCABULARY))

        def forward(self, batch: list[Pair]) -> Any:
            lengths = torch.tensor([len(source) for source, _ in batch])
            source = padded([source for source, _ in batch], self.pad_id)
            inputs = padded([[self.start_id, *target[:-1]] for _, target in batch], self.pad_id)
            targets = padded([target for _, target in batch], -100)
            read = pack_padded_sequence(self.embedding(source), lengths, batch_first=True, enforce_sorted=False)
            states, end = self.encoder(read)
            states = pad_packed_sequence(states, batch_first=True)[0]
            ends = end if isinstance(end, tuple) else (end,)
            joined = [torch.cat([piece[0], piece[1]], -1) for piece in ends]
            first = [layer(piece)[None] for layer, piece in zip(self.bridge, joined, strict=True)]
            hidden = self.decoder(self.embedding(inputs), first[0] if len(first) == 1 else tuple(first))[0]
            scores = hidden @ self.score(states).transpose(1, 2)
            absent = torch.arange(states.shape[1])[None] >= lengths[:, None]
            weights = scores.masked_fill(absent[:, None], float("-inf")).softmax(-1)
            hidden = torch.tanh(self.combine(torch.cat([hidden, weights @ states], -1)))
            logits = F.linear(hidden, self.embedding.weight, self.bias)
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)

    class LanguageModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, WIDTH)
            self.rnn = nn.LSTM(WIDTH, WIDTH, LAYERS, batch_first=True)
            self.bias = nn.Parameter(torch.zeros(VOCABULARY))
            self.state: Any = None

        def forward(self, batch: np.ndarray) -> Any:
            rows = torch.from_numpy(batch)
            hidden, after = self.rnn(self.embedding(rows[:, :-1]), self.state)
            self.state = tuple(piece.detach() for piece in after)
            logits = F.linear(hidden, self.embedding.weight, self.bias)
            return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())

    def begin(task: str) -> Any:
        start = our_model(task, "bilinear")
        weights, named = start.state_dict(), dict[str, Any]()
        if task == TASKS[2]:
            model: Any = LanguageModel()
            cells = {f"body.stack.cells.{layer}": ("rnn", f"_l{layer}") for layer in range(LAYERS)}
            named["embedding.weight"] = weights["body.table.weight"]
        else:
            model = Translator(task.partition(" ")[0], start.config.pad_id, start.config.start_id)
            cells = {"body.encoder.cells.0": ("encoder", "_l0"), "body.encoder.cells.1": ("encoder", "_l0_reverse")}
            cells["body.decoder.stack.cells.0"] = "decoder", "_l0"
            named |= {
                "embedding.weight": weights["body.decoder.table.weight"],
                "score.weight": weights["body.look_back.score.matrix.weight"],
                "combine.weight": weights["body.look_back.combine.weight"],
                "combine.bias": weights["body.look_back.combine.bias"],
            }
            named |= {name.removeprefix("body.").replace("bridge.layers", "bridge"): weight
                      for name, weight in weights.items() if ".bridge." in name}  # fmt: skip
        for ours, (theirs, ending) in cells.items():
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                named[f"{theirs}.{part}{ending}"] = weights[f"{ours}.{part}_l0"]
        named["bias"] = weights["heads.next_token.bias"]
        model.load_state_dict(named)
        return model

    def run(task: str) -> np.ndarray:
        model = begin(task)
        optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.0, fused=True)
        losses = []
        for batch in batches(task):
            loss = model(batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
        return np.array(losses)

    return run


CONTESTANTS: dict[str, Callable[[], Run]] = {
    OURS: run_kinfolk,
    PLAIN: run_plain,
    ADDITIVE: lambda: run_kinfolk("additive"),
}


def main() -> None:
    prepare()
    seconds, differences = compete("bench.recurrent", list(CONTESTANTS), list(TASKS), ROUNDS)
    apart = max(differences[task, PLAIN] for task in TASKS)
    if not apart < 1e-3:
        raise SystemExit(f"the losses differ by {apart:.2g}: the contestants do not compute the same")
    best = {key: min(rounds) for key, rounds in seconds.items()}
    speeds = [[name, *(f"{tokens(task) / best[task, name]:,.0f}" for task in TASKS)] for name in (OURS, PLAIN)]
    goals = [[task, *goal_cells(best[task, PLAIN] / best[task, OURS], FLOOR, AIM)] for task in TASKS]
    costs = [
        [task, *goal_cells(best[task, ADDITIVE] / best[task, OURS], ADDITIVE_AT_MOST, at_most=True)]
        for task in TASKS[:2]
    ]
    body = (
        f"Translators: one layer of width {WIDTH} (both directions in the encoder), bilinear attention, {VOCABULARY:,} "
        f"pieces, {BATCH} pairs of Multi30k (English to German) a step, of similar length. Language model: {LAYERS} "
        f"layers of width {WIDTH}, {STREAMS} streams, {BPTT} tokens of each a step. From ids to new weights, {STEPS} "
        f"steps, best of {ROUNDS} interleaved rounds, tokens without padding per second. The losses of all steps agree "
        f"within {apart:.1g}. All contestants have our allocator setting.\n\n"
        + table(["", *TASKS], speeds)
        + "\n\n"
        + table(["kinfolk beside plain torch", "times as fast", *GOAL_HEADER], goals)
        + "\n\n"
        + table(["additive score beside bilinear", "times the time", "at most", "reached", "", ""], costs)
    )
    write_result("recurrent", "Training recurrent models", body)


if __name__ == "__main__":
    main()
