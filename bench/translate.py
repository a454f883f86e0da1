"""Training and using translators: kinfolk beside transformers and CTranslate2, same weights, texts and search."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from bench import translate_training as training
from bench.harness import GOAL_HEADER, THREADS, Run, Worker, goal_cells, table, write_result
from bench.translate_training import BATCH, FOLDER, lines

ROUNDS = 3
SENTENCES, BEAM, PEER_BATCH, LONGEST = 200, 4, 32, 128
# What is trained where there is no model to translate with: the paper's base size, in Marian's form.
SIZE, FORM = "base", {"sinusoid": "halves", "zero_start": True}
TRAINING = {"minutes": 15.0, "batch_tokens": 1024, "learning_rate": 1.5e-4, "warmup": 0.4, "evaluations": 2}
MODEL, DECODED, CONVERTED = FOLDER / "model", FOLDER / "decoded", FOLDER / "ctranslate2"
# CTranslate2 has no other way to stop; transformers counts the start token.
SEARCH = {"num_beams": BEAM, "length_penalty": 1.0, "early_stopping": True, "max_length": LONGEST + 1}
AGREE, SAME_LOSS = 0.95, 1e-4  # the least share of equal texts, and the most that first losses may differ
US, PADDED, GENERATE = "kinfolk", "transformers, padded", f"transformers, sorted, batches of {PEER_BATCH}"
TUNED_GENERATE = f"{GENERATE}, with our allocator setting"
KINDS = {"fp32": "float32", "int8": "int8"}
WAYS = {f"{THREADS} threads": (1, THREADS), f"{THREADS} workers of one thread": (THREADS, 1)}
FAST = {f"CTranslate2 {kind}, {way}": (kind, way) for kind in KINDS for way in WAYS}

# The least that must be reached, and what is aimed at: times the speed of a peer.
TRAINING_GOALS, GENERATE_GOALS, FAST_GOALS = (1.6, 2.0), (1.35, None), (0.85, 1.0)

Results = dict[tuple[str, str], tuple[float, np.ndarray]]  # (task, name) -> its best seconds, and what came out


def prepare() -> None:
    """One model in two layouts; one is trained unless runs/translate-bench/model holds one of Marian's."""
    import ctranslate2

    from kinfolk.api.loaded import load_translator
    from kinfolk.api.to_marian import to_marian
    from kinfolk.api.train_translator import train_translator

    multi30k = training.DATA / "multi30k"
    if not MODEL.exists():
        sides = [tuple(multi30k / f"{name}.{side}" for side in ("en", "de")) for name in ("train", "val")]
        if not (FOLDER / "run" / "model").exists():
            train_translator(FOLDER / "run", sides[0], dev=sides[1], size=SIZE, changes=FORM, device="cpu", **TRAINING)
        to_marian(load_translator(FOLDER / "run", device="cpu")).save(MODEL)
    for folder in (DECODED, CONVERTED):
        shutil.rmtree(folder, ignore_errors=True)
    dataclasses.replace(load_translator(MODEL, device="cpu"), generation=SEARCH).save(DECODED)
    ctranslate2.converters.TransformersConverter(str(DECODED)).convert(str(CONVERTED))


@cache
def texts() -> list[str]:
    return lines("test2016.en")[:SENTENCES]


def run_kinfolk() -> Run:
    from kinfolk.api.loaded import load_translator
    from kinfolk.machine import tune

    tune()
    model = load_translator(DECODED, device="cpu")
    return lambda task: np.array(model.translate(texts()))


def their_tokenizer() -> Any:
    import warnings

    from transformers import AutoTokenizer, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoTokenizer.from_pretrained(str(DECODED))


def run_transformers(tuned: bool = False) -> Run:
    import torch
    from transformers import MarianMTModel

    from kinfolk.machine import tune

    if tuned:
        tune()
    tokenizer = their_tokenizer()
    model = MarianMTModel.from_pretrained(DECODED, attn_implementation="sdpa").eval()

    @torch.inference_mode()
    def run(task: str) -> np.ndarray:
        order = sorted(range(SENTENCES), key=lambda number: len(texts()[number]))
        translations = [""] * SENTENCES
        for start in range(0, SENTENCES, PEER_BATCH):
            chosen = order[start : start + PEER_BATCH]
            inputs = tokenizer([texts()[number] for number in chosen], return_tensors="pt", padding=True)
            written = tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)
            for number, text in zip(chosen, written, strict=True):
                translations[number] = text
        return np.array(translations)

    return run


