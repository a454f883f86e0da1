"""Larger published weights, MPNet and a Chinese BERT, against the libraries they come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import transformers
from sentence_transformers import SentenceTransformer

from kinfolk.api.loaded import load
from kinfolk.demo import passages
from kinfolk.errors import WeightsError
from weights import cut_to, longest, m3e_small, mpnet

THREE = ["A cat sits on the mat.", "A kitten rests on a rug.", "Stock prices fell sharply."]
CHINESE = [
    "猫坐在垫子上。",
    "一只小猫躺在地毯上。",
    "股价大幅下跌。",
    "",
    *("KINFOLK 是一个语言模型的家族 2024。" * count for count in (3, 12, 60)),
]
WORDS = " ".join(passages()).split()
TEXTS = [*THREE, "", *(" ".join(WORDS[: 20 * count]) for count in range(1, 20))]  # up to about 500 tokens


@pytest.mark.slow
def test_mpnet_has_the_published_cosines_and_the_vectors_of_sentence_transformers() -> None:
    folder = mpnet()
    encoder = load(folder, device="cpu")
    texts = cut_to(encoder, TEXTS, 384)
    assert longest(encoder, texts) == encoder.embed_settings().size == 384
    ours = encoder.embed(texts, on_long="error")
    assert float(ours[0] @ ours[1]) == pytest.approx(0.6649, abs=5e-5)
    assert float(ours[0] @ ours[2]) == pytest.approx(-0.0125, abs=5e-5)
    expected = SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_mpnet_is_saved_for_the_other_libraries(tmp_path: Path) -> None:
    encoder = load(mpnet(), device="cpu")
    folder = encoder.save(tmp_path / "saved")
    theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS[:6])
    np.testing.assert_allclose(encoder.embed(TEXTS[:6]), theirs, rtol=0, atol=1e-6)
    _, report = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())


@pytest.mark.slow
def test_a_chinese_bert_in_a_pickle_is_opened_on_request_only() -> None:
    folder = m3e_small()
    with pytest.raises(WeightsError, match="allow_pickle=True"):
        load(folder)
    assert load(folder, device="cpu", allow_pickle=True).model.config.layers == 4


@pytest.mark.slow
def test_a_chinese_bert_has_the_ids_of_transformers_and_the_vectors_of_sentence_transformers() -> None:
    folder = m3e_small()
    encoder = load(folder, device="cpu", allow_pickle=True)
    texts = cut_to(encoder, CHINESE, 512)
    assert longest(encoder, texts) == encoder.embed_settings().size == 512
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert [tokenizer(text)["input_ids"] for text in texts] == [encoder.tokenizer.encode(text).ids for text in texts]
    expected = SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(encoder.embed(texts, on_long="error"), expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_converted_pickle_needs_no_permission_any_more(tmp_path: Path) -> None:
    encoder = load(m3e_small(), device="cpu", allow_pickle=True)
    again = load(encoder.save(tmp_path / "saved"), device="cpu")
    assert np.array_equal(again.embed(CHINESE), encoder.embed(CHINESE))
