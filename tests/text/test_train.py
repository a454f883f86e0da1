"""Learning vocabularies: the size asked for, the same every time, and an error when the corpus cannot give it."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizers import KINDS, SENTENCES, SIZES, small

from kinfolk.errors import InputError
from kinfolk.text.train import train_tokenizer

LEARN_ALL = """
import hashlib
from small_tokenizers import KINDS, small
for kind in KINDS:
    print(hashlib.sha256(small(kind).to_json().encode()).hexdigest())
"""


@pytest.mark.parametrize("kind", KINDS)
def test_the_vocabulary_has_the_size_asked_for(kind: str):
    assert small(kind).vocabulary_size == SIZES[kind]


def test_the_same_corpus_gives_the_same_vocabulary_in_every_process():
    here = [hashlib.sha256(small(kind).to_json().encode()).hexdigest() for kind in KINDS]
    for _ in range(2):
        command = [sys.executable, "-c", LEARN_ALL]
        run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
        assert run.stdout.split() == here


@pytest.mark.parametrize("kind", KINDS)
def test_an_iterator_teaches_as_much_as_a_list(kind: str):
    again = train_tokenizer(kind, iter(SENTENCES * 3), SIZES[kind])
    assert again.to_json() == small(kind).to_json()


@pytest.mark.parametrize("texts", [SENTENCES, [*SENTENCES, 3]], ids=["learned", "refused"])
def test_the_temporary_file_of_an_iterator_is_closed(texts: list[str], monkeypatch: pytest.MonkeyPatch):
    made, make = [], tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda *mode, **how: made.append(make(*mode, **how)) or made[0])
    with nullcontext() if texts is SENTENCES else pytest.raises(InputError, match="text 12 "):
        train_tokenizer("bpe", iter(texts), 100)
    assert [file.closed for file in made] == [True]


def test_special_tokens_come_first_in_their_published_order():
    first = {kind: [small(kind).id_to_token(index) for index in range(5)] for kind in KINDS}
    assert first["wordpiece"] == first["bpe"] == first["unigram"] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert first["byte_bpe"] == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def test_texts_are_laid_out_as_the_family_does():
    pair = ("the boat", "the mill")
    bert = small("wordpiece").encode(pair)
    assert [token for token in bert.tokens if token.startswith("[")] == ["[CLS]", "[SEP]", "[SEP]"]
    assert set(bert.segments) == {0, 1}
    roberta = small("byte_bpe").encode(pair)
    assert [token for token in roberta.tokens if token.startswith("<")] == ["<s>", "</s>", "</s>", "</s>"]
    assert set(roberta.segments) == {0}


def test_other_special_tokens_can_be_asked_for():
    roles = {"unk": "<?>", "cls": "<start>", "sep": "<end>", "mask": "<hole>", "pad": "<nil>"}
    for kind in KINDS:
        ours = train_tokenizer(kind, SENTENCES, {"unigram": 120, "characters": 82}.get(kind, 300), special_tokens=roles)
        assert ours.special_tokens == roles
        assert ours.encode("the <hole> boat").tokens[0] == "<start>"
        assert ours.mask_id in ours.encode("the <hole> boat").ids


@pytest.mark.parametrize("kind", KINDS)
def test_lower_case_is_an_option(kind: str):
    size = 70 if kind == "characters" else SIZES[kind]
    lower, cased = (train_tokenizer(kind, SENTENCES * 3, size, lowercase=choice) for choice in (True, False))
    assert lower.encode("THE BOAT").ids == lower.encode("the boat").ids
    assert cased.encode("THE BOAT").ids != cased.encode("the boat").ids


def test_bytes_spell_everything():
    ours = small("byte_bpe")
    for text in ("猫 ☂ ẞ", "👩‍👩‍👧‍👦", "\0\x10"):
        assert ours.decode(ours.encode(text).ids) == text
        assert ours.unk_id not in ours.encode(text).ids


@pytest.mark.parametrize("kind", KINDS)
def test_a_corpus_that_is_too_small_is_refused(kind: str):
    with pytest.raises(InputError, match=r"12 texts.*vocabulary_size=30000"):
        train_tokenizer(kind, SENTENCES, 30_000)
    if kind != "characters":  # of which the commonest are kept
        with pytest.raises(InputError, match="vocabulary_size=20"):
            train_tokenizer(kind, SENTENCES, 20)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_an_empty_corpus_is_refused(kind: str):
    for texts in ([], ["", " "]):
        with pytest.raises(InputError, match=r"corpus \(\d texts\)"):
            train_tokenizer(kind, texts, 300)


def test_wrong_arguments_are_named():
    with pytest.raises(InputError, match="kind='letters'"):
        train_tokenizer("letters", SENTENCES, 300)
    with pytest.raises(InputError, match=r"text 1 .*int"):
        train_tokenizer("bpe", ["a", 2], 300)  # type: ignore[list-item]
    with pytest.raises(InputError, match="found a str"):
        train_tokenizer("bpe", "one text", 300)
    with pytest.raises(InputError, match="vocabulary_size=5 "):
        train_tokenizer("bpe", SENTENCES, 5)
    with pytest.raises(InputError, match=r"special_tokens .*sep, unk"):
        train_tokenizer("bpe", SENTENCES, 300, special_tokens={"cls": "[CLS]"})


@pytest.mark.parametrize("kind", KINDS)
def test_strange_texts_do_not_stop_the_learning(kind: str):
    strange = ["\ud800 lone", "\0", "\n\n", "river" * 2_000, "a\r\nb"]
    assert train_tokenizer(kind, [*SENTENCES * 3, *strange], SIZES[kind]).vocabulary_size == SIZES[kind]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "words"])
def test_each_digit_is_a_piece_unless_whole_numbers_are_asked_for(kind: str, tmp_path: Path):
    texts = [f"on {year} b{year % 7}b, {year}!" for year in range(1900, 1920) for _ in range(20)]
    apart, whole = (
        train_tokenizer(kind, texts, 600, False, at_most=True, whole_numbers=whole) for whole in (False, True)
    )
    several = re.compile(r"\d\D*\d")
    assert not [token for token in apart.encode("1917 b3b 19a20 x1900").tokens if several.search(token)]
    assert bool([token for token in whole.encode("1917").tokens if several.search(token)]) == (kind != "characters")
    apart.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("on 1917 b3b", "19a20", "x1900!", "12 345,67"):
        assert theirs(text)["input_ids"] == apart.encode(text).ids


@given(st.text(st.characters(categories=["L", "N", "P", "Zs"], exclude_characters="▁"), min_size=1, max_size=30))
def test_characters_come_back_one_by_one(text: str):
    tokenizer = train_tokenizer("characters", [text, "other text"], 1000, at_most=True)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text
