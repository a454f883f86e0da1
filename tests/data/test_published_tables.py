"""Public files come out of the reader with their published counts, whatever is odd about them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from small_files import written

from kinfolk.data.tables import read_examples
from kinfolk.errors import DataError
from surroundings import shared_data

COLA = ("source", "label", "mark", "sentence")


@pytest.mark.parametrize(
    ("name", "header", "counts"),
    [
        ("sst2/train.tsv", ("text", "label"), {"0": 3310, "1": 3610}),
        ("sst2/dev.tsv", ("text", "label"), {"0": 428, "1": 444}),
        ("sst2/test.tsv", ("text", "label"), {"0": 912, "1": 909}),
        ("glue/SST-2/dev.tsv", None, {"0": 428, "1": 444}),
        ("glue/CoLA/train.tsv", COLA, {"0": 2528, "1": 6023}),
        ("glue/CoLA/dev.tsv", COLA, {"0": 322, "1": 721}),
        ("glue/MRPC/train.tsv", None, {"0": 1194, "1": 2474}),
        ("glue/MRPC/dev.tsv", None, {"0": 129, "1": 279}),
        ("glue/RTE/train.tsv", None, {"entailment": 1249, "not_entailment": 1241}),
        ("glue/RTE/dev.tsv", None, {"entailment": 146, "not_entailment": 131}),
        ("glue/QNLI/train.tsv", None, {"entailment": 755, "not_entailment": 745}),
        ("glue/QNLI/dev.tsv", None, {"entailment": 473, "not_entailment": 527}),
        ("glue/MNLI/train.tsv", None, {"entailment": 1600, "neutral": 1670, "contradiction": 1730}),
        ("glue/MNLI/dev_matched.tsv", None, {"entailment": 546, "neutral": 462, "contradiction": 492}),
        ("glue/QQP/dev.tsv", None, {"0": 915, "1": 585}),
        ("reviews/yelp.csv", None, {"1": 651, "2": 449, "3": 700, "4": 1000, "5": 1000}),
    ],
)
def test_published_files_have_their_published_counts(
    name: str, header: tuple[str, ...] | None, counts: dict[str, int]
) -> None:
    table = read_examples(shared_data(name), header=header)
    assert Counter(example.label for example in table.examples) == counts
    assert (table.bad, table.reasons) == (0, ())
    paired = any(part in name for part in ("MRPC", "RTE", "QNLI", "MNLI", "QQP"))
    assert all((example.pair is not None) == paired for example in table.examples)


def test_a_score_per_pair_is_read_as_a_number() -> None:
    for split, count in (("train", 5749), ("dev", 1500)):
        examples = read_examples(shared_data(f"glue/STS-B/{split}.tsv"), kind="regress").examples
        assert len(examples) == count
        assert all(isinstance(example.label, float) and 0 <= example.label <= 5 for example in examples)


def test_a_broken_row_is_reported_or_left_out_and_counted() -> None:
    path = shared_data("glue/QQP/train.tsv")
    with pytest.raises(DataError, match=r"train\.tsv:2: 5 fields, .*6"):
        read_examples(path)
    table = read_examples(path, max_bad_rows=1)
    assert Counter(example.label for example in table.examples) == {"0": 3452, "1": 2047}
    assert (table.bad, table.reasons) == (1, (f"{path}:2: 5 fields, expected 6",))


def test_tables_under_another_name_are_read_once_they_are_called_tsv(tmp_path: Path) -> None:
    paraphrases = written(tmp_path, "a.tsv", shared_data("glue/MRPC/msr_paraphrase_test.txt").read_bytes())
    assert Counter(example.label for example in read_examples(paraphrases).examples) == {"0": 578, "1": 1147}
    scores = shared_data("glue/STS-B/sts-test.csv")
    header = ("genre", "file", "year", "index", "score", "sentence1", "sentence2")
    with pytest.raises(DataError, match=r"sts-test\.csv:1: .*tabs"):
        read_examples(scores, kind="regress", header=header)
    renamed = written(tmp_path, "b.tsv", scores.read_bytes())
    table = read_examples(renamed, kind="regress", header=header, max_bad_rows=284)
    assert (len(table.examples), table.bad) == (1379 - 284, 284)  # those with two more columns for a licence
