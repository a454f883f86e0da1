"""Sentences per second, text in to vectors out: kinfolk, sentence-transformers, transformers, ONNX Runtime."""

from __future__ import annotations

import os
import random
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from bench.harness import DATA, GOAL_HEADER, THREADS, Run, compete, goal_cells, table, write_result

ROUNDS = 5
SAME = 1e-5  # how far apart two vectors of one text may be
TASKS = {
    "sst2": "2,000 sentences of SST-2, about 24 tokens each",
    "mixed": "200 texts of 8 to 400 tokens",
    "single": "200 sentences of SST-2, one call each",
}

PEER, FAST = "sentence-transformers", "ONNX Runtime fp32"
BATCHES = {PEER: (1.35, 1.5), FAST: (1.1, 1.25)}
GOALS = {"sst2": BATCHES, "mixed": BATCHES, "single": {PEER: (2.0, None)}}  # times a peer's speed: floor and aim


COMPILED = "`small_batch.c` is compiled here, and computes the short texts."
NOT_COMPILED = "`small_batch.c` is not compiled here: torch alone computes the short texts."


@cache
def texts(task: str) -> tuple[str, ...]:
    """The texts of a task, the same in every process."""
    if task == "mixed":
        words = (DATA / "wikipedia" / "plain.txt").read_text(encoding="utf-8").split()[:200_000]
        draw = random.Random(0)
        sizes = [draw.randint(5, 280) for _ in range(200)]  # about 1.35 tokens a word
        return tuple(" ".join(words[index : index + size]) for size in sizes for index in [draw.randrange(190_000)])
    rows = (DATA / "sst2" / "train.tsv").read_text(encoding="utf-8").split("\n")
    return tuple(row.rsplit("\t", 1)[0] for row in rows[: 200 if task == "single" else 2000])


def folder() -> Path:
    from kinfolk.checkpoints.find import demo_model

    return demo_model()


def run_kinfolk(tuned: bool = True) -> Run:
    import kinfolk
    from kinfolk.machine import tune

    if tuned:
        tune()
    model = kinfolk.load(folder(), device="cpu")

    def embed(batch: list[str] | str) -> np.ndarray:
        return model.embed(batch, layers="last", pool="mean", normalize=True)  # type: ignore[return-value]

    return lambda task: (
        np.stack([embed(text) for text in texts(task)]) if task == "single" else embed(list(texts(task)))
    )


def run_untuned() -> Run:
    return run_kinfolk(tuned=False)


def run_without_c() -> Run:
    """As where no compiler was at hand when kinfolk was installed."""
    from kinfolk.nn.fast import inference_cache

    inference_cache.library = lambda: None  # type: ignore[assignment]
    return run_kinfolk()


def run_sentence_transformers() -> Run:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder()), device="cpu")
    model.max_seq_length = 512

    def run(task: str) -> np.ndarray:
        if task == "single":
            return np.stack([model.encode(text) for text in texts(task)])
        return model.encode(list(texts(task)), batch_size=32)  # it sorts by length itself

    return run


def sorted_batches(task: str, forward: object, size: int = 32) -> np.ndarray:
    """Batches of sentences of similar length through `forward(texts) -> (n, D)`, in the order of the input."""
    rows = texts(task)
    size = 1 if task == "single" else size
    order = sorted(range(len(rows)), key=lambda number: -len(rows[number]))
    vectors = np.empty((len(rows), 384), dtype=np.float32)
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        vectors[chosen] = forward([rows[number] for number in chosen])  # type: ignore[operator]
    return vectors