def run_ctranslate2(kind: str, way: str) -> Run:
    import ctranslate2

    tokenizer = their_tokenizer()
    workers, threads = WAYS[way]
    settings = {"compute_type": KINDS[kind], "inter_threads": workers, "intra_threads": threads}
    model = ctranslate2.Translator(str(CONVERTED), "cpu", **settings)
    search = {"beam_size": BEAM, "length_penalty": SEARCH["length_penalty"], "max_decoding_length": LONGEST}

    def run(task: str) -> np.ndarray:
        pieces = [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(texts())["input_ids"]]
        results = model.translate_batch(pieces, max_batch_size=PEER_BATCH, **search)  # it sorts by length itself
        ids = [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]
        return np.array(tokenizer.batch_decode(ids, skip_special_tokens=True))

    return run


CONTESTANTS = {US: run_kinfolk, GENERATE: run_transformers, TUNED_GENERATE: partial(run_transformers, tuned=True)}
CONTESTANTS |= {name: partial(run_ctranslate2, *how) for name, how in FAST.items()}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    training.prepare()
    prepare()
    trained = in_turns("bench.translate_training", list(training.CONTESTANTS), ["check", "shuffled", "sorted"])
    written = in_turns("bench.translate", list(CONTESTANTS), ["translate"])
    parts = [
        verdict(trained, written),
        f"## Training\n\n{training_note()}",
        training_table(trained),
        check_note(trained),
        f"## Translating\n\n{translating_note()}",
        translating_table(written),
    ]
    write_result("translate", "Speed of translators", "\n\n".join(parts))


def in_turns(module: str, names: list[str], tasks: list[str]) -> Results:
    """The best of some rounds of each contestant and task."""
    workers = [Worker(module, name) for name in names]
    results: Results = {}
    for task in tasks:
        for index in range(1 if task == "check" else 1 + ROUNDS):
            for worker in workers:
                took, output = worker.run(task)
                print(f"{task}, round {index}: {worker.name} {took:.2f} s", file=sys.stderr)
                if index == 0 and task != "check":
                    continue  # it was to warm up
                best = results.get((task, worker.name), (float("inf"), output))[0]
                results[task, worker.name] = min(took, best), output
    for worker in workers:
        worker.close()
    return results


def faster(results: Results, task: str, name: str) -> float:
    """How many times as fast as a peer we are."""
    return results[task, name][0] / results[task, US][0]


def times_as_fast(ratio: float, peer: str) -> str:
    return f"{ratio:.2f} times as fast as {peer}" if ratio >= 1 else f"slower than {peer} ({ratio:.2f} of its speed)"


def verdict(trained: Results, written: Results) -> str:
    """Who is faster at what, from the figures."""
    setting = f"{PADDED}, with our allocator setting"
    tasks = ("shuffled", "sorted")
    (plain, bucketed), (same, same_bucketed) = (
        [faster(trained, task, name) for task in tasks] for name in (PADDED, setting)
    )
    best = [
        min((name for name in FAST if FAST[name][0] == kind), key=lambda name: written["translate", name][0])
        for kind in KINDS
    ]
    others = [times_as_fast(faster(written, "translate", name), name.split(",")[0]) for name in (GENERATE, *best)]
    return (
        f"In training kinfolk is {times_as_fast(plain, 'transformers')} on shuffled batches ({same:.2f} when that has "
        f"our allocator setting too) and {times_as_fast(bucketed, 'transformers')} ({same_bucketed:.2f}) when both get "
        f"batches of similar lengths. In translating with beam {BEAM} it is {others[0]}, {others[1]}, and {others[2]}."
        f"\n\n{goals_table(trained, written, best[0])}"
    )


def goals_table(trained: Results, written: Results, fastest: str) -> str:
    """Is each floor and each aim reached?"""
    rows = [
        ["training, shuffled batches", PADDED, *goal_cells(faster(trained, "shuffled", PADDED), *TRAINING_GOALS)],
        ["translating", GENERATE, *goal_cells(faster(written, "translate", GENERATE), *GENERATE_GOALS)],
        ["translating", fastest, *goal_cells(faster(written, "translate", fastest), *FAST_GOALS)],
    ]
    return table(["", "beside", "times as fast", *GOAL_HEADER], rows)


