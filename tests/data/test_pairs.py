"""Pairs from one file or two: what is wrong is reported by its line, and no source stands on both sides of a split."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kinfolk.data.examples import split_pairs
from kinfolk.data.tables import Pair, read_pairs, read_parallel, to_pairs
from kinfolk.errors import DataError, InputError


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def sides(pairs: list[Pair]) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in pairs]


def test_a_tsv_has_a_source_and_a_target_in_each_line(tmp_path: Path) -> None:
    path = written(tmp_path / "pairs.tsv", '\ufeffGo.\tVa !\r\n\r\n"Hi" \u2028 there\tSalut "\n')
    table = read_pairs(path)
    assert sides(table.examples) == [("Go.", "Va !"), ('"Hi" \u2028 there', 'Salut "')]
    assert [pair.location for pair in table.examples] == [f"{path}:1", f"{path}:3"]


def test_wrong_rows_are_reported_with_their_lines_all_at_once(tmp_path: Path) -> None:
    path = written(tmp_path / "pairs.tsv", b"a\tb\nc\nd\te\tf\ng\t \n\t h\n\xff\tz\ni\tj\n")
    with pytest.raises(DataError) as caught:
        read_pairs(path)
    message = str(caught.value)
    for line, reason in {
        2: "1 fields",
        3: "3 fields",
        4: "the target",
        5: "the source",
        6: "not UTF-8",
    }.items():
        assert f"{path}:{line}: {reason}" in message
    table = read_pairs(path, max_bad_rows=5)
    assert (sides(table.examples), table.bad) == ([("a", "b"), ("i", "j")], 5)


def test_only_the_first_twenty_wrong_rows_are_reported(tmp_path: Path) -> None:
    path = written(tmp_path / "pairs.tsv", "no tab here\n" * 100)
    with pytest.raises(DataError) as caught:
        read_pairs(path)
    assert str(caught.value).count(f"{path}:") == 20


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "pairs.tsv", b"a\tb\nc\0\td\n")
    with pytest.raises(DataError, match=r"pairs\.tsv:2: .*NUL"):
        read_pairs(path)
    with pytest.raises(DataError, match="two files"):
        read_pairs(written(tmp_path / "pairs.txt", "a\tb\n"))
    with pytest.raises(DataError, match=r"empty\.tsv"):
        read_pairs(written(tmp_path / "empty.tsv", ""))


@pytest.mark.parametrize("name", ["pairs.csv", "pairs.tsv", "pairs.jsonl"])
def test_columns_of_a_table_can_be_named(name: str, tmp_path: Path) -> None:
    rows = [("one", "un", 1), ("two", "deux", 2)]
    mark = "\t" if name.endswith("tsv") else ","
    lines = [mark.join(map(str, row)) for row in [("en", "fr", "id"), *rows]]
    if name.endswith("jsonl"):
        lines = [json.dumps(dict(zip(("en", "fr", "id"), row, strict=True))) for row in rows]
    path = written(tmp_path / name, "\n".join(lines) + "\n")
    assert sides(read_pairs(path, ["en", "fr"]).examples) == [(one, two) for one, two, _ in rows]
    with pytest.raises(DataError, match='"de"'):
        read_pairs(path, ["en", "de"])
    with pytest.raises(InputError, match="two columns"):
        read_pairs(path, ["en"])


def test_a_value_that_is_no_text_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path / "pairs.jsonl", '{"source": "a", "target": 3}\n{"source": "b"}\n')
    with pytest.raises(DataError, match=r':1: "target" .*number.*:2: .*"target"'):
        read_pairs(path, max_bad_rows=0)


def test_lines_of_two_files_belong_together(tmp_path: Path) -> None:
    source = written(tmp_path / "a.en", b"one\n\xff\nthree\n\nfive\n")
    target = written(tmp_path / "a.fr", "un\ndeux\ntrois\nquatre\ncinq\n")
    table = read_parallel(source, target, max_bad_rows=2)
    assert sides(table.examples) == [("one", "un"), ("three", "trois"), ("five", "cinq")]
    with pytest.raises(DataError, match=r"a\.en:2: .*UTF-8.*a\.en:4: .*source"):
        read_parallel(source, target)


@pytest.mark.parametrize(("first", "second"), [(3, 5), (5, 3)])
def test_files_of_different_length_are_refused_with_both_counts(first: int, second: int, tmp_path: Path) -> None:
    source, target = written(tmp_path / "a.en", "a\n" * first), written(tmp_path / "a.fr", "b\n" * second)
    with pytest.raises(DataError, match=rf"a\.en .*\b{first} .*a\.fr .*\b{second}\b"):
        read_parallel(source, target)


def test_pairs_in_memory_are_checked() -> None:
    kept = Pair("a", "b", "here:1")
    assert to_pairs([kept, ("c", "d")]) == [kept, Pair("c", "d", "pair 2")]
    for wrong in ("ab", ("a",), ("a", ""), ("a", 3), 7):
        with pytest.raises(InputError, match="pair 1"):
            to_pairs([wrong])


def test_no_source_is_on_both_sides_of_a_split() -> None:
    pairs = [Pair(f"Source {index % 60}", f"target {index}", "") for index in range(200)]
    pairs += [Pair(f"source  {index}", "again", "") for index in range(60)]  # the same, case and blanks aside
    kept, dev = split_pairs(pairs, seed=3)
    assert 20 <= len(dev) <= 26
    assert len(kept) + len(dev) == 260
    plain = [{" ".join(pair.source.lower().split()) for pair in side} for side in (kept, dev)]
    assert not plain[0] & plain[1]
    assert [pairs.index(pair) for pair in dev] == sorted(pairs.index(pair) for pair in dev)
    assert (kept, dev) == split_pairs(pairs, seed=3)
    assert dev != split_pairs(pairs, seed=4)[1]


def test_at_most_two_thousand_are_held_out_and_at_least_one() -> None:
    many = [Pair(str(index), "x", "") for index in range(30_000)]
    assert len(split_pairs(many)[1]) == 2000
    kept, dev = split_pairs(many[:2])
    assert (len(kept), len(dev)) == (1, 1)
    with pytest.raises(DataError, match="too few"):
        split_pairs([Pair("a", "b", ""), Pair("A", "c", "")])