def run_transformers() -> Run:
    import torch
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(folder()).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder())

    def forward(batch: list[str]) -> np.ndarray:
        inputs = tokenizer(batch, padding=True, truncation=True, max_length=512, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state
            mask = inputs["attention_mask"].unsqueeze(-1).float()
            pooled = (hidden * mask).sum(1) / mask.sum(1)
            return torch.nn.functional.normalize(pooled).numpy()

    return lambda task: sorted_batches(task, forward)


def run_onnx() -> Run:
    import onnxruntime
    from tokenizers import Tokenizer

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = THREADS
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(export_onnx(), settings, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder() / "tokenizer.json"))
    tokenizer.enable_truncation(512)
    tokenizer.enable_padding()

    def forward(batch: list[str]) -> np.ndarray:
        encodings = tokenizer.encode_batch(batch)
        ids = np.array([encoding.ids for encoding in encodings])
        mask = np.array([encoding.attention_mask for encoding in encodings])
        (hidden,) = session.run(None, {"ids": ids, "mask": mask})
        weights = mask[..., None].astype(np.float32)
        pooled = (hidden * weights).sum(1) / weights.sum(1)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)

    return lambda task: sorted_batches(task, forward)


def export_onnx() -> str:
    """The model as an ONNX file, by torch's exporter from transformers' implementation."""
    import torch
    from transformers import AutoModel

    class Vectors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(folder(), attn_implementation="eager").eval()

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    path = os.path.join(tempfile.mkdtemp(), "model.onnx")
    sample = torch.ones(2, 9, dtype=torch.long)
    axes = {0: "batch", 1: "length"}
    torch.onnx.export(
        Vectors(),
        (sample, sample),
        path,
        input_names=["ids", "mask"],
        output_names=["hidden"],
        dynamic_axes={"ids": axes, "mask": axes, "hidden": axes},
        dynamo=False,
    )
    return path


CONTESTANTS = {
    "kinfolk": run_kinfolk,
    "kinfolk, allocator untouched": run_untuned,
    "kinfolk, without small_batch.c": run_without_c,
    PEER: run_sentence_transformers,
    "transformers, sorted by length": run_transformers,
    FAST: run_onnx,
}


def main() -> None:
    seconds, differences = compete("bench.embed", list(CONTESTANTS), list(TASKS), ROUNDS)
    require_same(differences)
    best = {key: min(took) for key, took in seconds.items()}
    from kinfolk.nn.fast.inference_cache import library

    note = (
        f"all-MiniLM-L6-v2, float32, unit-length mean vectors, no text cut. Best of {ROUNDS} interleaved rounds, each "
        "contestant in its own process; the peers in sorted batches of 32. kinfolk runs after `machine.tune()`: freed "
        "memory is kept for the next batch, and denormal numbers are flushed to zero. Our commands do that too, and "
        "call `machine.set_environment()`, which is not called here. "
        f"{COMPILED if library() else NOT_COMPILED} "
        f"The vectors of all contestants are equal within {SAME:g}, or there would be no figures."
    )
    parts = [f"## {title}\n\n{speed_table(task, best, differences)}" for task, title in TASKS.items()]
    write_result("embed", "Embedding speed", "\n\n".join([note, goals_table(best), *parts]))


def require_same(differences: dict[tuple[str, str], float]) -> None:
    """Speed is compared only where the results are the same."""
    for (task, name), apart in differences.items():
        if not apart <= SAME:
            raise SystemExit(f"{task}: the vectors of {name} are {apart:.1e} from kinfolk's: no figures")


def goals_table(best: dict[tuple[str, str], float]) -> str:
    """Is each floor and each aim reached?"""
    rows = [
        [TASKS[task], peer, *goal_cells(best[task, peer] / best[task, "kinfolk"], *bounds)]
        for task, peers in GOALS.items()
        for peer, bounds in peers.items()
    ]
    return table(["", "beside", "times as fast", *GOAL_HEADER], rows)


def speed_table(task: str, best: dict[tuple[str, str], float], differences: dict[tuple[str, str], float]) -> str:
    count = len(texts(task))
    rows = [
        [
            name,
            f"{count / best[task, name]:.0f}",
            f"{1000 * best[task, name] / count:.2f}",
            f"{best[task, name] / best[task, 'kinfolk']:.2f}",
            f"{differences[task, name]:.0e}" if name != "kinfolk" else "",
        ]
        for name in CONTESTANTS
    ]
    return table(["", "texts/s", "ms a text", "kinfolk is faster by", "largest difference"], rows)
