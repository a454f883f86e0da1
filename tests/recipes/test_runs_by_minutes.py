"""What recipes read of a run by minutes, how they show it, and the process that takes half the machine."""

from __future__ import annotations

import json
import time
from pathlib import Path

from kinfolk.training.settings import TrainSettings


def test_the_course_of_a_run_is_read_off_its_folder(tmp_path: Path) -> None:
    from common import Course

    settings = TrainSettings(batch_size=32, minutes=1.0)
    (tmp_path / "run.json").write_text(json.dumps({"settings": settings.described()}))
    (tmp_path / "plan.json").write_text(json.dumps({"plans": [[0, 90, 4], [40, 80, 4]], "share": 0.25}))
    (tmp_path / "log.jsonl").write_text('{"step": 79}\n{"step": 80}\n')
    assert Course.of(tmp_path) == Course(steps=80, plans=2, batch_size=8, batch_tokens=None)


def test_the_table_of_few_labels_has_the_mean_and_every_seed() -> None:
    from few_labels import lines

    notes = {
        "sst2-50-0-finetune": {"accuracy": 0.8, "steps": 300, "examples": 2_400, "seconds": 58.2},
        "sst2-50-1-finetune": {"accuracy": 0.7, "steps": 280, "examples": 2_240, "seconds": None},
        "sst2-200-0-tfidf": {"accuracy": 0.6, "seconds": 0.4},
        "atis-50-0-tfidf": {"accuracy": 0.5, "seconds": 0.4},
    }
    assert lines(notes, "sst2") == [
        ["50", "fine-tuned", "**75.0%**", "80.0%, 70.0%", "300 / 280", "2,400 / 2,240", "58 / "],
        ["200", "TF-IDF, logistic regression", "**60.0%**", "60.0%", "", "", "0"],
    ]


def test_half_the_machine_is_given_back() -> None:
    from busy_machine import half_taken

    with half_taken() as process:
        time.sleep(0.1)
        assert process.poll() is None
    assert process.returncode is not None
