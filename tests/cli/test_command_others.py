"""What the other commands print: a table for a reader, JSON for a script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kinfolk.api.loaded import load
from surroundings import Command


def test_fill_mask_ranks_guesses(command: Command, tiny_bert: Path) -> None:
    text = "[MASK] falls from the [MASK]."
    ended = command("fill-mask", "--model", tiny_bert, text, "--top", "3", "--json")
    assert (ended.code, ended.err) == (0, "")
    wanted = load(tiny_bert, device="cpu").fill(text, top=3)
    assert [[guess["word"] for guess in mask] for mask in json.loads(ended.out)] == [
        [guess.word for guess in mask]
        for mask in wanted  # type: ignore[union-attr]
    ]
    table = command("fill-mask", "--model", tiny_bert, "a [MASK] day", "--words", "the, of", "--pieces", "2").out
    assert {line.split()[0] for line in table.splitlines()} == {"word", "the", "of"}


def test_fill_mask_tells_what_is_missing(command: Command, tiny_bert: Path) -> None:
    assert "[MASK]" in command("fill-mask", "--model", tiny_bert, "no mask").err
    assert "--words" in command("fill-mask", "--model", tiny_bert, "a [MASK]", "--words", ",").err


def test_tokenize_shows_every_token_with_its_slice(command: Command, tiny_bert: Path) -> None:
    ended = command("tokenize", "--model", tiny_bert, "Snow\tfalls.", "Really", "--json")
    tokens = json.loads(ended.out)
    assert [token["segment"] for token in tokens] == sorted(token["segment"] for token in tokens)
    first = [token for token in tokens if token["word"] is not None and token["segment"] == 0]
    assert "".join(token["text"] for token in first) == "Snowfalls."
    assert all("Snow\tfalls."[token["start"] : token["end"]] == token["text"] for token in first)
    lines = command("tokenize", "--model", tiny_bert, "Snow\tfalls.", "Really").out.splitlines()
    assert lines[0].split() == ["token", "id", "segment", "word", "start", "end", "text"]
    assert len(lines) == 1 + len(tokens)


def test_tokens_of_a_hostile_text_stay_on_their_lines(command: Command, tiny_bert: Path) -> None:
    ended = command("tokenize", "--model", tiny_bert, "a\x1b[31mb\n日本 \u202e")
    assert ended.code == 0
    assert all(line.isprintable() for line in ended.out.splitlines())


def test_info_draws_the_family(command: Command) -> None:
    lines = command("info").out.splitlines()
    assert any(line.startswith("└── BERT ") for line in lines)
    assert any(line.startswith("    ├── RoBERTa ") for line in lines)
    family = json.loads(command("info", "--json").out)
    assert len(lines) == 1 + len(family)
    names = {relative["name"] for relative in family}
    assert {relative["parent"] for relative in family} - {None} <= names


def test_info_shows_computed_beside_published_parameters(command: Command) -> None:
    assert "109,482,240 (published: 110M)" in command("info", "bert-base-uncased").out
    output = json.loads(command("info", "albert-base-v2", "--json").out)
    assert (output["parameters"], output["sizes"]["layers"]) == (11_683_584, 12)
    assert 'did you mean "roberta-base"' in command("info", "robert-base").err


def test_info_shows_a_family_with_its_models(command: Command) -> None:
    for name in ("bert", "BERT"):
        lines = command("info", name).out.splitlines()
        assert lines[0].split() == ["family", "BERT"]
        assert ["bert-large-uncased", "335,141,888", "340M"] in [line.split() for line in lines]
    assert json.loads(command("info", "albert", "--json").out)["presets"][0] == "albert-base-v2"
    assert command("info", "recurrent lm").out.startswith("family         Recurrent LM\n")
    assert command("info", "marian").out.splitlines()[-1].startswith("paper ")  # none is published under a fixed name
    assert "kinfolk info bert" in command("info").err


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mymodel", "`kinfolk info bert`"),
        ("demoo", '"demo"'),
        ("roberts", '"roberta"'),
    ],
)
def test_info_of_an_unknown_name_says_what_it_is_not(command: Command, name: str, hint: str) -> None:
    ended = command("info", name)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert ended.err.startswith(f'kinfolk: "{name}" ')
    assert hint in ended.err


def test_info_describes_a_folder(command: Command, tiny_bert: Path, tmp_path: Path) -> None:
    shown = command("info", tiny_bert).out.splitlines()
    assert shown[-1].split() == ["manifest", "intact"]
    assert any(line.startswith("heads            masked_lm, next_sentence (") for line in shown)
    assert json.loads(command("info", tiny_bert, "--json").out)["heads"].keys() == {"masked_lm", "next_sentence"}
    assert str(tmp_path / "absent") in command("info", tmp_path / "absent").err
    ended = command("info", tmp_path)
    assert ended.code == 2
    assert "config.json" in ended.err


def test_convert_writes_the_same_model(command: Command, tiny_bert: Path, tmp_path: Path) -> None:
    ended = command("convert", "--model", tiny_bert, "--output", tmp_path / "new")
    assert (ended.code, ended.out) == (0, "")
    assert (tmp_path / "new/model.safetensors").read_bytes() == (tiny_bert / "model.safetensors").read_bytes()
    again = command("convert", "--model", tiny_bert, "--output", tmp_path / "new")
    assert again.code == 2
    assert "already exists" in again.err


def test_search_builds_and_answers(command: Command, tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("topic,body\nsky,Snow falls.\nfood,Bread rises.\nsky,Fog is a cloud.\n")
    start = ("search", "--model", tiny_bert, "--index", tmp_path / "index")
    ended = command(*start, "--build", tmp_path / "rows.csv", "--column", "body")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith("3 texts, 32 dimensions")
    hits = json.loads(command(*start, "Bread rises.", "--top", "2", "--json").out)
    assert (hits[0]["text"], hits[0]["row"], hits[0]["columns"]) == ("Bread rises.", 1, {"topic": "food"})
    assert len(hits) == 2
    lines = command(*start, "Bread rises.").out.splitlines()
    assert lines[0].split() == ["score", "row", "text", "topic"]
    assert lines[1].split() == ["1.0000", "1", "Bread", "rises.", "food"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((), "--build"), (("q",), "index.json"), (("q", "--column", "text"), "--column")],
)
def test_search_tells_what_is_missing(
    command: Command, tiny_bert: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    ended = command("search", "--model", tiny_bert, "--index", tmp_path / "absent", *arguments)
    assert ended.code == 2
    assert message in ended.err
