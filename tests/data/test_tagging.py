"""Schemes are distinguished, kept to and turned into IOB2; entities are those that seqeval finds."""

from __future__ import annotations

import random

import pytest

from kinfolk.data.tagging import detect_scheme, entities, repair_iob2, scheme_errors, to_iob2
from kinfolk.errors import InputError

SAME = {  # two people side by side, then a place, then a person of three words at the end
    "IOB2": "B-PER I-PER B-PER O B-LOC B-PER I-PER I-PER",
    "IOB1": "I-PER I-PER B-PER O I-LOC I-PER I-PER I-PER",
    "IOBES": "B-PER E-PER S-PER O S-LOC B-PER I-PER E-PER",
    "BILOU": "B-PER L-PER U-PER O U-LOC B-PER I-PER L-PER",
}


@pytest.mark.parametrize("scheme", SAME)
def test_each_scheme_is_recognised_and_says_the_same(scheme: str) -> None:
    tags = SAME[scheme].split()
    assert detect_scheme([tags]) == scheme
    assert list(scheme_errors(tags, scheme)) == []
    assert to_iob2(tags, scheme) == tuple(SAME["IOB2"].split())


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        (["DT NN VBZ", ". O"], "plain"),
        (["O O", ""], "IOB2"),
        (["B-PER O", "B-LOC"], "IOB2"),
        (["I-PER O", "O I-LOC"], "IOB1"),
        (["S-PER O", "O S-LOC"], "IOBES"),
        (["B I O B"], "IOB2"),
        (["I-fromloc.city-name"], "IOB1"),
    ],
)
def test_small_files_are_recognised_too(sentences: list[str], scheme: str) -> None:
    assert detect_scheme([tags.split() for tags in sentences]) == scheme


def test_one_slip_does_not_change_the_scheme() -> None:
    good = [tags.split() for tags in ("B-PER I-PER O", "B-LOC O B-PER", "O B-PER I-PER")]
    for slip in ("O I-PER", "S-PER O", "PER O", "B-PER I-LOC"):
        assert detect_scheme([*good, slip.split()]) == "IOB2"
        assert list(scheme_errors(slip.split(), "IOB2"))


@pytest.mark.parametrize(
    ("scheme", "tags", "expected"),
    [
        ("IOB2", "O I-PER", [(1, "I-PER")]),
        ("IOB2", "I-PER", [(0, "I-PER")]),
        ("IOB2", "B-PER I-LOC", [(1, "I-LOC")]),
        ("IOB2", "B-PER E-PER", [(1, "E-PER")]),
        ("IOB1", "O B-PER", [(1, "B-PER")]),
        ("IOB1", "I-LOC B-PER", [(1, "B-PER")]),
        ("IOBES", "B-PER O", [(1, "O")]),
        ("IOBES", "O B-PER", [(1, "B-PER")]),
        ("IOBES", "S-PER E-PER", [(1, "E-PER")]),
        ("BILOU", "B-PER L-LOC", [(1, "L-LOC")]),
        ("plain", "NN I-PER", []),
    ],
)
def test_tags_that_break_their_scheme_are_reported(scheme: str, tags: str, expected: list[tuple[int, str]]) -> None:
    errors = [(index, reason.split()[2]) for index, reason in scheme_errors(tags.split(), scheme)]
    assert errors == expected
    if expected:
        with pytest.raises(InputError, match=f"word {expected[0][0] + 1}"):
            to_iob2(tags.split(), scheme)


def test_plain_tags_and_bare_letters_keep_their_names() -> None:
    assert to_iob2(["DT", "NN"], "plain") == ("DT", "NN")
    assert to_iob2(["I", "I", "B", "O"], "IOB1") == ("B", "I", "B", "O")
    with pytest.raises(InputError, match="IOB3"):
        to_iob2(["O"], "IOB3")


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-PER I-PER O B-LOC", [(0, 2, "PER"), (3, 4, "LOC")]),
        ("B-PER B-PER", [(0, 1, "PER"), (1, 2, "PER")]),
        ("O I-PER I-LOC", [(1, 2, "PER"), (2, 3, "LOC")]),
        ("B-PER E-PER S-PER E-PER", [(0, 2, "PER"), (2, 3, "PER"), (3, 4, "PER")]),
        ("DT NN", []),
        ("", []),
    ],
)
def test_entities_by_hand(tags: str, expected: list[tuple[int, int, str]]) -> None:
    assert entities(tags.split()) == expected


def test_entities_are_those_of_seqeval_for_any_tags() -> None:
    sequence_labeling = pytest.importorskip("seqeval.metrics.sequence_labeling")
    draw = random.Random(0)
    known = ["O", "O", "B", "I", *(f"{letter}-{kind}" for letter in "BIES" for kind in ("PER", "LOC", "x-y", "_"))]
    for _ in range(2000):
        tags = [draw.choice(known) for _ in range(draw.randrange(12))]
        theirs = [(start, end + 1, kind) for kind, start, end in sequence_labeling.get_entities(tags)]
        assert entities(tags) == theirs, tags


def test_repaired_tags_mean_the_same_and_keep_the_scheme() -> None:
    draw, names = random.Random(4), ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    for _ in range(500):
        tags = draw.choices(names, k=draw.randint(1, 9))
        result = repair_iob2(tags)
        assert list(scheme_errors(result, "IOB2")) == []
        assert entities(result) == entities(tags)
    assert repair_iob2(["NN", "I", "VB"]) == ["NN", "B", "VB"]
    assert repair_iob2([]) == []
