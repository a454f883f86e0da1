"""Predictions for files: every kind of table, bad rows reported before anything is computed, nothing cut in silence."""

from __future__ import annotations

import csv
import io
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kinfolk
from kinfolk.api.loaded import Encoder
from kinfolk.api.predict_file import WrittenRows, predict_file
from kinfolk.demo import passages
from kinfolk.errors import DataError, InputError, MissingHeadError
from kinfolk.models.family import with_new_head
from kinfolk.tasks.task import Columns, label_tables
from kinfolk.text.windows import CutWarning

LONG = " ".join(passages()[:3])


@pytest.fixture(scope="module")
def classifier(tiny_bert: Path) -> Encoder:
    """A classifier that was never trained: it has an opinion on everything."""
    base = kinfolk.load(tiny_bert, device="cpu")
    model, _ = with_new_head(base.model, "classify", 2)
    public = {"problem_type": "single_label_classification", **label_tables(["bad", "good"])}
    return replace(base, model=model.eval(), hf_config=public)


class Refuses:
    """Fails the test if anything is computed."""

    def __init__(self, classifier: Encoder):
        self.classifier = classifier

    def __enter__(self) -> Encoder:
        def fail(*arguments: object) -> None:
            pytest.fail("the model was used before the file was looked through")

        self.hook = self.classifier.model.register_forward_pre_hook(fail)
        return self.classifier

    def __exit__(self, *fault: object) -> None:
        self.hook.remove()


