"""The recipe behind docs/results/translation.md, on made-up pairs: from timing to the page, and again without work."""

from __future__ import annotations

import argparse
import dataclasses
import random
import shlex
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kinfolk.data.tables import Pair
from kinfolk.errors import InputError
from kinfolk.files import read_object
from kinfolk.training.runs import Progress
from small_pairs import SIZES, VOCABULARY, WORDS, translated
from surroundings import Command

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
Run = Callable[..., None]


@pytest.fixture(autouse=True)
def recipes_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(RECIPES))


def small(count: int, seed: int) -> list[tuple[str, str]]:
    """Sentences of one to eighteen words."""
    draw = random.Random(seed)
    sources = [" ".join(draw.choices(list(WORDS), k=draw.randint(1, 18))) for _ in range(count)]
    return [(source, translated(source)) for source in sources]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with the files that the recipe asks for."""
    monkeypatch.setenv("KINFOLK_DATA", str(tmp_path / "data"))
    (tmp_path / "data" / "multi30k").mkdir(parents=True)
    (tmp_path / "data" / "tatoeba").mkdir()
    for number, (part, count) in enumerate((("train", 60), ("val", 8), ("test2016", 24))):
        sides = zip(*small(count, number), strict=True)
        for language, lines in zip(("en", "de"), sides, strict=True):
            path = tmp_path / "data" / "multi30k" / f"{part}.{language}"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = [f"{source}\t{target}\u202f!\n{source}\t{target}\u00a0?\n" for source, target in small(80, 3)]
    (tmp_path / "data" / "tatoeba" / "eng-fra.tsv").write_text("".join(rows), encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(data: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The recipe with tiny models, below a folder of its own."""
    import translation
    import translation_page

    training = {"batch_size": 32, "evaluations": 1}
    for name, asked in translation.ENTRIES.items():
        sizes = SIZES[asked.kind] | ({"score": "additive"} if asked.kind == "attention" else {})
        corpus = dataclasses.replace(asked.corpus, vocabulary=VOCABULARY)
        tiny = dataclasses.replace(asked, changes=sizes, training=training, corpus=corpus, minutes=0.05)
        monkeypatch.setitem(translation.ENTRIES, name, tiny)
    paths = translation.RecipePaths.of("translation", data / "output")
    monkeypatch.setattr(translation_page, "LONGEST_DRAWN", 6)
    for language, (names, sentences) in translation_page.ALIGNED.items():
        short = [" ".join(list(WORDS)[: number + 2]) for number in range(len(sentences))]
        monkeypatch.setitem(translation_page.ALIGNED, language, (names, short))

    def started(*names: str, time: bool = False, only_write: bool = False, steps: int | None = 2) -> None:
        given = argparse.Namespace(names=list(names), time=time, only_write=only_write, steps=steps, precision="fp32")
        translation.run(given, paths)

    return started


