"""`kinfolk embed` writes one row a text, wherever the texts come from, and tells bad input before it computes."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest

from kinfolk.api.loaded import Encoder, load
from kinfolk.cli.options import parse_layers
from kinfolk.demo import passages
from kinfolk.models.family import family, init_model
from kinfolk.text.train import train_tokenizer
from surroundings import Command

TEXTS = ["Snow falls.", "", "  ", "Bread rises because yeast feeds on sugars."]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return path


def expected(model: Path, **options: object) -> np.ndarray:
    vectors = load(model, device="cpu").embed(TEXTS, **options)  # type: ignore[arg-type]
    assert isinstance(vectors, np.ndarray)
    return vectors


def test_every_line_is_a_row_also_an_empty_one(command: Command, tiny_bert: Path, lines: Path, tmp_path: Path) -> None:
    ended = command("embed", "--model", tiny_bert, "--input", lines, "--output", tmp_path / "v.npy")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith("4 texts, 32 dimensions, ")
    assert ended.err.count("\n") == 1
    assert "\r" not in ended.err
    actual = np.load(tmp_path / "v.npy")
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected(tiny_bert), atol=1e-6)


@pytest.mark.parametrize(("pool", "meant"), [("max", "max"), ("cls", "first")])
def test_options_reach_the_model(
    pool: str, meant: str, command: Command, tiny_bert: Path, lines: Path, tmp_path: Path
) -> None:
    options = ["--layers", "0,2", "--pool", pool, "--normalize", "--device", "cpu"]
    assert command("embed", "--model", tiny_bert, "--input", lines, "--output", tmp_path / "v.npy", *options).code == 0
    wanted = expected(tiny_bert, layers=[0, 2], pool=meant, normalize=True)
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), wanted, atol=1e-6)


def test_standard_input_and_tables_give_the_same_rows(
    command: Command, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\r\n".join(TEXTS).encode())))
    (tmp_path / "t.tsv").write_text("n\tsentence\n" + "".join(f"{n}\t{text}\n" for n, text in enumerate(TEXTS)))
    sources = [("-",), (tmp_path / "t.tsv", "--column", "sentence")]
    for source in sources:
        ended = command("embed", "--model", tiny_bert, "--output", tmp_path / "v.npy", "--input", *source)
        assert ended.code == 0
        np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected(tiny_bert), atol=1e-6)


def test_tokens_go_to_json_lines(command: Command, tiny_bert: Path, lines: Path, tmp_path: Path) -> None:
    start = ("embed", "--model", tiny_bert, "--input", lines, "--pool", "none", "--output")
    assert command(*start, tmp_path / "v.jsonl").code == 0
    assert len((tmp_path / "v.jsonl").read_text().splitlines()) == 4
    ended = command(*start, tmp_path / "v.npy")
    assert ended.code == 2
    assert "ends in .jsonl" in ended.err
    assert not (tmp_path / "v.npy").exists()


def test_cut_texts_are_counted_in_one_line(command: Command, tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("snow " * 500 + "\n")
    start = ("embed", "--model", tiny_bert, "--input", tmp_path / "long.txt", "--output", tmp_path / "v.npy")
    ended = command(*start, "--on-long", "cut")
    printed = ended.err.splitlines()
    assert ended.code == 0
    assert len(printed) == 2
    assert printed[0].startswith("kinfolk: 1 text was cut: 38 of its tokens kept")
    ended = command(*start, "--on-long", "error")
    assert ended.code == 2
    assert ended.err.startswith(f"kinfolk: {tmp_path}/long.txt:1 has ")


def test_bad_rows_are_reported_before_the_model_is_loaded(command: Command, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\na,1\nb\n")
    (tmp_path / "v.npy").write_bytes(b"old")
    absent = tmp_path / "no/model"
    ended = command("embed", "--model", absent, "--input", tmp_path / "rows.csv", "--output", tmp_path / "v.npy")
    assert ended.code == 2
    assert ended.err.startswith(f"kinfolk: {tmp_path}/rows.csv:3: 1 fields")
    assert (tmp_path / "v.npy").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--pool", "men", "men"),
        ("--layers", "lst", "lst"),
        ("--layers", "0,3", "layers"),
        ("--on-long", "truncate", "truncate"),
        ("--device", "gpu", "gpu"),
        ("--input", "absent.txt", "absent.txt"),
    ],
)
def test_a_wrong_value_is_reported_in_one_line(
    command: Command, tiny_bert: Path, lines: Path, tmp_path: Path, option: str, value: str, message: str
) -> None:
    ended = command("embed", "--model", tiny_bert, "--input", lines, "--output", tmp_path / "v.npy", option, value)
    assert ended.code == 2
    assert message in ended.err
    assert ended.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines.txt"]


def test_layers_are_numbers_or_a_name() -> None:
    assert [parse_layers(value) for value in ("last", "3", "0,6,12", "1,")] == ["last", [3], [0, 6, 12], "1,"]


def test_an_empty_line_that_cannot_be_read_is_named(command: Command, lines: Path, tmp_path: Path) -> None:
    tokenizer, gpt = train_tokenizer("bpe", passages(), 300, special_tokens={"unk": "<unk>"}), family("openai-gpt")
    sizes = {"vocabulary_size": 300, "width": 16, "layers": 1, "heads": 2, "positions": 32, "pad_id": 0, "end_id": 0}
    Encoder(init_model(gpt, gpt.config.make(**sizes)), tokenizer).save(tmp_path / "gpt")
    (tmp_path / "t.csv").write_text('text,n\n"Snow\nfalls.",1\n,2\n')
    for source, place in ((lines, ":2"), (tmp_path / "t.csv", ", row 2")):
        ended = command("embed", "--model", tmp_path / "gpt", "--input", source, "--output", tmp_path / "v.npy")
        assert ended.code == 2
        assert ended.err.startswith(f"kinfolk: {source}{place} has no tokens")
