"""A trained translator in the hands of transformers and CTranslate2: they write what we write."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import transformers

from kinfolk.api.loaded import Translator, load_translator
from kinfolk.api.to_marian import LayoutWarning, to_marian
from kinfolk.errors import InputError
from small_pairs import SIZES, pairs, train, translated
from surroundings import Command

TEXTS = [source for source, _ in pairs(30, seed=5)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zero") / "run"
    train(folder, "transformer", steps=110, changes={"dropout": 0.0, "zero_start": True, **SIZES["transformer"]})
    return folder


@pytest.fixture(scope="module")
def exported(trained: Path) -> Path:
    with pytest.warns(LayoutWarning, match=r"by n\^0\.6, not by \(\(5\+n\)/6\)\^0\.6"):
        return to_marian(load_translator(trained, device="cpu")).save(trained / "marian")


def by_transformers(folder: Path) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(str(folder)).eval()
        ids = model.generate(**tokenizer(TEXTS, return_tensors="pt", padding=True))
    return list(tokenizer.batch_decode(ids, skip_special_tokens=True))


def by_ctranslate2(folder: Path, converted: Path) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(str(folder))
        ctranslate2.converters.TransformersConverter(str(folder)).convert(str(converted))
    model = ctranslate2.Translator(str(converted), device="cpu", intra_threads=1)
    pieces = [tokenizer.convert_ids_to_tokens(tokenizer.encode(text)) for text in TEXTS]
    translations = model.translate_batch(pieces, beam_size=4, length_penalty=0.6)
    ids = [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in translations]
    return [tokenizer.decode(one, skip_special_tokens=True) for one in ids]


def test_all_write_what_the_trained_model_writes(trained: Path, exported: Path, tmp_path: Path) -> None:
    """Greedily the same texts; by a beam the penalty of the layout ranks, which CTranslate2 stops earlier by."""
    ours, moved = load_translator(trained, device="cpu"), load_translator(exported, device="cpu")
    greedy = ours.translate(TEXTS, beam=1)
    right = sum(actual == translated(source) for actual, source in zip(greedy, TEXTS, strict=True))
    assert right > len(TEXTS) / 2  # it has learned something, so its texts are more than noise
    assert moved.translate(TEXTS, beam=1) == greedy
    expected = moved.translate(TEXTS)
    assert by_transformers(exported) == expected
    theirs = by_ctranslate2(exported, tmp_path / "ct2")
    assert sum(one == other for one, other in zip(theirs, expected, strict=True)) >= 0.9 * len(TEXTS)


def test_the_way_of_asking_comes_along(trained: Path, exported: Path) -> None:
    ours, moved = load_translator(trained, device="cpu"), load_translator(exported, device="cpu")
    assert (moved.decoding.beams, moved.decoding.penalty.alpha, moved.decoding.early_stopping) == (4, 0.6, "never")
    assert moved.trained_length == ours.trained_length < 20


def test_a_learned_start_is_told_for_ctranslate2_takes_it_for_zero(trained: Path) -> None:
    ours = load_translator(trained, device="cpu")
    object.__setattr__(ours.model.config, "zero_start", False)
    with pytest.warns(LayoutWarning) as warned:
        moved = to_marian(ours)
    assert "train with zero_start=true for both" in str(warned[1].message)
    assert moved.translate(TEXTS, beam=1) == ours.translate(TEXTS, beam=1)


def test_the_command_writes_a_folder_that_is_marian_s(command: Command, trained: Path, tmp_path: Path) -> None:
    ended = command("convert", "--model", trained, "--output", tmp_path / "out", "--to", "marian")
    note, wrote = ended.err.splitlines()
    assert (ended.code, wrote) == (0, f"wrote {tmp_path / 'out'}")
    assert "divide the score of a text of n tokens by n^0.6, not by ((5+n)/6)^0.6 as before" in note
    assert {"source.spm", "target.spm", "vocab.json", "kinfolk.json"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
    again = command("convert", "--model", tmp_path / "out", "--output", tmp_path / "again", "--to", "marian")
    assert (again.code, again.err) == (0, f"wrote {tmp_path / 'again'}\n")
    assert command("translate", "--model", tmp_path / "again", "star").out == f"{translated('star')}\n"


def test_what_is_no_transformer_is_refused(command: Command, small_translator: Path, tiny_bert: Path) -> None:
    recurrent = load_translator(small_translator, device="cpu")
    assert isinstance(recurrent, Translator)
    with pytest.raises(InputError, match="Attention Seq2Seq"):
        to_marian(recurrent)
    for model, layout, message in (
        (small_translator, "marian", "Attention Seq2Seq"),
        (tiny_bert, "marian", "translator is needed"),
        (tiny_bert, "onnx", "to='onnx'"),
    ):
        ended = command("convert", "--model", model, "--output", "nowhere", "--to", layout)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert message in ended.err
