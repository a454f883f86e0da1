"""BERT on Wikipedia and GPT-2 on Shakespeare, twenty minutes each: how far one gets on an ordinary computer.

`python recipes/pretraining.py` trains what is not trained yet below runs/pretraining (a run that was stopped resumes),
notes the figures in docs/results/pretraining.json and writes docs/results/pretraining.md. Names choose: `bert`, `gpt2`.
`--minutes 1` is a try: everything below runs/try-1 and nothing in docs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from common import RecipePaths, data_file, environment, start_by_minutes, table, write_result
from translation_clock import Clock

import kinfolk
from kinfolk.api.experiment import Callbacks
from kinfolk.api.loaded import LanguageModel
from kinfolk.cli.output import training_progress
from kinfolk.files import parse_json, read_text
from kinfolk.training.runs import Progress

MINUTES = 20.0
RUNS: dict[str, dict[str, Any]] = {
    "bert": {"corpus": "wikipedia/plain.txt", "vocabulary_size": 8_000},
    "gpt2": {"corpus": "tinyshakespeare/input.txt", "documents": "whole", "vocabulary_size": 512},
}
NOTES = {  # what else was tried on the same machine, and what has changed since
    "bert": "With AdamW and batches of 8, 7,998 steps of such a run, in 18 minutes, came to a masked_lm_loss "
    "of 6.309 (6.369 after 4,500, 6.498 after 1,789) and a next_sentence_accuracy of 0.57; a rate of 3e-4 was behind "
    "that of 1e-3 for as long as it was tried, one of 3e-3 too.",
    "gpt2": "The curve is of the first 8,192 dev tokens; today evaluations are spread over the dev text.",
}
PROMPT, SAMPLE_TOKENS = "ROMEO:\n", 160
MASKS = ("Paris is the capital of [MASK].", "Water [MASK] at one hundred degrees.", "He was born in [MASK] in 1879.")


def command(kind: str, minutes: float) -> str:
    """The training from a shell."""
    settings = RUNS[kind]
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in settings.items() if name != "corpus")
    return (
        f"kinfolk pretrain {kind} --corpus $KINFOLK_DATA/{settings['corpus']} {options} --minutes {minutes:g} "
        f"--output runs/pretraining/{kind}"
    )


def train(kind: str, minutes: float | None, paths: RecipePaths) -> None:
    """One run, if it is not there already, and its figures."""
    folder = paths.runs / kind
    if (folder / "model").exists() and kind in paths.notes:
        return
    minutes = minutes or MINUTES
    print(command(kind, minutes), file=sys.stderr)
    settings = dict(RUNS[kind])
    corpus = data_file(settings.pop("corpus"))
    with Clock(paths.runs / f"{kind}-clock.json") as clock, training_progress() as step:

        def watch(seed: int, progress: Progress) -> None:
            step(seed, progress)
            clock.watch(progress)

        callbacks = Callbacks(lambda summary, _: print(summary, file=sys.stderr), watch)
        result = kinfolk.pretrain(kind, corpus, folder, device="cpu", callbacks=callbacks, minutes=minutes, **settings)
    log = [parse_json(line, "log") for line in read_text(folder / "log.jsonl").splitlines()]
    with paths.noting() as notes:
        notes[kind] = environment() | {
            "command": command(kind, minutes),
            "corpus": str(result.data),
            "minutes": round(clock.minutes, 1),
            "load": round(os.getloadavg()[2], 1),
            "steps": log[-1]["step"],
            "metrics": dict(result.metrics),
            "baselines": dict(result.baselines),
            "curve": [[entry["step"], entry["metrics"]] for entry in log if "metrics" in entry],
            "samples": samples(folder),
        }


def samples(folder: Path) -> list[str]:
    """What the model says: a text, or words for masks."""
    model = kinfolk.load_encoder(folder, "cpu")
    if isinstance(model, LanguageModel):
        return [model.generate(PROMPT, SAMPLE_TOKENS, temperature=0.8, seed=1, slide=True)]
    return [f"{text} {', '.join(guess.word for guess in model.fill(text))}" for text in MASKS]  # type: ignore[union-attr]


def section(kind: str, note: dict[str, Any]) -> list[str]:
    """The paragraphs of one run."""
    metrics = [
        [name, f"{value:.3f}", f"{note['baselines'][name]:.3f}" if name in note["baselines"] else ""]
        for name, value in note["metrics"].items()
    ]
    curve = [[f"{step:,}", *(f"{value:.3f}" for value in values.values())] for step, values in note["curve"]]
    names = list(note["curve"][0][1])
    return [
        f"## {kind}",
        f"```sh\n{note['command']}\n```",
        f"```text\n{note['corpus']}\n```",
        f"{note['steps']:,} steps; {note['minutes']:g} minutes from the first read to the saved model, on "
        f"{note['threads']} threads of {note['machine']} (load {note['load']}), {note['date']}; seed 0.",
        table(["dev text", "value", "without a model"], metrics),
        table(["step", *names], curve),
        *([NOTES[kind]] if kind in NOTES else []),
        "What it says:\n\n" + "\n\n".join(f"```text\n{text}\n```" for text in note["samples"]),
    ]


def write(paths: RecipePaths) -> None:
    """The page, from the figures that are noted."""
    notes = paths.notes
    parts = [
        "What the commands do not name is as usual. Metrics while training are of a part of the dev text, those above "
        "of all of it (of BERT 2,048 samples). “Without a model” is what guessing by the frequencies of tokens, or by "
        "chance, would give."
    ]
    for kind in RUNS:
        if kind in notes:
            parts += section(kind, notes[kind])
    write_result("pretraining", "pretraining.py", "demo", "Pre-training in minutes", parts, [], folder=paths.results)


def main() -> None:
    start_by_minutes(__doc__.partition("\n")[0], "pretraining", [*RUNS], train, lambda _, paths: write(paths))


if __name__ == "__main__":
    main()
