"""Corpora: what a document is, what is held out, where sentences end, and texts as ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinfolk.data.corpus import encode_corpus, read_documents, split_documents, split_sentences
from kinfolk.demo import sentences
from kinfolk.errors import DataError, InputError, KinfolkError
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.train import train_tokenizer

PLAY = "ANNA:\nIs it snowing?\n\nBEN:\nIt is.\nAnd deep.\n\n\nANNA:\nOh.\n"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer("wordpiece", sentences()[0], 200)


@pytest.mark.parametrize(
    ("text", "documents", "expected"),
    [
        (PLAY, None, ["ANNA:\nIs it snowing?", "BEN:\nIt is.\nAnd deep.", "ANNA:\nOh."]),
        (PLAY, "blank-lines", ["ANNA:\nIs it snowing?", "BEN:\nIt is.\nAnd deep.", "ANNA:\nOh."]),
        (PLAY, "lines", ["ANNA:", "Is it snowing?", "BEN:", "It is.", "And deep.", "ANNA:", "Oh."]),
        (PLAY, "whole", [PLAY.removesuffix("\n")]),
        ("one\ntwo\r\nthree\n\n", None, ["one", "two", "three"]),
        ("one\ntwo\n", "blank-lines", ["one\ntwo"]),
    ],
)
def test_what_a_document_is(text: str, documents: str | None, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(text, newline="")
    assert read_documents(tmp_path / "text.txt", documents) == expected
    twice = read_documents([tmp_path / "text.txt", tmp_path / "text.txt"], documents)
    assert twice == expected * 2


def test_rows_of_tables_and_texts_of_lists_are_documents(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('text,note\n"two\nlines",a\n,b\nthree,c\n')
    assert read_documents(tmp_path / "rows.csv") == ["two\nlines", "three"]
    assert read_documents(tmp_path / "rows.csv", column="note") == ["a", "b", "c"]
    assert read_documents(["one. two.", " ", "three"]) == ["one. two.", "three"]
    with pytest.raises(InputError, match="whole"):
        read_documents(tmp_path / "rows.csv", "whole")
    with pytest.raises(InputError):
        read_documents(["a text"], "lines")


@pytest.mark.parametrize("content", [b"", b" \n\n\t\n", b"text\0\0\0with\0zeros\n", b"\x80\x81\xff\xfe binary"])
def test_a_file_without_text_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "odd.txt").write_bytes(content)
    with pytest.raises(KinfolkError, match=r"odd\.txt"):
        read_documents(tmp_path / "odd.txt")


def test_the_last_documents_are_held_out_or_the_last_lines_of_a_single_one() -> None:
    many = [str(index) for index in range(100)]
    assert split_documents(many, 0.05, 1) == (many[:95], many[95:])
    assert split_documents(many[:4], 0.05, 2) == (many[:2], many[2:4])
    assert split_documents(many[:2], 0.05, 1) == (many[:1], many[1:2])
    assert split_documents(["\n".join(many)], 0.05, 1) == (["\n".join(many[:95])], ["\n".join(many[95:])])


@pytest.mark.parametrize("unit", [" ", ""], ids=["words", "characters"])
def test_a_text_without_lines_is_cut_between_words_or_characters(unit: str) -> None:
    many = [chr(ord("A") + number % 26) for number in range(100)]
    assert split_documents([unit.join(many)], 0.05, 1) == ([unit.join(many[:95])], [unit.join(many[95:])])
    ((train,), (dev,)) = split_documents([f"title\n{unit.join(many)}"], 0.05, 1)
    assert train.startswith("title")
    assert unit.join(many).endswith(dev)
    assert len(dev) < 20


@pytest.mark.parametrize(
    ("documents", "least", "told"),
    [
        (["one line"], 1, r"a\.txt is one short text"),
        (["one\nline"], 2, r"next-sentence prediction is impossible: a\.txt is one document"),
        (["1", "2", "3"], 2, r"a\.txt is 3 documents, fewer than 2 to train on and 2 for dev"),
    ],
)
def test_what_cannot_be_divided_is_told(documents: list[str], least: int, told: str) -> None:
    with pytest.raises(DataError, match=told):
        split_documents(documents, 0.05, least, "a.txt")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('He said "Stop!" and left. She stayed.', 2),
        ("Dr. Smith met J. R. Tolkien at 5 p.m. in Rome. They ate.", 2),
        ("It costs 3.50 today. See e.g. page 4.", 2),
        ("Il pleut. Où vas-tu ? « Nulle part. » Bien.", 4),
        ("今天下雨。你去哪儿？我在家！", 3),
        ("यह घर है। वह पेड़ है।", 2),
        ("no end at all", 1),
        ("one line\nanother line", 2),
        ("", 0),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text: str, count: int) -> None:
    assert len(split_sentences(text)) == count


@given(st.text(alphabet="aB. !?。\n\"')", max_size=60))
def test_no_letter_of_a_text_is_lost_between_sentences(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def test_ids_are_those_of_each_document_with_an_end_after_it(tokenizer: Tokenizer) -> None:
    documents = ["A good film. A bad end.", "Snow [SEP] falls", "\u200b"]
    end = tokenizer.sep_id or 0
    for split in (False, True):
        corpus = encode_corpus(tokenizer, documents, split)
        assert len(corpus.documents) == 4
        assert corpus.characters == sum(len(text) + 1 for text in documents)
        expected = [end]
        for text in documents:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            expected += [tokenizer.unk_id if id == end else id for id in ids] + [end]
        assert corpus.stream(end).tolist() == expected
        assert corpus.stream(end).dtype == np.int32
    assert np.diff(encode_corpus(tokenizer, documents, True).documents).tolist()[0] == 2
