"""From pairs to a translator and its use, by commands."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from kinfolk.api.loaded import load_translator
from small_pairs import pairs, translated, write_pairs
from surroundings import Command

SET = "width=32,hidden=32,layers=1,dropout=0,score=dot"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "train.en", tmp_path / "train.xx"
    for side, path in enumerate(paths):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs(60)))
    return paths


def test_training_tells_what_it_does_and_keeps_a_model(
    command: Command, files: tuple[Path, Path], tmp_path: Path
) -> None:
    options = ["--kind", "attention", "--set", SET, "--vocabulary-size", "40", "--steps", "4", "--evaluations", "2"]
    data = ["--source", files[0], "--target", files[1], "--dev", write_pairs(tmp_path / "dev.tsv", 10, seed=1)]
    ended = command("train-translator", *data, *options, "--output", tmp_path / "run", "--device", "cpu")
    assert ended.code == 0
    assert re.search(r"pairs .*\b60\b.*\b10\b", ended.err)
    assert "step 4 of 4" in ended.err
    assert "bleu" in ended.out
    assert "nrefs:1|" in ended.out
    settings = load_translator(tmp_path / "run", device="cpu").model.config
    assert (settings.score, settings.bidirectional, settings.source_hidden) == ("dot", True, 16)
    again = command("train-translator", *data, *options, "--output", tmp_path / "run", "--device", "cpu")
    assert (again.code, "already holds" in again.err) == (2, True)


def test_texts_are_translated_line_by_line(command: Command, small_translator: Path) -> None:
    ended = command("translate", "--model", small_translator, "salt moon", "", "star", "--device", "cpu")
    assert (ended.code, ended.out.split("\n"), ended.err) == (0, ["lun sel", "", "ast", ""], "")
    ended = command("translate", "--model", small_translator, "salt moon", "--n-best", "2", "--json")
    (options,) = json.loads(ended.out)
    assert options[0]["text"] == "lun sel"
    assert options[0]["score"] > options[1]["score"]
    several = command("translate", "--model", small_translator, "salt moon", "--n-best", "2").out.splitlines()
    assert [line.split("\t")[1] for line in several] == [option["text"] for option in options]


def test_the_best_of_several_texts_are_reported_with_their_numbers(
    command: Command, small_translator: Path, tmp_path: Path
) -> None:
    texts = ["salt moon", "", "star"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    output = command("translate", "--model", small_translator, *texts, "--n-best", "2").out
    lines = [line.split("\t") for line in output.split("\n")[:-1]]
    assert [number for number, _, _ in lines] == ["1", "1", "2", "3", "3"]
    assert (lines[0][2], lines[2][2], lines[3][2]) == ("lun sel", "", "ast")
    assert float(lines[0][1]) > float(lines[1][1])
    assert (
        command("translate", "--model", small_translator, "--input", tmp_path / "texts.txt", "--n-best", "2").out
        == output
    )


def test_a_file_is_translated_to_a_file_or_to_the_screen(
    command: Command, small_translator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("salt moon\n\nstar\n")
    ended = command("translate", "--model", small_translator, "--input", path, "--output", tmp_path / "out.txt")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith("3 texts, ")
    assert (tmp_path / "out.txt").read_text() == "lun sel\n\nast\n"
    assert command("translate", "--model", small_translator, "--input", path).out == "lun sel\n\nast\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"star\n")))
    assert command("translate", "--model", small_translator, "--input", "-").out == "ast\n"


def test_a_warning_is_one_line(command: Command, small_translator: Path) -> None:
    ended = command("translate", "--model", small_translator, "salt " * 9)
    assert re.match("kinfolk: 1 texts .*7 tokens", ended.err)
    assert ended.err.count("\n") == 1


def test_an_alignment_is_shown_or_drawn(command: Command, small_translator: Path, tmp_path: Path) -> None:
    table = command("align", "--model", small_translator, "salt moon", "lun sel").out.splitlines()
    assert table[0].split() == ["salt", "moon", "<end>"]
    assert [line.split()[0] for line in table[1:]] == ["lun", "sel", "<end>"]
    ended = command("align", "--model", small_translator, "salt moon", "--output", tmp_path / "x.png", "--json")
    assert json.loads(ended.out)["target"] == ["lun", "sel", "<end>"]
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    for options in ([], ["--json"], ["--output", tmp_path / "y.png"]):
        ended = command("align", "--model", small_translator, "salt", "--layer", "2", *options)
        assert (ended.code, "layer=2" in ended.err) == (2, True)


def test_a_translator_is_measured_by_bleu(command: Command, small_translator: Path, tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "test.tsv", 20, seed=8)
    output = json.loads(command("evaluate", "--model", small_translator, "--input", path, "--json").out)
    assert output["pairs"] == 20
    assert output["metrics"]["bleu"] > 80
    assert output["signature"].startswith("nrefs:1|")
    for side, name in enumerate(("a.en", "a.xx")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs(20, seed=8)))
    table = command(
        "evaluate", "--model", small_translator, "--input", tmp_path / "a.en", "--target", tmp_path / "a.xx"
    )
    assert f"bleu         {output['metrics']['bleu']:.4f}" in table.out


def test_wrong_usage_is_reported(command: Command, small_translator: Path, tiny_bert: Path, tmp_path: Path) -> None:
    run = ["train-translator", "--output", tmp_path / "run"]
    for arguments, message in (
        (run, "pairs"),
        ([*run, "--pairs", tmp_path / "absent.tsv"], "absent.tsv"),
        ([*run, "--dev-source", "x"], "--dev-target"),
        ([*run, "--pairs", "x", "--set", "width"], "--set"),
        (["translate", "--model", small_translator], "TEXTS"),
        (["translate", "--model", small_translator, "a", "--output", "x"], "--input"),
        (["translate", "--model", small_translator, "a", "--column", "x"], "--input"),
        (["translate", "--model", tiny_bert, "a"], "tiny-bert"),
        (["fill-mask", "--model", small_translator, "a"], "encoder"),
        (["evaluate", "--model", tiny_bert, "--input", "x", "--beam", "2"], "--beam"),
    ):
        ended = command(*arguments)
        assert ended.code == 2
        assert message in ended.err, ended.err
    assert not (tmp_path / "run").exists()


def test_a_folder_and_a_preset_are_described(command: Command, small_translator: Path, tmp_path: Path) -> None:
    lines = command("info", small_translator / "model").out
    assert "Attention Seq2Seq" in lines
    assert "PairTokenizer, 70 tokens" in lines
    assert json.loads(command("info", "transformer-base", "--json").out)["parameters"] == 63_082_496
    assert "(published: 213M)" in command("info", "transformer-big").out
    assert command("convert", "--model", small_translator, "--output", tmp_path / "copy").code == 0
    assert command("translate", "--model", tmp_path / "copy", "star").out == f"{translated('star')}\n"


def test_numbers_go_on_from_chunk_to_chunk(
    command: Command, small_translator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinfolk.api.translate.CHUNK_TEXTS", 2)
    (tmp_path / "in.txt").write_text("salt\nmoon\nstar\nsalt moon\nmoon\n")
    ended = command("translate", "--model", small_translator, "--input", tmp_path / "in.txt", "--n-best", "2")
    assert [line.split("\t")[0] for line in ended.out.splitlines()] == [str(n) for n in range(1, 6) for _ in range(2)]