@pytest.mark.filterwarnings("ignore::kinfolk.api.translate.TranslationWarning")  # so few steps teach nothing
def test_steps_are_fixed_by_timing_where_the_clock_does_not_decide(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import translation_clock

    monkeypatch.setattr(translation_clock, "THREADS", 1)
    monkeypatch.setattr("os.getloadavg", lambda: (1.234, 5.0, 5.0))
    with pytest.raises(SystemExit, match="transformer-60 has no steps yet; on an idle machine run"):
        run("transformer-60", steps=None)
    with pytest.raises(SystemExit, match="seq2seq goes by the clock: it has no steps to fix"):
        run("seq2seq", time=True)
    run("transformer-60", time=True)
    timed = read_object(data / "output" / "translation.json")["timed"]["transformer-60"]
    assert timed["steps"] == sorted(timed["tries"])[1]
    assert timed["load_before"] == 1.23
    assert not (data / "output" / "runs" / "translation" / "transformer-60").exists()
    assert f"transformer-60: {timed['steps']:,} steps take" in capsys.readouterr().err
    run("transformer-60", "seq2seq", steps=None)
    runs = read_object(data / "output" / "translation.json")["runs"]
    assert runs["transformer-60"]["steps"] == timed["steps"]
    assert runs["transformer-60"]["command"].endswith(f"--steps {timed['steps']}")
    assert runs["seq2seq"]["command"].endswith("--minutes 0.05")


def test_more_minutes_are_more_steps(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import translation
    import translation_clock

    monkeypatch.setattr(translation, "TIMINGS", 1)
    monkeypatch.setattr(translation_clock, "THREADS", 1)
    monkeypatch.setattr("kinfolk.training.trainer.REHEARSED_AMONG", 3)

    def steps(minutes: float) -> int:
        asked = dataclasses.replace(translation.ENTRIES["transformer-60"], minutes=minutes)
        monkeypatch.setitem(translation.ENTRIES, "transformer-60", asked)
        run("transformer-60", time=True)
        return int(read_object(data / "output" / "translation.json")["timed"]["transformer-60"]["steps"])

    assert steps(600) > 100 * steps(0.05)


@pytest.mark.filterwarnings("ignore::kinfolk.api.translate.TranslationWarning")  # it has learned nothing
def test_from_pairs_to_the_page_and_not_twice(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import translation
    import translation_page

    names = ["seq2seq", "attention-bilinear", "scheduled-sampling", "tatoeba-45"]
    run(*names)
    output = data / "output"
    runs = read_object(output / "translation.json")["runs"]
    assert list(runs) == names
    found = runs["attention-bilinear"]
    assert (found["steps"], found["beam"], found["pairs"]) == (2, 4, {"train": 60, "dev": 8, "test": 24})
    assert found["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    assert sum(group["sentences"] for group in found["groups"].values()) == 24
    page = (output / "translation.md").read_text(encoding="utf-8")
    for section in ("By length", "Teacher forcing and own guesses", "English to French on Tatoeba", "Where the models"):
        assert f"## {section}" in page
    assert "Does attention help in equal minutes?" in page
    pictures = [line.partition("](")[2].rstrip(")") for line in page.splitlines() if line.startswith("![")]
    assert len(pictures) == 7
    assert all((output / picture).read_bytes().startswith(b"\x89PNG") for picture in pictures)
    assert str(data) not in page
    assert capsys.readouterr().out == page + "\n"

    monkeypatch.setattr(translation, "train_translator", lambda *given, **named: pytest.fail("trained again"))
    monkeypatch.setattr(translation, "note", lambda *given: pytest.fail("measured again"))
    monkeypatch.setattr(translation_page, "alignment_picture", lambda *given: pytest.fail("drawn again"))
    run(*names)


def test_a_page_without_all_runs_leaves_sections_out(run: Run, data: Path) -> None:
    run(only_write=True)
    page = (data / "output" / "translation.md").read_text(encoding="utf-8")
    assert "No run has come to its end yet." in page
    assert "##" not in page.removeprefix("# ")


def test_a_finished_run_that_was_not_noted_is_measured_without_training(run: Run, data: Path) -> None:
    run("seq2seq")
    notes = data / "output" / "translation.json"
    first = read_object(notes)["runs"]["seq2seq"]
    notes.unlink()
    run("seq2seq")
    assert read_object(notes)["runs"]["seq2seq"] == first


def test_the_figure_of_earlier_settings_stands_beside_that_of_today(run: Run, data: Path) -> None:
    from common import RecipePaths

    run("seq2seq")
    with RecipePaths.of("translation", data / "output").noting() as notes:
        notes["before"] = {"seq2seq": {"test": 76.54}}
    run(only_write=True)
    (row,) = (line for line in (data / "output" / "translation.md").read_text().splitlines() if "**" in line)
    assert row.startswith("| Seq2Seq, no attention |")
    assert row.endswith("** | 76.5 |  |")


def test_the_command_of_an_entry_says_what_the_recipe_does(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    import translation

    import kinfolk.api.train_translator as job

    told: dict[str, Any] = {}

    def caught(**named: Any) -> None:
        told.clear()
        told.update(named)
        raise InputError("enough")

    monkeypatch.setattr(job, "train_translator", caught)
    for name, asked in translation.ENTRIES.items():
        steps = None if asked.by_clock else 123
        ended = command(*shlex.split(asked.command(name, steps))[1:])
        assert ended.err == "kinfolk: enough\n"
        wanted = asked.arguments | asked.length(steps) | {"output": Path("runs/translation") / name}
        assert {key: told[key] for key in wanted} == wanted
        others = job.USUAL | {"size": "small", "joint": None, "vocabulary_kind": None, "seed": 0, "minutes": None}
        hf_defaults = {key: value for key, value in others.items() if key in told and key not in wanted}
        assert {key: told[key] for key in hf_defaults} == hf_defaults
        files = [told.get(key) for key in ("pairs", "source", "target", "dev")]
        assert [path.name for path in files if isinstance(path, Path)] == (
            ["train.tsv", "dev.tsv"] if asked.corpus.tatoeba else ["train.en", f"train.{asked.corpus.language}"]
        )


def test_no_english_sentence_of_tatoeba_is_in_two_parts_and_blanks_are_plain(data: Path) -> None:
    from common import RecipePaths
    from translation import TATOEBA

    paths = RecipePaths.of("translation", data / "output")
    parts = {part: TATOEBA.pairs(part, paths) for part in ("train", "dev", "test")}
    assert sum(map(len, parts.values())) == 160
    sources = {part: {pair.source for pair in pairs} for part, pairs in parts.items()}
    assert all(sources.values())
    assert sum(map(len, sources.values())) == len(set.union(*sources.values()))
    assert all(pair.target.endswith((" !", " ?")) for pairs in parts.values() for pair in pairs)


def test_notes_of_processes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    from common import RecipePaths

    def add(number: int) -> None:
        with RecipePaths.of("translation", tmp_path).noting() as notes:
            notes.setdefault("runs", {})[str(number)] = {"test": number}

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert len(RecipePaths.of("translation", tmp_path).notes["runs"]) == 40
    with pytest.raises(TypeError), RecipePaths.of("translation", tmp_path).noting() as notes:
        notes["runs"] = None + notes["runs"]
    assert len(RecipePaths.of("translation", tmp_path).notes["runs"]) == 40


def test_groups_hold_each_sentence_once_by_the_words_of_its_source() -> None:
    from translation import by_length

    pairs = [Pair("w " * words, "one two three four five", "") for words in (1, 8, 9, 12, 13, 16, 17, 40)]
    texts = ["one two three four five"] * 4 + ["other"] * 4
    found = by_length(pairs, texts)
    assert {title: kept["sentences"] for title, kept in found.items()} == {"1-8": 2, "9-12": 2, "13-16": 2, "17+": 2}
    assert [round(kept["bleu"]) for kept in found.values()] == [100, 100, 0, 0]


def test_samples_are_chosen_as_the_page_says() -> None:
    from translation import samples

    pairs = [Pair(f"a b c d e f g {number}", f"one two three {number} four five", "") for number in range(60)]
    texts = [pair.target if number % 2 else f"one two {number}" for number, pair in enumerate(pairs)]
    pairs.append(Pair("short", "x", ""))
    found = samples(pairs, [*texts, "y"])
    assert {kind: len(rows) for kind, rows in found.items()} == {"random": 10, "best": 5, "worst": 5}
    extreme = found["best"] + found["worst"]
    assert all(row["text"] != row["reference"] and row not in found["random"] for row in extreme)
    assert min(row["bleu"] for row in found["best"]) >= max(row["bleu"] for row in found["worst"])
    assert "short" not in {row["source"] for row in extreme}


def test_the_verdict_is_computed() -> None:
    from translation import ENTRIES
    from translation_page import verdict

    def figures(test: float, *groups: float) -> dict[str, Any]:
        titles = ("1-8", "9-12", "13-16", "17+")
        kept = {title: {"sentences": 10, "bleu": bleu} for title, bleu in zip(titles, groups, strict=True)}
        return {"test": test, "dev": test, "groups": kept}

    runs = {"seq2seq": figures(20, 25, 20, 15, 10), "attention-dot": figures(21, 25, 21, 17, 13)}
    (text,) = verdict(runs, ENTRIES)
    assert "For the best of its kinds on dev, yes." in text
    assert "Above no attention at 13-16 words: yes (17.0 against 15.0). Above no attention at 17+ words: yes" in text
    assert "a difference of +1.0 BLEU: +0.0 for 1-8 words, +1.0 for 9-12 words, +2.0 for 13-16 words, +3.0" in text
    assert "It is greatest for 17+ words; it grows with every group." in text
    assert "Seq2Seq, no attention -15.0" in text
    worse = runs | {"attention-dot": figures(19, 24, 19, 18, 9)}
    (text,) = verdict(worse, ENTRIES)
    assert "For the best of its kinds on dev, no." in text
    assert "at 13-16 words: yes (18.0 against 15.0). Above no attention at 17+ words: no (9.0 against 10.0)." in text
    assert "It is greatest for 13-16 words; it does not grow with every group." in text
    assert verdict({"seq2seq": runs["seq2seq"]}, ENTRIES) == []


def test_goals_are_answered_from_the_figures() -> None:
    from translation import ENTRIES
    from translation_page import goals

    runs = {"transformer-60": {"test": 35.0}, "french-45": {"test": 51.96}, "seq2seq": {"test": 6.5}}
    (text,) = goals(runs, ENTRIES)
    assert text == (
        "Goals reached on the test set? “Transformer, longer” on Multi30k English-German, 35 BLEU: yes (35.00); "
        "“Transformer” on Multi30k English-French, 52 BLEU: no (51.96)."
    )
    assert goals({"seq2seq": runs["seq2seq"]}, ENTRIES) == []


def test_the_clock_goes_on_after_a_stop_and_counts_plain_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import translation_clock
    from translation_clock import Clock

    now = iter(range(1000))
    monkeypatch.setattr(translation_clock.time, "monotonic", lambda: next(now))
    for steps in (3, 6):
        with Clock(tmp_path / "clock.json") as clock:
            for step in range(1, 7):
                clock.watch(Progress(step, 6, 1.0, 0, {"bleu": 1.0} if step == 3 else None))
        assert clock.steps == steps  # each time the second, fifth and sixth: not the first, the third or the one after
    assert Clock(tmp_path / "clock.json").seconds == clock.seconds > 12