def training_note() -> str:
    shape = training.SHAPE
    return (
        f"Marian's form (norm after each part, sinusoids in halves, one table for all), {shape['encoder_layers']}+"
        f"{shape['decoder_layers']} layers of width {shape['width']}, {shape['heads']} heads, inner width "
        f"{shape['inner_width']:,}, {shape['vocabulary_size']:,} joint pieces, dropout {shape['dropout']}, no label "
        f"smoothing; {training.STEPS} steps of {BATCH} pairs of Multi30k (English to German), AdamW (fused) at "
        f"{training.RATE:g}, clipping at {training.CLIP:g}, float32. From ids to new weights; tokens are those of "
        f"both sides without padding, which takes {training.padding('shuffled'):.0%} of the paths of the shuffled "
        f"batches and {training.padding('sorted'):.0%} of the sorted ones where they are rectangles. Best of {ROUNDS} "
        "interleaved rounds, each contestant in its own process."
    )


def training_table(results: Results) -> str:
    rows = []
    for name in training.CONTESTANTS:
        row = [name]
        for task in ("shuffled", "sorted"):
            row += [f"{training.tokens(task) / results[task, name][0]:,.0f}", f"{faster(results, task, name):.2f}"]
        rows.append([*row, f"{results['shuffled', name][1][-4:].mean():.3f}"])
    header = ["", "tokens/s, shuffled", "kinfolk is faster by", "tokens/s, sorted", "kinfolk is faster by"]
    return table([*header, "loss of the last 4 shuffled steps"], rows)


def check_note(results: Results) -> str:
    """How near the losses are without dropout; another first loss would be another task."""
    ours, theirs = (results["check", name][1] for name in (US, PADDED))
    apart = np.abs(ours - theirs)
    if apart[0] > SAME_LOSS:
        raise SystemExit(f"the first losses differ: {ours[0]:.6f} and {theirs[0]:.6f}")
    return (
        f"Without dropout and from the same weights the loss of the first step is {ours[0]:.5f} here and "
        f"{theirs[0]:.5f} there; over the first {len(ours)} steps they are at most {apart.max():.1e} apart."
    )


def translating_note() -> str:
    from kinfolk.api.loaded import load_translator

    model = load_translator(Path(DECODED), device="cpu").model
    config, weights = model.config, sum(weight.numel() for weight in model.parameters())
    return (
        f"The first {SENTENCES} sentences of test2016, text in and text out; {config.encoder_layers}+"
        f"{config.decoder_layers} layers of width {config.width}, {config.heads} heads, inner width "
        f"{config.inner_width:,}, {config.vocabulary_size:,} joint pieces, {weights / 1e6:.1f} million weights, "
        f"float32 but where int8 is said; beam {BEAM}, scores divided by the length, a search ends with {BEAM} ended "
        f"texts. CTranslate2 gets batches of {PEER_BATCH} and sorts them. The model was trained by kinfolk and came to "
        "the others by `kinfolk convert --to marian` and ct2-transformers-converter. The allocator of kinfolk's "
        "process is set as its commands set it (`kinfolk.machine.tune`), that of the others only where that is said. "
        f"Best of {ROUNDS} interleaved rounds, each contestant in its own process."
    )


def translating_table(results: Results) -> str:
    from kinfolk.training.metrics import bleu

    rows, truth = [], lines("test2016.de")[:SENTENCES]
    ours = results["translate", US][1]
    for name in CONTESTANTS:
        seconds, output = results["translate", name]
        same = float((output == ours).mean())
        if same < AGREE and "int8" not in name:
            raise SystemExit(f"{name} and kinfolk agree on {same:.1%} of the texts only: no figures")
        words = sum(len(text.split()) for text in output) / SENTENCES
        speed = [f"{SENTENCES / seconds:.1f}", f"{faster(results, 'translate', name):.2f}"]
        rows.append([name, *speed, f"{same:.1%}", f"{bleu(output.tolist(), truth).score:.1f}", f"{words:.1f}"])
    header = ["", "sentences/s", "kinfolk is faster by", "texts equal to kinfolk's", "BLEU", "words a text"]
    wanted = sum(len(text.split()) for text in truth) / SENTENCES
    return f"{table(header, rows)}\n\nThe references have {wanted:.1f} words a text."
