"""What three minutes teach: short structured pairs, verbs, and pronunciations, with no option but kind and minutes.

`python recipes/minutes.py` trains what is not noted yet below runs/minutes (a run that was stopped resumes), notes the
figures in docs/results/minutes.json and writes docs/results/minutes.md; names such as `dates-attention` choose. Beside
each: the settings that were usual before (`…-before`), and a plain script (`…-plain`). Nothing else should run
meanwhile. `--minutes 0.5` is a try below runs/try-0.5, and nothing in docs.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Sequence
from statistics import mean
from typing import Any

import g2p
import structured_pairs
import verbs
from common import Course, RecipePaths, data_file, environment, start_by_minutes, table, write_result
from plain_seq2seq import BATCH, Script

import kinfolk
from kinfolk.api.experiment import Callbacks
from kinfolk.api.translation import pair_samples
from kinfolk.cli.output import training_progress
from kinfolk.data.tables import to_pairs
from kinfolk.files import read_text, write_bytes
from kinfolk.text.train import train_pair_tokenizer

MINUTES = {"dates": 3.0, "numbers": 3.0, "reversed": 3.0, "past": 3.0, "sounds": 10.0}
KINDS = "attention", "transformer", "seq2seq"
HELD_OUT, WORDS, CONTROL = 1_200, 10_000, "plain"
BEFORE: dict[str, Any] = {  # what was usual whatever the pairs were, with as many of these pieces as they support
    "size": "small", "label_smoothing": 0.1, "learning_rate": 1e-3, "batch_tokens": 4_096, "min_steps": 0,
}  # fmt: skip
PIECES = 8_000
Pair = tuple[str, str]


def all_pairs(task: str, paths: RecipePaths) -> list[Pair]:
    if task in structured_pairs.MAKERS:
        return structured_pairs.pairs(task)
    if task == "past":
        return verbs.regular() + verbs.irregular()
    kept = paths.runs / "sounds.tsv"
    if not kept.exists():
        counts = dict[str, int]()
        for word in re.findall(r"[a-z]+", data_file("wikipedia/plain.txt").read_text(encoding="utf-8").lower()):
            counts[word] = counts.get(word, 0) + 1
        words = sorted((word for word in counts if len(word) > 2), key=lambda word: (-counts[word], word))[:WORDS]
        sounds = g2p.translator().translate(words)
        lines = "".join(f"{word}\t{sound}\n" for word, sound in zip(words, sounds, strict=True))
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(kept, lines.encode())
    return [(one, other) for one, other in (line.split("\t") for line in read_text(kept).splitlines())]


def sides(task: str, paths: RecipePaths) -> tuple[list[Pair], list[Pair]]:
    """To train on, and to measure by."""
    pairs = all_pairs(task, paths)
    random.Random(0).shuffle(pairs)
    count = min(HELD_OUT, len(pairs) // 5)
    return pairs[count:], pairs[:count]


def settings_before(train: Sequence[Pair]) -> dict[str, Any]:
    """A tokenizer that is given keeps the rules of fitting.py away: vocabulary and dropout are not fitted either."""
    sides = ([pair[side] for pair in train] for side in (0, 1))
    return {"tokenizer": train_pair_tokenizer("bpe", *sides, PIECES, at_most=True, whole_numbers=True), **BEFORE}


def pairs_seen(course: Course, translator: kinfolk.Translator, train: Sequence[Pair]) -> int:
    """About how many: steps times the pairs that fit into a batch, in the mean."""
    items = pair_samples(to_pairs(train), translator.tokenizer, translator.model.config.context).items
    assert course.batch_tokens is not None
    return round(course.steps * min(course.batch_size, course.batch_tokens / mean(map(len, items))))


def measure(task: str, texts: Sequence[str], pairs: Sequence[Pair]) -> dict[str, float]:
    """The share of exact texts; of verbs the regular ones alone, and of sounds the errors per phoneme."""
    exact = [text == target for text, (_, target) in zip(texts, pairs, strict=True)]
    if task == "past":
        odd = {source for source, _ in verbs.irregular()}
        groups = {"regular": False, "irregular": True}
        of = {name: [e for e, (s, _) in zip(exact, pairs, strict=True) if (s in odd) == is_odd]
              for name, is_odd in groups.items()}  # fmt: skip
        return {name: sum(values) / len(values) for name, values in of.items()}
    if task == "sounds":
        wrong = sum(distance(text.split(), target.split()) for text, (_, target) in zip(texts, pairs, strict=True))
        return {"errors": wrong / sum(len(target.split()) for _, target in pairs), "exact": sum(exact) / len(exact)}
    return {"exact": sum(exact) / len(exact)}


def distance(first: Sequence[str], second: Sequence[str]) -> int:
    """Insertions, deletions and replacements (Levenshtein).

    >>> distance("AH0 B AW1 T".split(), "AH0 B T".split())
    1
    """
    row = list(range(len(second) + 1))
    for count, left in enumerate(first, 1):
        above, row[0] = row[0], count
        for index, right in enumerate(second, 1):
            above, row[index] = row[index], min(row[index] + 1, row[index - 1] + 1, above + (left != right))
    return row[-1]


def run(name: str, minutes: float | None, paths: RecipePaths) -> None:
    """One row, if it is not noted already."""
    if name in paths.notes:
        return
    task, kind, *before = name.split("-")
    train, test = sides(task, paths)
    minutes, start, resumed = minutes or MINUTES[task], time.monotonic(), (paths.runs / name).exists()
    if kind == CONTROL:
        script = Script(train, minutes * 60)
        seconds = time.monotonic() - start
        translate, length = script.translate, {"steps": script.steps, "pairs": script.steps * BATCH}
    else:
        folder, settings = paths.runs / name, settings_before(train) if before else {}
        with training_progress() as step:
            said: list[str] = []
            callbacks = Callbacks(lambda summary, _: said.append(str(summary)), step, said.append)
            if not (folder / "model").exists():
                common = {"kind": kind, "minutes": minutes, "device": "cpu"}
                kinfolk.train_translator(folder, train, **common, **settings, callbacks=callbacks)
        seconds = time.monotonic() - start
        course, translator = Course.of(folder), kinfolk.load_translator(folder, "cpu")
        length = {"steps": course.steps, "pairs": pairs_seen(course, translator, train), "said": "\n".join(said)}
        translate = translator.translate
    taken = None if resumed else round(seconds, 1)  # an earlier process did a part
    metrics = measure(task, translate([source for source, _ in test]), test)
    with paths.noting() as notes:
        notes[name] = environment() | length | {"minutes": minutes, "seconds": taken, "metrics": metrics}
    print(name, metrics, taken, file=sys.stderr)


def rows(notes: dict[str, Any], task: str) -> list[list[str]]:
    lines = []
    for kind in (*KINDS, CONTROL):
        for name in (f"{task}-{kind}", f"{task}-{kind}-before"):
            if name in notes:
                note = notes[name]
                figures = [f"{value:.1%}" for value in note["metrics"].values()]
                label = {"before": f"{kind}, settings as before", CONTROL: "plain torch"}
                title = label.get(name.rpartition("-")[2], kind)
                seconds = "" if note["seconds"] is None else f"{note['seconds']:.0f}"
                lines.append([title, *figures, f"{note['steps']:,}", f"{note['pairs']:,}", seconds])
    return lines


TITLES = {
    "dates": "Dates in words to ISO",
    "numbers": "Numbers in words to digits",
    "reversed": "Words written backwards",
    "past": "Past tense of verbs",
    "sounds": "Letters to phonemes, as the model of g2p-en writes them",
}


def write(paths: RecipePaths) -> None:
    """The page, from the figures that are noted."""
    notes = paths.notes
    parts = [
        "`kinfolk train-translator --pairs FILE --kind KIND --minutes N` and no other option, measured on pairs that "
        f"are in no training file. Settings as before: {PIECES:,} pieces of BPE, or as many as the texts support, that "
        "may hold several digits, the size small with its own dropout, label smoothing 0.1, rate 1e-3, batches of "
        "4,096 tokens whatever the time; how lengths are mixed in batches, the clock and how the best checkpoint is "
        "selected are those of today. Seconds are those from the first read to the saved model; pairs seen are steps "
        "times the pairs of a batch, in the mean."
    ]
    for task, title in TITLES.items():
        lines = rows(notes, task)
        if lines:
            metrics = next(note["metrics"] for name, note in notes.items() if name.startswith(f"{task}-"))
            here = next(note for name, note in notes.items() if name.startswith(f"{task}-"))
            header = ["", *metrics, "steps", "pairs seen", "s"]
            parts += [f"## {title}, {here['minutes']:g} minutes", table(header, lines)]
    write_result("minutes", "minutes.py", "demo", "Minutes well spent", parts, [], folder=paths.results)


def main() -> None:
    names = [f"{task}-{kind}{end}" for task in MINUTES for kind in KINDS for end in ("", "-before")]
    names += [f"{task}-{CONTROL}" for task in MINUTES]
    start_by_minutes(__doc__.partition("\n")[0], "minutes", names, run, lambda _, paths: write(paths))


if __name__ == "__main__":
    main()