def rows_of(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".parquet":
        return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t" if path.suffix == ".tsv" else ","))


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("source", ["lines.txt", "table.csv", "table.jsonl"])
def test_every_input_gives_the_same_predictions_in_every_output(
    source: str, kind: str, classifier: Encoder, tmp_path: Path
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    texts = ["water, and salt", "a stone", "", "Zoë"]
    rows = [{"text": text} for text in texts]
    path = tmp_path / source
    content = {".txt": "\n".join(texts) + "\n", ".csv": 'text\n"water, and salt"\na stone\n""\nZoë\n'}
    path.write_text(content[path.suffix]) if path.suffix in content else write_jsonl(path, rows)
    assert predict_file(classifier, path, tmp_path / f"out.{kind}") == WrittenRows(4, 0)
    written = rows_of(tmp_path / f"out.{kind}")
    expected = classifier.classify(texts)
    assert [row["text"] for row in written] == texts
    assert [row["label"] for row in written] == [guess.label for guess in expected]
    assert [float(row["probability"]) for row in written] == pytest.approx(
        [guess.probability for guess in expected], abs=1e-6
    )


def test_a_parquet_file_keeps_its_types(classifier: Encoder, tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.table(
        {
            "text": ["a", "b", "c"],
            "label": arrow.array([1, None, 3], arrow.int16()),
            "day": arrow.array([0, 1, None], arrow.date32()),
            "parts": arrow.array([[1.5], [], None], arrow.list_(arrow.float32())),
        }
    )
    parquet.write_table(table, tmp_path / "in.parquet", row_group_size=2)
    predict_file(classifier, tmp_path / "in.parquet", tmp_path / "out.parquet")
    result = parquet.read_table(tmp_path / "out.parquet")
    assert result.select(table.column_names).equals(table)
    assert result.column_names == [*table.column_names, "predicted_label", "predicted_probability"]
    predict_file(classifier, tmp_path / "in.parquet", tmp_path / "out.jsonl")
    assert rows_of(tmp_path / "out.jsonl")[0]["day"] == "1970-01-01"
    predict_file(classifier, tmp_path / "in.parquet", tmp_path / "out.csv")
    assert [row["parts"] for row in rows_of(tmp_path / "out.csv")] == ["[1.5]", "[]", ""]


def test_types_of_a_parquet_file_are_learned_from_all_rows(classifier: Encoder, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = [{"text": "a", "n": None}] * 3000 + [{"text": "b", "n": 1}] * 2000 + [{"text": "c", "n": 2.5}]
    predict_file(classifier, write_jsonl(tmp_path / "in.jsonl", rows), tmp_path / "out.parquet")
    written = rows_of(tmp_path / "out.parquet")
    assert [row["n"] for row in written] == [row["n"] for row in rows]
    mixed = write_jsonl(tmp_path / "mixed.jsonl", [{"text": "a", "n": 1}, {"text": "b", "n": "one"}])
    with Refuses(classifier) as model, pytest.raises(DataError, match=r"common type .*\.jsonl"):
        predict_file(model, mixed, tmp_path / "mixed.parquet")
    assert not (tmp_path / "mixed.parquet").exists()


def test_the_first_twenty_bad_rows_are_reported_before_anything_is_computed(
    classifier: Encoder, tmp_path: Path
) -> None:
    rows: list[Any] = [{"text": "good"}] * 50 + [{"text": None}, {"txt": "x"}, 7, {"text": 3}] * 10
    path = write_jsonl(tmp_path / "in.jsonl", rows)
    with Refuses(classifier) as model, pytest.raises(DataError) as caught:
        predict_file(model, path, tmp_path / "out.jsonl")
    message = str(caught.value)
    assert [f"{path}:{line}: " in message for line in (50, 51, 52, 53, 54, 70, 71)] == [False, *[True] * 5, False]
    for reason in ('"text" is null', 'no column "text"', "expected an object", '"text" is a number'):
        assert reason in message
    assert not (tmp_path / "out.jsonl").exists()


def test_some_bad_rows_may_be_left_out(classifier: Encoder, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"text,id\ngood,1\nbad\nbad \xff,2\ngood,3\n")
    assert predict_file(classifier, path, tmp_path / "out.csv", max_bad_rows=2) == WrittenRows(2, 2)
    assert [row["id"] for row in rows_of(tmp_path / "out.csv")] == ["1", "3"]
    with Refuses(classifier) as model, pytest.raises(DataError, match=r"in\.csv:3: .*in\.csv:4: .*max-bad-rows"):
        predict_file(model, path, tmp_path / "none.csv", max_bad_rows=1)


@pytest.mark.parametrize(
    ("kind", "rows", "reason"),
    [
        ("csv", [{"text": "a"}, {"text": "b", "more": 1}], r"in\.jsonl:2: .*columns"),
        ("parquet", [{"text": "a"}, {"text": "b", "more": 1}], r"in\.jsonl:2: .*columns"),
        ("tsv", [{"text": "a"}, {"text": "b\tc"}], r"in\.jsonl:2: .*tab"),
    ],
)
def test_what_the_output_cannot_hold_is_reported_ahead_too(
    kind: str, rows: list[Any], reason: str, classifier: Encoder, tmp_path: Path
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    path = write_jsonl(tmp_path / "in.jsonl", rows)
    with Refuses(classifier) as model, pytest.raises(DataError, match=reason):
        predict_file(model, path, tmp_path / f"out.{kind}")
    assert predict_file(classifier, path, tmp_path / f"out.{kind}", max_bad_rows=1) == WrittenRows(1, 1)
    assert predict_file(classifier, path, tmp_path / "out.jsonl") == WrittenRows(2, 0)


def test_standard_input_ends_at_the_first_bad_line(
    classifier: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def type_in(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    type_in(b"one\n\xff\nthree\n\xff\n")
    with pytest.raises(DataError, match=r"standard input:2: .*UTF-8") as caught:
        predict_file(classifier, "-", tmp_path / "out.csv")
    assert "input:4" not in str(caught.value)
    type_in(b"one\n\xff\nthree\n\xff\n")
    assert predict_file(classifier, "-", tmp_path / "out.csv", max_bad_rows=2) == WrittenRows(2, 2)


def test_a_pair_of_two_long_texts_is_cut_and_counted(classifier: Encoder, tmp_path: Path) -> None:
    rows = [{"sentence1": "short", "sentence2": LONG}, {"sentence1": LONG, "sentence2": LONG}]
    path = write_jsonl(tmp_path / "in.jsonl", rows)
    with pytest.warns(CutWarning, match="^1 text "):
        assert predict_file(classifier, path, tmp_path / "out.jsonl") == WrittenRows(2, 0)
    with pytest.warns(CutWarning, match="^1 text "):
        assert classifier.classify((LONG, LONG)).label in ("bad", "good")


def test_wrong_files_and_options_are_one_line(classifier: Encoder, tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    (tmp_path / "in.csv").write_text("body,id\na,1\n")
    cases: dict[str, Callable[[], object]] = {
        ".csv, .tsv, .jsonl, .parquet": lambda: predict_file(classifier, tmp_path / "in.txt", tmp_path / "out.txt"),
        "in.txt: ": lambda: predict_file(classifier, tmp_path / "in.txt", tmp_path / "o.csv", Columns("a")),
        "--text": lambda: predict_file(classifier, tmp_path / "in.csv", tmp_path / "o.csv"),
        "max_bad_rows=-1": lambda: predict_file(classifier, tmp_path / "in.csv", tmp_path / "o.csv", max_bad_rows=-1),
    }
    for reason, call in cases.items():
        with pytest.raises((DataError, InputError), match=reason.replace(".", r"\.")):
            call()
    with pytest.raises(MissingHeadError):
        predict_file(kinfolk.load(tiny_bert, device="cpu"), tmp_path / "in.txt", tmp_path / "o.csv")
    assert not (tmp_path / "o.csv").exists()


def test_without_pyarrow_a_parquet_output_says_what_to_install(
    classifier: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "in.txt").write_text("a\n")
    with Refuses(classifier) as model, pytest.raises(DataError, match="pyarrow"):
        predict_file(model, tmp_path / "in.txt", tmp_path / "out.parquet")


def test_a_table_without_rows_is_refused(classifier: Encoder, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text,id\n")
    with pytest.raises(DataError, match=r"in\.csv: .*no rows"):
        predict_file(classifier, tmp_path / "in.csv", tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("pairs", "header", "message"),
    [
        (True, "text", "in.csv:2: one text, but the model learned from pairs"),
        (False, "text1,text2", "in.csv:2: a pair, but the model learned from single texts"),
        (True, "text1,text2", None),
        (False, "text", None),
        (None, "text", None),
    ],
)
def test_pairs_and_single_texts_are_not_taken_for_each_other(
    classifier: Encoder,
    pairs: bool | None,
    header: str,
    message: str | None,
    tmp_path: Path,
) -> None:
    trained = replace(classifier, hf_config={**classifier.hf_config, "pairs": pairs})
    (tmp_path / "in.csv").write_text(
        f"{header}\n" + 2050 * f"{','.join('ab'[: header.count(',') + 1])}\n"
    )  # two chunks
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predict_file(trained, tmp_path / "in.csv", tmp_path / "out.csv")
    assert [str(warning.message).rpartition("/")[2] for warning in caught] == ([] if message is None else [message])


def test_line_breaks_inside_a_field_stay_as_they_are(classifier: Encoder, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_bytes(b'text,note\r\n"two\r\nlines",a\r\none,"b\nc"\r\n')
    predict_file(classifier, source, tmp_path / "out.csv")
    rows = rows_of(tmp_path / "out.csv")
    assert [(row["text"], row["note"]) for row in rows] == [("two\r\nlines", "a"), ("one", "b\nc")]
