"""Files with tags: CoNLL files keep their lines and columns, texts get entities."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kinfolk.api.loaded import Encoder
from kinfolk.api.predict_file import predict_file
from kinfolk.errors import DataError, FolderError, InputError
from kinfolk.tasks.task import Columns
from small_tags import random_tagger


@pytest.fixture
def tagger(tiny_bert: Path) -> Encoder:
    return random_tagger(tiny_bert)


def tags(tagger: Encoder, *words: str) -> list[str]:
    return [word.tag for word in tagger.tag(words, words=True).words]


def test_a_conll_file_keeps_its_lines_and_gains_a_column(tagger: Encoder, tmp_path: Path) -> None:
    source, output = tmp_path / "in.conll", tmp_path / "out.conll"
    source.write_bytes(b"\xef\xbb\xbf-DOCSTART- -X- O\r\n\r\nwater NN O\r\nstone  NN O \n\n\nriver\tNN\tO")
    counted: list[int] = []
    assert predict_file(tagger, source, output, report=counted.append).rows == 2 == sum(counted)
    first, second, third = [*tags(tagger, "water", "stone"), *tags(tagger, "river")]
    expected = [
        "-DOCSTART- -X- O O",
        "",
        f"water NN O {first}",
        f"stone  NN O {second}",
        "",
        "",
        f"river\tNN\tO\t{third}",
    ]
    assert output.read_text().split("\n") == [*expected, ""]


def test_the_column_of_the_words_can_be_another(tagger: Encoder, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("1 water\n2 stone\n\n1 river\n")
    assert predict_file(tagger, source, tmp_path / "out.tsv", Columns("-1")).rows == 2
    result = [line.split(" ")[-1] for line in (tmp_path / "out.tsv").read_text().splitlines() if line]
    assert result == [*tags(tagger, "water", "stone"), *tags(tagger, "river")]


def test_lines_of_words_get_lines_of_tags(tagger: Encoder, tmp_path: Path) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    (folder / "seq.in").write_text("water stone\n\nriver  delta \n")
    expected = [" ".join(tags(tagger, "water", "stone")), "", " ".join(tags(tagger, "river", "delta"))]
    for index, source in enumerate((folder, folder / "seq.in")):
        assert predict_file(tagger, source, tmp_path / f"{index}.out").rows == 3
        assert (tmp_path / f"{index}.out").read_text().split("\n") == [*expected, ""]
        with pytest.raises(FolderError, match="input itself"):
            predict_file(tagger, source, folder / "seq.in")


def test_sentences_are_not_taken_for_columns(tagger: Encoder, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("water and stone\nthe river\n")
    with pytest.raises(DataError, match=r"lines:2: 2 columns, .*3; .*\.txt"):
        predict_file(tagger, tmp_path / "lines", tmp_path / "out")


def test_texts_get_their_entities(tagger: Encoder, tmp_path: Path) -> None:
    texts = ["water, stone", "", "the river Müller"]
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in texts))
    rows = [{"id": index, "entities": None, "text": text} for index, text in enumerate(texts)]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert predict_file(tagger, tmp_path / "in.txt", tmp_path / "lines.jsonl").rows == 3
    assert predict_file(tagger, tmp_path / "in.jsonl", tmp_path / "rows.jsonl", Columns("text")).rows == 3
    lines, table = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("lines.jsonl", "rows.jsonl")
    )
    for text, line, row, source in zip(texts, lines, table, rows, strict=True):
        expected = [(entity.type, entity.text, entity.start, entity.end) for entity in tagger.tag(text).entities]
        assert list(line) == ["text", "entities"]
        assert [
            (entity["type"], entity["text"], entity["start"], entity["end"]) for entity in line["entities"]
        ] == expected
        assert row == {**source, "predicted_entities": line["entities"]}
    assert any(line["entities"] for line in lines)


def test_tags_that_mark_no_spans_are_reported_word_by_word(tiny_bert: Path, tmp_path: Path) -> None:
    tagger = random_tagger(tiny_bert, labels=("NN", "VB", "."))
    (tmp_path / "in.txt").write_text("water, stone\n")
    predict_file(tagger, tmp_path / "in.txt", tmp_path / "out.jsonl")
    output = json.loads((tmp_path / "out.jsonl").read_text())
    assert output == {
        "text": "water, stone",
        "words": ["water", ",", "stone"],
        "tags": tags(tagger, "water", ",", "stone"),
    }


@pytest.mark.parametrize(
    ("name", "content", "output", "text", "reason"),
    [
        ("in.txt", b"a\n", "out.csv", None, ".jsonl"),
        ("in.conll", b"a\n", "out.jsonl", None, "out.jsonl"),
        ("in.conll", b"a\n", "out.csv", None, "out.csv"),
        ("in.conll", b"a\n", "out.conll", "text", "text and header"),
        ("in.conll", b"a b\n\na\n", "out.conll", "1", "in.conll:3: 1 columns, .*words=1"),
        ("in.conll", b"a b\n\xff b\n", "out.conll", None, "in.conll:2: .*UTF-8"),
        ("in.conll", b"a\tb\n\tb\n", "out.conll", None, "in.conll:2: .*empty"),
        ("in.csv", b"text,label\na,b,c\n", "out.jsonl", None, "in.csv:2: 3 fields"),
        ("in.csv", b"words\na\n", "out.jsonl", "text", 'no column "text"'),
    ],
)
def test_faults_are_reported_and_nothing_is_written(
    tagger: Encoder, tmp_path: Path, name: str, content: bytes, output: str, text: str | None, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises((DataError, InputError), match=reason):
        predict_file(tagger, tmp_path / name, tmp_path / output, Columns(text))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_tags_of_another_scheme_still_tell_a_file_with_columns(tagger: Encoder, tmp_path: Path) -> None:
    types = sorted({label[2:] for label in tagger.hf_config["id2label"].values() if label != "O"})
    source = tmp_path / "in.txt"
    source.write_text(f"water S-{types[0]}\nstone O\n\nriver E-{types[0]}\nrain S-NEW\n")
    assert predict_file(tagger, source, tmp_path / "out.txt").rows == 2
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert lines[0] == f"water S-{types[0]} {tags(tagger, 'water', 'stone')[0]}"
    (tmp_path / "words.txt").write_text("water\nstone\n")
    with pytest.raises(InputError, match=r"\.jsonl; .*--text 0"):
        predict_file(tagger, tmp_path / "words.txt", tmp_path / "out.txt")
