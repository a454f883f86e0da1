"""docs/results/translation.md, from the figures that are noted: sections whose runs are not there yet are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import RecipePaths, table, write_result
from translation_clock import THREADS

from kinfolk.api.align import alignment_layer
from kinfolk.api.loaded import load_translator
from kinfolk.api.report import escaped
from kinfolk.files import sha256
from kinfolk.training.pictures import COLOURS, alignment_picture, new_figure, write_figure

if TYPE_CHECKING:
    from translation import Entry

    from kinfolk.api.loaded import Translator

GROUPS = {"1-8": range(1, 9), "9-12": range(9, 13), "13-16": range(13, 17), "17+": range(17, 10_000)}  # source words
BOTTLENECK, ATTENTION, TRANSFORMER = (
    "seq2seq",
    ("attention-dot", "attention-bilinear", "attention-additive"),
    "transformer-15",
)
COMPARED = (BOTTLENECK, *ATTENTION, TRANSFORMER)  # equal minutes
FORCED = {  # what the decoder reads while it learns
    "attention-bilinear": "the true target (teacher forcing)",
    "scheduled-sampling": "its own guesses, made in a pass that reads the truth, with a chance that rises to 0.25",
    "free-running": "its own guesses only, made token by token (free running)",
}
TAUGHT = "attention-bilinear"
LONG = ("13-16", "17+")  # groups of sources where attention is to help
HALVES = (
    "A dot product needs vectors of one width on both sides, so both directions of the encoder of “dot” have half the "
    "width each."
)
MARKERS = "osD^v"
BUSY = 0.5  # load of the last minute, above which others are at work
SAMPLE_WORDS = 6  # a source must have more to be among the best or worst samples
LONGEST_TEXT = 300
LONGEST_DRAWN = 60  # tokens: a model that has learned little may not come to an end
# Sentences of our own, and the runs whose attention is drawn: the first that there is.
ALIGNED: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "French": (
        ("tatoeba-45", "french-45"),
        (
            "The black cat is sleeping on the red sofa.",
            "I have never seen such a beautiful white horse.",
            "She did not give him the green book that he wanted.",
            "We often talk about the difficult questions of our time.",
        ),
    ),
    "German": (
        ("attention-bilinear", "scheduled-sampling"),
        (
            "Two old friends in warm coats are drinking tea beside a frozen lake.",
            "A girl who is wearing a yellow hat is painting a small wooden boat.",
        ),
    ),
}
Runs = Mapping[str, dict[str, Any]]
Entries = Mapping[str, "Entry"]


def write(paths: RecipePaths, entries: Entries) -> None:
    """The page and its pictures."""
    with paths.noting() as notes:  # held to the end, so that no older page can follow a newer one
        noted = notes.setdefault("runs", {})
        runs = {name: noted[name] for name in entries if name in noted}
        notes.setdefault("aligned", {})
        notes["aligned"] |= draw_alignments(notes["aligned"], paths)
        parts = [
            *opening(runs, entries, notes),
            *lengths(runs, entries, paths),
            *teacher_forcing(runs),
            *tatoeba(runs, entries),
            *alignments(notes["aligned"], paths),
            *commands(runs),
        ]
        write_result("translation", "translation.py", "demo", "Translation", parts, ["sacrebleu"], folder=paths.results)


def opening(runs: Runs, entries: Entries, notes: Mapping[str, Any]) -> list[str]:
    """What was done, and the table of all runs."""
    if not runs:
        return ["No run has come to its end yet."]
    sizes: dict[str, str] = {}
    for name, run in runs.items():
        counts = run["pairs"]
        sizes[entries[name].corpus.title] = (
            f"{counts['train']:,} pairs, {counts['dev']:,} for dev, {counts['test']:,} for test"
        )
    sizes_text = "; ".join(f"{title}: {counts}" for title, counts in sizes.items())
    signatures, beams = (sorted({str(run[name]) for run in runs.values()}) for name in ("signature", "beam"))
    signatures = [f"`{signature}`" for signature in signatures]
    before: Runs = notes.get("before", {})
    rows = [_row(entries[name], found, before.get(name)) for name, found in runs.items()]
    header = [
        "model",
        "pairs",
        "parameters",
        "tokens/s",
        "steps",
        "minutes on threads",
        "dev BLEU",
        "test BLEU",
        "before",
        "goal",
    ]
    return [
        "Translators that begin with random weights and see nothing but the training pairs of their corpus, on a CPU. "
        f"{sizes_text}. Multi30k holds captions of pictures (its test set is test2016); its terms do not let us quote "
        "it, so no sentence of it stands here.",
        f"BLEU is of plain text as people read it, cased, by sacreBLEU ({', '.join(signatures)}), with a beam of "
        f"{' or '.join(beams)} as `translate` uses it. Of the evaluations of a run the best counts, by greedy BLEU on "
        "dev pairs, so the dev column is slightly too good; the test set decides nothing. One run each (seed 0), so "
        f"differences of a few tenths say nothing. {settings_of(runs, entries, notes.get('timed', {}))} The minutes "
        "that runs took, evaluations included, stand in the table (bf16: matrix products in bfloat16 while learning). "
        "tokens/s counts both sides, in training alone." + (f" {HALVES}" if "attention-dot" in runs else ""),
        table(header, rows),
        *goals(runs, entries),
    ]


def settings_of(runs: Runs, entries: Entries, timed: Mapping[str, Any]) -> str:
    """Which runs have the usual settings, and which their own and fixed steps."""
    minutes = sorted({f"{entries[name].minutes:g}" for name in runs if entries[name].by_clock})
    told = (
        f"Runs of {' or '.join(minutes)} minutes are told kind, score, minutes and, where it is not teacher forcing, "
        "what the decoder reads; all else is as it comes. Before: the same minutes with a vocabulary, sizes and rates "
        "by hand, and batches of 4,096 tokens, for which steps were fixed beforehand; dot in one direction. "
    )
    fixed = (
        f"Steps of {'the others' if minutes else 'runs'} were fixed beforehand, such that they take their minutes with "
        f"{THREADS} threads in float32 ({timings(timed, runs)}). "
    )
    return (told * bool(minutes) + fixed * any(not entries[name].by_clock for name in runs)).strip()


def timings(timed: Mapping[str, Any], runs: Runs) -> str:
    """On which machine the steps of the runs were fixed, and which timings others at work may have shortened."""
    by_machine: dict[str, list[str]] = {}
    for name in (name for name in runs if name in timed):
        load = timed[name].get("load_before", 0)
        busy = f" at a load of {load:g}" if load > BUSY else ""
        by_machine.setdefault(timed[name]["machine"], []).append(f"`{name}`{busy}")
    return "timed on " + "; ".join(f"{machine}: {', '.join(names)}" for machine, names in by_machine.items())


def goals(runs: Runs, entries: Entries) -> list[str]:
    """Is each goal reached?"""
    asked = {name: goal for name in runs if (goal := entries[name].goal) is not None}
    lines = [
        f"“{entries[name].title}” on {entries[name].corpus.title}, {goal:g} BLEU: "
        f"{yes(runs[name]['test'] >= goal)} ({runs[name]['test']:.2f})"
        for name, goal in asked.items()
    ]
    return [f"Goals reached on the test set? {'; '.join(lines)}."] if lines else []


def yes(answer: bool) -> str:
    return "yes" if answer else "no"


def _row(asked: Entry, found: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[str]:
    goal = "" if asked.goal is None else f"{asked.goal:g}"
    took = f"{found['minutes']:g} on {found['threads']}" if found["minutes"] else ""
    took += ", bf16" if took and found["settings"].get("precision") == "bf16" else ""
    speed = f"{found['tokens_per_second']:,}" if found["tokens_per_second"] else ""
    sizes = [f"{found['parameters']:,}", speed, f"{found['steps']:,}", took]
    earlier = "" if before is None else f"{before['test']:.1f}"
    return [asked.title, asked.corpus.title, *sizes, f"{found['dev']:.1f}", f"**{found['test']:.1f}**", earlier, goal]


def lengths(runs: Runs, entries: Entries, paths: RecipePaths) -> list[str]:
    """BLEU by the length of the source, one table for each test set; a picture and a verdict for equal minutes."""
    parts: list[str] = []
    for title in dict.fromkeys(entries[name].corpus.title for name in runs):
        grouped = {name: run["groups"] for name, run in runs.items() if entries[name].corpus.title == title}
        counts = {group: kept["sentences"] for groups in grouped.values() for group, kept in groups.items()}
        shown = [group for group in GROUPS if group in counts]
        rows = [
            [entries[name].title, *(f"{groups[group]['bleu']:.1f}" for group in shown)]
            for name, groups in grouped.items()
        ]
        header = [title, *(f"{group} words ({counts[group]:,} sentences)" for group in shown)]
        parts.append(table(header, rows))
    if parts:
        parts.insert(0, "## By length\n\nTest BLEU of the same translations, by the words of the source.")
    compared = {name: runs[name] for name in COMPARED if name in runs}
    if len(compared) > 1:
        draw_lengths(compared, entries, paths.results / "translation-by-length.png")
        parts.append("![Test BLEU by the length of the source](translation-by-length.png)")
    return parts + verdict(compared, entries)


def draw_lengths(runs: Runs, entries: Entries, path: Path) -> None:
    """A line for each run."""
    figure = new_figure(9.0, 5.5)
    axes = figure.subplots()
    shown = {group: kept["sentences"] for group, kept in next(iter(runs.values()))["groups"].items()}
    for (name, run), colour, marker in zip(runs.items(), COLOURS, MARKERS, strict=False):
        values = [run["groups"][group]["bleu"] for group in shown]
        style = "--" if name == BOTTLENECK else "-"
        axes.plot(range(len(shown)), values, style, color=colour, marker=marker, linewidth=2, label=entries[name].title)
    axes.set_xticks(range(len(shown)), [f"{group}\n({count:,} sentences)" for group, count in shown.items()])
    axes.set_xlabel("words of the source", fontsize=12)
    axes.set_ylabel("test BLEU", fontsize=12)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.1)
    axes.tick_params(labelsize=11)
    axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=11)
    write_figure(figure, path)


def verdict(runs: Runs, entries: Entries) -> list[str]:
    """Did attention help, and where most?"""
    looking = [name for name in ATTENTION if name in runs]
    if BOTTLENECK not in runs or not looking:
        return []
    best = max(looking, key=lambda name: runs[name]["dev"])
    pairs = [(best, BOTTLENECK), (TRANSFORMER, best)] if TRANSFORMER in runs else [(best, BOTTLENECK)]
    answer = yes(runs[best]["test"] > runs[BOTTLENECK]["test"])
    sentences = [f"Does attention help in equal minutes? For the best of its kinds on dev, {answer}."]
    sentences += [above(runs[best]["groups"], runs[BOTTLENECK]["groups"], group) for group in LONG]
    sentences += [
        compared(runs[first], runs[second], entries[first].title, entries[second].title) for first, second in pairs
    ]
    return [" ".join(sentences) + f" {falls(runs, entries)}"]


def above(first: Mapping[str, Any], second: Mapping[str, Any], group: str) -> str:
    """Is it above no attention where sources are long?"""
    if group not in first or group not in second:
        return f"No source has {group} words."
    ours, theirs = first[group]["bleu"], second[group]["bleu"]
    return f"Above no attention at {group} words: {yes(ours > theirs)} ({ours:.1f} against {theirs:.1f})."


def compared(first: Mapping[str, Any], second: Mapping[str, Any], title: str, other: str) -> str:
    """The difference of two runs, as a whole and by length."""
    shown = [group for group in GROUPS if group in first["groups"] and group in second["groups"]]
    gains = {group: first["groups"][group]["bleu"] - second["groups"][group]["bleu"] for group in shown}
    listed = ", ".join(f"{gain:+.1f} for {group} words" for group, gain in gains.items())
    most = max(gains, key=gains.__getitem__)
    ordered = list(gains.values())
    rising = "it grows with every group" if ordered == sorted(set(ordered)) else "it does not grow with every group"
    return (
        f"“{title}” reaches {first['test']:.1f}, “{other}” {second['test']:.1f}, a difference of "
        f"{first['test'] - second['test']:+.1f} BLEU: {listed}. It is greatest for {most} words; {rising}."
    )


def falls(runs: Runs, entries: Entries) -> str:
    """What each loses from the shortest sources to the longest."""
    groups = list(next(iter(runs.values()))["groups"])
    change = {name: run["groups"][groups[-1]]["bleu"] - run["groups"][groups[0]]["bleu"] for name, run in runs.items()}
    listed = ", ".join(f"{entries[name].title} {value:+.1f}" for name, value in change.items())
    count = next(iter(runs.values()))["groups"][groups[-1]]["sentences"]
    return (
        f"From {groups[0]} to {groups[-1]} words BLEU changes by: {listed}. The last group has {count:,} sentences, so "
        "a point more or less there means little."
    )


def teacher_forcing(runs: Runs) -> list[str]:
    """The same model and minutes, three kinds of reading."""
    readings = {name: runs[name] for name in FORCED if name in runs}
    if len(readings) < 2 or TAUGHT not in readings:
        return []
    rows = [
        [
            FORCED[name],
            f"{run['steps']:,}",
            f"{run['tokens_per_second']:,}",
            f"{run['dev']:.1f}",
            f"{run['test']:.1f}",
        ]
        for name, run in readings.items()
    ]
    base = readings[TAUGHT]["test"]
    gains = "; ".join(f"{FORCED[name]}, {run['test'] - base:+.1f}" for name, run in readings.items() if name != TAUGHT)
    return [
        "## Teacher forcing and own guesses\n\nThe same model with attention (bilinear), the same minutes and pairs; "
        "what differs is what the decoder reads while it learns. When it translates it reads its own guesses anyway.",
        table(["the decoder reads", "steps", "tokens/s", "dev BLEU", "test BLEU"], rows),
        f"Test BLEU against teacher forcing: {gains}.",
    ]


def tatoeba(runs: Runs, entries: Entries) -> list[str]:
    """Twenty translations, chosen by a rule."""
    run = next((run for name, run in runs.items() if entries[name].corpus.tatoeba and "samples" in run), None)
    if run is None:
        return []
    chosen: Mapping[str, list[dict[str, Any]]] = run["samples"]
    rows = [
        [kind, *(escaped(row[side], LONGEST_TEXT) for side in ("source", "reference", "text")), f"{row['bleu']:.0f}"]
        for kind, kept in chosen.items()
        for row in kept
    ]
    return [
        f"## English to French on Tatoeba\n\n{run['pairs']['test']:,} pairs were held out for test and "
        f"{run['pairs']['dev']:,} for dev, divided by English sentence: none is on two sides. No-break and narrow "
        f"blanks became plain ones. The model reaches {run['test']:.1f} BLEU; {100 * run['exact']:.1f} % of its "
        "translations are the reference, letter by letter (many of the others may be right too).",
        f"The rows were chosen by a rule: {len(chosen['random'])} at random (seed 0); then, of the other sources with "
        f"more than {SAMPLE_WORDS} words whose translation is not the reference itself, the {len(chosen['best'])} best "
        f"and the {len(chosen['worst'])} worst by the BLEU of the sentence alone. A low BLEU may be another way to say "
        "it right.",
        table(["chosen", "English", "reference", "the model writes", "BLEU"], rows),
        "The pairs are from [tatoeba.org](https://tatoeba.org) by way of [manythings.org/anki]"
        "(https://www.manythings.org/anki/), under [CC BY 2.0 FR](https://creativecommons.org/licenses/by/2.0/fr/).",
    ]


def draw_alignments(aligned: Mapping[str, Any], paths: RecipePaths) -> dict[str, Any]:
    """Pictures of sentences of our own, for each language that a model is there for; what they show.

    Those that `aligned` tells of are not drawn again if model and sentences are still the same.
    """
    drawn: dict[str, Any] = {}
    for language, (names, sentences) in ALIGNED.items():
        name = next((name for name in names if (paths.runs / name / "model").exists()), None)
        if name is None:
            continue
        stamp = {"run": name, "weights": sha256(paths.runs / name / "model" / "model.safetensors")}
        known = aligned.get(language, {"shown": []})
        same = stamp.items() <= known.items() and [row["source"] for row in known["shown"]] == list(sentences)
        if not same or not all((paths.results / row["picture"]).exists() for row in known["shown"]):
            drawn[language] = stamp | _drawn(load_translator(paths.runs / name, "cpu"), language, sentences, paths)
    return drawn


def _drawn(translator: Translator, language: str, sentences: Sequence[str], paths: RecipePaths) -> dict[str, Any]:
    shown, layers = [], 1
    for number, sentence in enumerate(sentences, 1):
        found = translator.align(sentence, str(translator.translate(sentence, max_tokens=LONGEST_DRAWN)))
        picture, layers = f"translation-{language.lower()}-{number}.png", len(found.weights)
        alignment_picture(found, paths.results / picture, alignment_layer(layers) + 1)
        matrix = found.matrix(alignment_layer(layers) + 1)
        crossed = crossings(found.source, found.target, matrix.argmax(1).tolist())
        shown.append({"picture": picture, "source": sentence, "text": found.target_text, "crossed": crossed})
    return {"layer": alignment_layer(layers) + 1, "layers": layers, "shown": shown}


def crossings(source: Sequence[str], target: Sequence[str], looked: Sequence[int]) -> list[str]:
    """Neighbours in the target that look at words of the source in the other order; marks and ends are no words."""
    words = [
        (word, index)
        for word, index in zip(target, looked, strict=True)
        if word[0].isalnum() and source[index][0].isalnum()
    ]
    return [
        f"“{left} {right}” looks at “{source[first]}” before “{source[second]}”"
        for (left, first), (right, second) in pairwise(words)
        if second < first
    ]


def alignments(aligned: Mapping[str, Any], paths: RecipePaths) -> list[str]:
    """The pictures that there are."""
    parts = []
    for language, drawn in ((language, aligned[language]) for language in ALIGNED if language in aligned):
        kept = [row for row in drawn["shown"] if (paths.results / row["picture"]).exists()]
        several = drawn["layers"] > 1
        where = f", layer {drawn['layer']} of {drawn['layers']}, mean over its heads" if several else ""
        parts.append(f"Into {language}, by `{drawn['run']}`{where}:")
        for row in kept:
            parts.append(f"{escaped(row['source'], LONGEST_TEXT)} → {escaped(row['text'], LONGEST_TEXT)}")
            parts.append(f"![Attention: {escaped(row['source'], LONGEST_TEXT)}]({row['picture']})")
            if "crossed" in row:
                crossed = "; ".join(escaped(pair, LONGEST_TEXT) for pair in row["crossed"])
                parts.append(f"Crossed: {crossed}." if crossed else "Monotone: no word looks left of its neighbour.")
    if not parts:
        return []
    lead = (
        "Sentences of our own and what the models write. A row is a word that is written, its shades say where in the "
    )
    return [f"## Where the models look\n\n{lead}source the decoder looked meanwhile (`kinfolk align`).", *parts]


def commands(runs: Runs) -> list[str]:
    """Each run from a shell."""
    if not runs:
        return []
    lines = "\n".join(run["command"] for run in runs.values())
    made = "Each line can be run alone, and a run that was stopped goes on; the recipe makes Tatoeba's files:"
    return [f"## Commands\n\n{made}", f"```sh\n{lines}\n```"]
