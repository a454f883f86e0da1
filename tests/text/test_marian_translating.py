"""Marian folders: what transformers wrote, we translate as it does; what we write, it reads."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from marian_folders import SOURCE, marian_folder

import kinfolk
from kinfolk.api.info import describe_folder
from kinfolk.api.loaded import load_translator
from kinfolk.api.translate import TranslationWarning
from kinfolk.errors import ConfigError, TokenizerError
from support.tiny import change_config, their_marian

TEXTS = [*dict.fromkeys(SOURCE)][:6]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model, and sentencepiece models of its own."""
    path = marian_folder(tmp_path_factory.mktemp("marian"))
    ids = json.loads((path / "vocab.json").read_text())
    pad = ids["<pad>"]
    model = their_marian(
        seed=4, vocab_size=len(ids), pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0, forced_eos_token_id=0
    )
    with torch.no_grad():
        model.final_logits_bias[0, 0] += 2.0  # so that texts end
    settings = model.generation_config
    settings.bad_words_ids, settings.num_beams, settings.max_length = [[pad]], 3, 15
    settings.forced_eos_token_id = 0
    model.save_pretrained(path)
    return path


def theirs(folder: Path, **options: Any) -> list[str]:
    """What the reference writes, a sentence at a time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = transformers.MarianTokenizer.from_pretrained(str(folder))
        model = transformers.MarianMTModel.from_pretrained(str(folder)).eval()
        results = []
        for text in TEXTS:
            ids = model.generate(**tokenizer([text], return_tensors="pt"), **options)
            results += tokenizer.batch_decode(ids, skip_special_tokens=True)
    return results


@pytest.mark.filterwarnings("ignore::kinfolk.api.translate.TranslationWarning")  # random texts may not end
def test_translations_are_those_of_the_reference(folder: Path) -> None:
    ours = load_translator(folder, device="cpu")
    assert ours.decoding.beams == 3
    assert ours.translate(TEXTS) == theirs(folder)
    assert ours.translate(TEXTS, beam=1) == theirs(folder, num_beams=1)
    assert ours.translate(TEXTS, beam=5, length_penalty=0.2) == theirs(folder, num_beams=5, length_penalty=0.2)
    several: Any = ours.translate(TEXTS, n_best=3)
    assert [option.text for options in several for option in options] == theirs(folder, num_return_sequences=3)


def test_what_we_save_the_reference_reads(folder: Path, tmp_path: Path) -> None:
    ours = load_translator(folder, device="cpu")
    ours.save(tmp_path / "saved")
    assert theirs(tmp_path / "saved") == theirs(folder)
    again = kinfolk.load(tmp_path / "saved", device="cpu")
    assert again.decoding == ours.decoding
    info = describe_folder(tmp_path / "saved")
    assert (info.family, info.tokenizer, info.manifest) == ("Marian", "MarianTokenizer", "intact")


def test_alignments_of_its_pieces_sum_to_one(folder: Path) -> None:
    alignment = load_translator(folder, device="cpu").align(TEXTS[0], "la neige tombait")
    assert alignment.weights.shape[:2] == (3, 4)
    assert abs(alignment.weights.sum(-1) - 1).max() < 1e-5
    assert alignment.target == ["la", "neige", "tombait", "<end>"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_beams": 0}, "num_beams=0"),
        ({"num_beams": True}, "num_beams=True"),
        ({"max_length": 1}, "max_length=1"),
        ({"length_penalty": "x"}, "length_penalty=x"),
        ({"length_penalty": 1e30}, "length_penalty"),
        ({"early_stopping": "soon"}, "early_stopping=soon"),
        ({"early_stopping": [1]}, "early_stopping"),
        ({"bad_words_ids": [[1, 2]]}, "bad_words_ids"),
        ({"bad_words_ids": [[10**9]]}, "bad_words_ids"),
        ({"bad_words_ids": "x"}, "bad_words_ids"),
        ({"renormalize_logits": 1}, "renormalize_logits=1"),
    ],
)
def test_settings_that_make_no_sense_are_reported(
    settings: dict[str, Any], message: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        kinfolk.load(asking(folder, tmp_path, settings), device="cpu")


def asking(folder: Path, parent: Path, settings: dict[str, Any]) -> Path:
    """A copy that asks for something else."""
    copy = parent / "copy"
    load_translator(folder, device="cpu").save(copy)
    (copy / "kinfolk.json").unlink()
    path = copy / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return copy


@pytest.mark.filterwarnings("ignore:.*(did not end|unknown):kinfolk.api.translate.TranslationWarning")
def test_settings_that_are_not_followed_are_reported(folder: Path, tmp_path: Path) -> None:
    idle = {
        "min_length": 0,
        "do_sample": False,
        "top_k": 50,
        "transformers_version": "4.22.0",
        "no_repeat_ngram_size": None,
    }
    copy = asking(folder, tmp_path, idle)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*did not end|.*are unknown to|.*were left out")
        kinfolk.load(copy, device="cpu").translate(TEXTS)
    copy = asking(folder, tmp_path / "other", {"no_repeat_ngram_size": 3, "length_penalti": 0.5})
    with pytest.warns(TranslationWarning, match="length_penalti=0.5, no_repeat_ngram_size=3"):
        kinfolk.load(copy, device="cpu").translate(TEXTS)


def test_log_probabilities_are_renormalised_where_the_folder_asks(folder: Path, tmp_path: Path) -> None:
    copy = asking(folder, tmp_path, {"renormalize_logits": True})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert kinfolk.load(copy, device="cpu").translate(TEXTS) == theirs(copy)


def test_a_tokenizer_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    load_translator(folder, device="cpu").save(copy)
    (copy / "kinfolk.json").unlink()
    change_config(copy, decoder_start_token_id=5)
    with pytest.raises(TokenizerError, match=r"\(2, 0\) and \(5, 0\)"):
        kinfolk.load(copy, device="cpu")
