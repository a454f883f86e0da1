"""Sentences keep their words and get IOB2 tags; a fault leaves out its sentence and is reported by its line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from small_files import written

from kinfolk.data.examples import Sentence
from kinfolk.data.tagging import entities, read_conll, read_slots
from kinfolk.errors import DataError, FolderError
from surroundings import shared_data


def slots(folder: Path, words: str, tags: str, labels: str) -> Path:
    for name, content in (("seq.in", words), ("seq.out", tags), ("label", labels)):
        written(folder, name, content)
    return folder


@pytest.mark.parametrize(
    ("split", "sentences", "tokens", "counts"),
    [
        ("valid", 3250, 51362, {"LOC": 1837, "MISC": 922, "ORG": 1341, "PER": 1842}),
        ("test", 3453, 46435, {"LOC": 1668, "MISC": 702, "ORG": 1661, "PER": 1617}),
    ],
)
def test_conll_2003_has_its_published_counts(split: str, sentences: int, tokens: int, counts: dict[str, int]) -> None:
    table = read_conll(shared_data(f"conll2003/{split}.txt"))
    assert (len(table.examples), table.bad) == (sentences, 0)
    assert sum(len(sentence.words) for sentence in table.examples) == tokens
    assert Counter(kind for each in table.examples for _, _, kind in entities(each.tags or ())) == counts


def test_blanks_tabs_documents_and_a_missing_last_newline(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "a.txt",
        "-DOCSTART- -X- O\n\nEU  NNP I-ORG \nrejects VBZ O\n \t\n\nof\xa0old\tNN\tO\r\n-DOCSTART- -X- O\nUS NNP I-LOC",
    )
    assert read_conll(path).examples == [
        Sentence(("EU", "rejects"), ("B-ORG", "O"), None, f"{path}:3"),
        Sentence(("of\xa0old",), ("O",), None, f"{path}:7"),
        Sentence(("US",), ("B-LOC",), None, f"{path}:9"),
    ]
    assert [each.tags for each in read_conll(path, tags=1).examples] == [("NNP", "VBZ"), ("NN",), ("NNP",)]


def test_sentences_with_a_fault_are_left_out_whole(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "a.txt",
        b"EU B-ORG\nrejects O\n\nGerman\ncall O\n\nto O\nboycott I-PER\n\n\xff O\nlamb O\n\n\tO\n\nPeter B-PER\n",
    )
    table = read_conll(path, max_bad_rows=4)
    assert [sentence.words for sentence in table.examples] == [("EU", "rejects"), ("Peter",)]
    assert table.reasons == (
        f"{path}:4: 1 columns, most lines have 2",
        f"{path}:10: not UTF-8 text",
        f"{path}:13: a word or tag is empty",
        f"{path}:8: the tag I-PER after O is invalid in IOB2",
    )
    with pytest.raises(DataError, match=r"a\.txt:4: 1 columns"):
        read_conll(path, max_bad_rows=3)


def test_columns_that_are_not_there_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", "EU NNP B-ORG\n")
    with pytest.raises(DataError, match=r"3 columns, .*tags=3"):
        read_conll(path, tags=3)
    with pytest.raises(DataError, match="same of 3 columns"):
        read_conll(path, words=2)
    with pytest.raises(DataError, match="no examples"):
        read_conll(written(tmp_path, "b.txt", "\n"))


@pytest.mark.parametrize(("split", "count"), [("train", 4478), ("dev", 500), ("test", 893)])
def test_atis_has_its_published_counts(split: str, count: int) -> None:
    table = read_slots(shared_data(f"atis/{split}"))
    assert (len(table.examples), table.bad) == (count, 0)
    assert all(sentence.label and len(sentence.words) == len(sentence.tags or ()) for sentence in table.examples)


def test_slot_files_belong_together_line_by_line(tmp_path: Path) -> None:
    folder = slots(tmp_path, "to boston\nhello\n", "O B-city\nO\n\n", "flight\ngreeting")
    assert read_slots(folder).examples == [
        Sentence(("to", "boston"), ("O", "B-city"), "flight", f"{folder}/seq.in:1"),
        Sentence(("hello",), ("O",), "greeting", f"{folder}/seq.in:2"),
    ]


def test_slot_lines_that_do_not_match_are_reported(tmp_path: Path) -> None:
    folder = slots(tmp_path, "to boston\nhello\n\nhi\nyes\n", "O\nO\n\nB-city\nI-city\n", "flight\n \nx\ny\nz\n")
    table = read_slots(folder, max_bad_rows=4)
    assert [sentence.words for sentence in table.examples] == [("hi",)]
    assert [reason.removeprefix(f"{folder}/seq.in:") for reason in table.reasons] == [
        "1: 2 words here, 1 tags in seq.out",
        "2: no label in the same line of the file label",
        "3: 0 words here, 0 tags in seq.out",
        "5: the tag I-city at the start is invalid in IOB2",
    ]


def test_slot_files_of_different_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"seq\.in 2, seq\.out 1, label 2"):
        read_slots(slots(tmp_path, "a\nb\n", "O\n", "x\ny\n"))
    (tmp_path / "label").unlink()
    with pytest.raises(FolderError, match="label: "):
        read_slots(tmp_path)
