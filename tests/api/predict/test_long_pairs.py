"""Pairs of two long texts: no task dies of them, nothing is dropped without a count, errors name the row."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinfolk.api.finetune import finetune
from kinfolk.api.loaded import Encoder
from kinfolk.data.examples import Example
from kinfolk.demo import passages
from kinfolk.errors import InputError
from kinfolk.files import read_object
from kinfolk.text.windows import CutCount, CutWarning, split_text, split_texts
from kinfolk.training.settings import TrainSettings

LONG, LONGER = " ".join(passages()[:4]), " ".join(passages()[4:12])
SIZE, ROOM = 60, 57


def token_count(encoder: Encoder, text: str) -> int:
    return len(encoder.tokenizer.encode(text, add_special_tokens=False))


def test_what_an_earlier_task_left_in_the_config_is_not_handed_on(tiny_bert: Path, tmp_path: Path) -> None:
    pairs = [(f"salt {index}", "sand", "ab"[index % 2]) for index in range(20)]
    tags = [(["salt", "moon"], ["X", "O"])] * 20
    settings = {"steps": 1, "evaluations": 1, "device": "cpu", "report": False}
    finetune(tiny_bert, pairs, tmp_path / "pairs", dev=pairs[:4], **settings)  # type: ignore[arg-type]
    assert read_object(tmp_path / "pairs" / "model" / "config.json")["pairs"] is True
    rows = tmp_path / "tags.txt"
    rows.write_text("\n".join("".join(f"{word} {tag}\n" for word, tag in zip(*row, strict=True)) for row in tags))
    finetune(tmp_path / "pairs", rows, tmp_path / "tags", dev=rows, **settings)  # type: ignore[arg-type]
    assert "pairs" not in read_object(tmp_path / "tags" / "model" / "config.json")


@pytest.mark.parametrize("pair", [(LONG, LONGER), (LONGER, LONG)], ids=["second moves", "first moves"])
def test_half_of_the_room_is_left_to_the_longer_text(encoder: Encoder, pair: tuple[str, str]) -> None:
    cut = CutCount()
    windows = split_text(encoder.tokenizer, pair, 0, SIZE, None, cut)
    moving = pair.index(LONGER)
    lengths = {text: token_count(encoder, text) for text in pair}
    assert (cut.texts, cut.kept, cut.dropped) == (1, lengths[LONGER] + ROOM // 2, lengths[LONG] - ROOM // 2)
    seen: set[tuple[int, int]] = set()
    beginning = encoder.tokenizer.encode(LONG, add_special_tokens=False).offsets[: ROOM // 2]
    for piece in windows:
        rows = list(zip(piece.encoding.offsets, piece.encoding.sequence_ids, strict=True))
        assert len(rows) <= SIZE
        assert [offset for offset, side in rows if side == 1 - moving] == beginning
        seen |= {offset for offset, side in rows if side == moving}
    assert seen == set(encoder.tokenizer.encode(LONGER, add_special_tokens=False).offsets)


def test_a_shorter_text_that_leaves_an_eighth_of_the_room_is_whole(encoder: Encoder) -> None:
    words = LONG.split()
    fits = next(
        text
        for count in range(len(words), 0, -1)
        if token_count(encoder, text := " ".join(words[:count])) <= ROOM - ROOM // 8
    )
    cut = CutCount()
    windows = split_text(encoder.tokenizer, (fits, LONGER), 0, SIZE, None, cut)
    assert cut.texts == 0
    assert all(piece.encoding.sequence_ids.count(0) == token_count(encoder, fits) for piece in windows)


def test_a_stride_that_a_pair_has_no_room_for_is_shortened(encoder: Encoder) -> None:
    windows = split_text(encoder.tokenizer, (" ".join(passages()[:1]), LONGER), 0, SIZE, stride=50)
    assert len(windows) > 2
    with pytest.raises(InputError, match="stride=58 "):
        split_text(encoder.tokenizer, LONGER, 0, SIZE, stride=58)


def test_what_cannot_be_read_is_named_by_its_place(encoder: Encoder) -> None:
    with pytest.raises(InputError, match=r'^a\.csv:7: the shorter text .*on_long="cut"'):
        split_texts(encoder.tokenizer, ["short", (LONG, LONG)], SIZE, "window", CutCount(), ["", "a.csv:7"].__getitem__)
    with pytest.raises(InputError, match=r"^a\.csv:2: stride=58 "):
        split_texts(encoder.tokenizer, [LONG], SIZE, "window", CutCount(), lambda number: "a.csv:2", stride=58)


def test_training_goes_on_and_says_what_was_cut(tiny_bert: Path, tmp_path: Path) -> None:
    rows = [Example(f"text {index}", passages()[index], "ab"[index % 2], f"a.csv:{index}") for index in range(16)]
    rows[3] = Example(LONG, LONGER, "b", "a.csv:3")
    settings = TrainSettings(epochs=1.0, evaluations=1)
    with pytest.warns(CutWarning, match=r"^1 text .*[\d,]+ .* \d+ "):
        finetune(tiny_bert, rows, tmp_path / "run", dev=rows[4:], settings=settings, device="cpu")
