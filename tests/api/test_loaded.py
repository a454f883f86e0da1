"""Loading, saving and the verbs for pairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from kinfolk.api.loaded import Encoder, load
from kinfolk.demo import passages
from kinfolk.errors import FolderError, HubError, InputError, MissingHeadError, TokenizerError
from kinfolk.text.train import train_tokenizer
from support.tiny import their_model

PAIR = ("Bees live in a hive.", "They make honey.")


def their_pair_probability(folder: Path, model: type, scores: str) -> float:
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(*PAIR, return_tensors="pt")
    with torch.no_grad():
        return float(model.from_pretrained(folder).eval()(**inputs)[scores].softmax(-1)[0, 0])


def test_the_next_sentence_has_the_probability_of_the_reference(five_layers: Path, encoder: Encoder) -> None:
    expected = their_pair_probability(five_layers, transformers.BertForPreTraining, "seq_relationship_logits")
    assert encoder.next_sentence(*PAIR) == pytest.approx(expected, abs=1e-6)
    with pytest.raises(MissingHeadError, match="sentence-order"):
        encoder.sentence_order(*PAIR)


def test_the_order_of_sentences_has_the_probability_of_the_reference(tmp_path: Path) -> None:
    their_model("albert", "ForPreTraining", vocab_size=300).save_pretrained(tmp_path)
    train_tokenizer("unigram", passages(), 300).save(tmp_path)
    expected = their_pair_probability(tmp_path, transformers.AlbertForPreTraining, "sop_logits")
    assert load(tmp_path).sentence_order(*PAIR) == pytest.approx(expected, abs=1e-6)


def test_a_pair_that_is_too_long_is_refused(encoder: Encoder) -> None:
    with pytest.raises(InputError, match=r"pair .*60"):
        encoder.next_sentence(" ".join(passages()[:5]), "They make honey.")
    with pytest.raises(InputError, match="found tuple"):
        encoder.next_sentence(None, "They make honey.")  # type: ignore[arg-type]


def test_a_vocabulary_that_does_not_fit_the_embedding_is_refused(five_layers: Path, encoder: Encoder) -> None:
    larger = train_tokenizer("wordpiece", passages(), 400)
    with pytest.raises(TokenizerError, match=r"400 ids.* 320 "):
        replace(encoder, tokenizer=larger)
    smaller = train_tokenizer("wordpiece", passages(), 200)
    assert replace(encoder, tokenizer=smaller).embed("A cat.").shape == (16,)


def test_saving_and_loading_changes_no_bit(encoder: Encoder, tmp_path: Path) -> None:
    again = load(encoder.save(tmp_path / "saved"))
    before, after = encoder.model.state_dict(), again.model.state_dict()
    assert before.keys() == after.keys()
    assert all(tensor.equal(after[name]) for name, tensor in before.items())
    assert again.model.config == encoder.model.config
    texts = [*PAIR, PAIR, ""]
    assert np.array_equal(again.embed(texts), encoder.embed(texts))
    assert again.fill("A [MASK].") == encoder.fill("A [MASK].")


def test_a_saved_folder_opens_in_the_reference_with_the_same_ids_and_vectors(encoder: Encoder, tmp_path: Path) -> None:
    folder = encoder.save(tmp_path / "saved")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    for text in passages()[:5]:
        inputs = tokenizer(text[:120], return_tensors="pt")
        assert inputs["input_ids"][0].tolist() == encoder.tokenizer.encode(text[:120]).ids
        with torch.no_grad():
            expected = model(**inputs).last_hidden_state[0].mean(0).numpy()
        np.testing.assert_allclose(encoder.embed(text[:120]), expected, rtol=0, atol=1e-5)


def test_a_folder_that_exists_is_not_written_over(encoder: Encoder, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(FolderError, match="already exists"):
        encoder.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_a_changed_byte_in_a_saved_folder_is_noticed(encoder: Encoder, tmp_path: Path) -> None:
    weights = encoder.save(tmp_path / "saved") / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    with pytest.raises(FolderError, match=r"model\.safetensors"):
        load(tmp_path / "saved")


def test_a_later_change_of_the_file_does_not_change_a_loaded_model(encoder: Encoder, tmp_path: Path) -> None:
    folder = encoder.save(tmp_path / "saved")
    again = load(folder)
    weights = folder / "model.safetensors"
    with weights.open("r+b") as stream:
        stream.seek(-4096, 2)
        stream.write(bytes(4096))
    assert np.array_equal(again.embed("A cat."), encoder.embed("A cat."))


def test_what_is_no_folder_is_a_hub_name_or_an_error(tmp_path: Path) -> None:
    with pytest.raises(HubError, match=r'"nobody/nothing".*offline'):
        load("nobody/nothing")
    with pytest.raises(FolderError, match="missing'"):
        load(tmp_path / "missing")
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match=r"file is .*config\.json"):
        load(tmp_path / "file")


def test_an_unknown_device_is_refused(five_layers: Path) -> None:
    with pytest.raises(InputError, match=r"device='gpu'.* auto, cpu, cuda"):
        load(five_layers, device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match='device="cuda"'):
            load(five_layers, device="cuda")
