"""Files of questions: SQuAD's JSON to the predictions that its scorer reads, tables to tables."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from kinfolk.api.loaded import Encoder, load
from kinfolk.api.predict_file import predict_file
from kinfolk.errors import DataError, InputError
from support.tiny import write_folder

CONTEXT = "The café 👍 opened in 1894, and the baker closed it."


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """A random model: it answers, if not well."""
    folder = write_folder(tmp_path_factory.mktemp("models") / "reader", suffix="ForQuestionAnswering")
    return load(folder, device="cpu")


def squad(path: Path, *entries: dict[str, object]) -> Path:
    paragraph = {"context": CONTEXT, "qas": list(entries)}
    path.write_text(json.dumps({"data": [{"title": "made", "paragraphs": [paragraph]}]}), encoding="utf-8")
    return path


def test_squad_in_predictions_by_id_out(reader: Encoder, tmp_path: Path) -> None:
    source = squad(
        tmp_path / "in.json",
        {"id": "a", "question": "When?", "answers": [{"text": "1894", "answer_start": 21}]},
        {"id": 'b "2"', "question": "Who?"},
    )
    done: list[int] = []
    assert predict_file(reader, source, tmp_path / "out.json", report=done.append).rows == sum(done) == 2
    output = json.loads((tmp_path / "out.json").read_text())
    assert output == {
        "a": reader.answer("When?", CONTEXT)[0].text,
        'b "2"': reader.answer("Who?", CONTEXT)[0].text,
    }
    assert all(text in CONTEXT for text in output.values())


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_table_keeps_its_rows_and_gains_the_answer(reader: Encoder, tmp_path: Path, suffix: str) -> None:
    rows = [
        {"number": "7", "question": "When?", "context": CONTEXT, "answer": "1894"},
        {"number": "8", "question": "Who?", "context": "", "answer": ""},
    ]
    source, output = tmp_path / "in.jsonl", tmp_path / f"out{suffix}"
    source.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert predict_file(reader, source, output).rows == 2
    text = output.read_text(encoding="utf-8")
    result = (
        [json.loads(line) for line in text.splitlines()]
        if suffix == ".jsonl"
        else list(csv.DictReader(text.splitlines()))
    )
    assert [{name: row[name] for name in rows[0]} for row in result] == rows
    (best,) = reader.answer("When?", CONTEXT)
    start, end = (int(result[0][f"predicted_{name}"]) for name in ("start", "end"))
    assert result[0]["predicted_answer"] == best.text == CONTEXT[start:end]
    assert float(result[0]["predicted_probability"]) == pytest.approx(best.probability, abs=1e-6)
    assert (result[1]["predicted_answer"], result[1]["predicted_start"] or None) == ("", None)


def test_what_cannot_be_read_or_written_is_named(reader: Encoder, tmp_path: Path) -> None:
    source = squad(tmp_path / "in.json", {"id": "a", "question": "When?"})
    with pytest.raises(InputError, match=r"out\.md: "):
        predict_file(reader, source, tmp_path / "out.md")
    (tmp_path / "in.txt").write_text("When?")
    with pytest.raises(InputError, match=r"in.txt: .*questions"):
        predict_file(reader, tmp_path / "in.txt", tmp_path / "out.csv")
    (tmp_path / "in.csv").write_text("question,text\nWhen?,now\n")
    with pytest.raises(DataError, match='"context"'):
        predict_file(reader, tmp_path / "in.csv", tmp_path / "out.csv")
    (tmp_path / "long.csv").write_text(f"question,context\nWhen?,now\n{'why ' * 90},{'so ' * 90}\n")
    with pytest.raises(InputError, match=r"long.csv:3: .*question"):
        predict_file(reader, tmp_path / "long.csv", tmp_path / "out.csv")
    assert sorted(path.name for path in tmp_path.glob("*out*")) == []


def test_several_answers_with_their_places(reader: Encoder, tmp_path: Path) -> None:
    source = squad(tmp_path / "in.json", {"id": "a", "question": "When?"}, {"id": "b", "question": "Who?"})
    assert predict_file(reader, source, tmp_path / "out.jsonl", top=3).rows == 2
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(row["id"], row["question"]) for row in rows] == [("a", "When?"), ("b", "Who?")]
    for row in rows:
        assert [item["answer"] for item in row["answers"]] == [
            item.text for item in reader.answer(row["question"], CONTEXT, top=3)
        ]
        assert all(CONTEXT[item["start"] : item["end"]] == item["answer"] for item in row["answers"])
        assert row["answers"][0]["answer"] == row["answer"]
    with pytest.raises(InputError, match=r"several answers .*\.jsonl"):
        predict_file(reader, source, tmp_path / "out.json", top=3)
