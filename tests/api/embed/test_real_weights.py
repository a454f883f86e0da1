"""The demo model's real weights: published cosines, and the vectors of sentence-transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer

from kinfolk.api.loaded import Encoder, load
from kinfolk.demo import passages
from kinfolk.errors import MissingHeadError
from weights import cut_to

THREE = ["A cat sits on the mat.", "A kitten rests on a rug.", "Stock prices fell sharply."]


@pytest.fixture(scope="module")
def demo(minilm: Path) -> Encoder:
    return load(minilm, device="cpu")


def mixed_texts(encoder: Encoder, most: int) -> list[str]:
    """Sixty texts from nothing to just what the model reads, odd characters among them."""
    words = " ".join(passages()).split()
    texts = ["", "x", "Ünïcödé — 日本語 🙂", *THREE, " ".join(words[:600])]
    texts += [" ".join(words[start * 7 : start * 7 + start**3 // 700]) for start in range(1, 54)]
    return cut_to(encoder, texts, most)


def test_three_sentences_have_the_published_cosines(demo: Encoder) -> None:
    first, second, third = demo.embed(THREE)
    assert float(first @ second) == pytest.approx(0.6654, abs=5e-5)
    assert float(first @ third) == pytest.approx(0.0654, abs=5e-5)


def test_sixty_texts_have_the_vectors_of_sentence_transformers(demo: Encoder, minilm: Path) -> None:
    texts = mixed_texts(demo, 256)
    lengths = [len(encoding) for encoding in demo.tokenizer.encode_many(texts)]
    assert (len(texts), min(lengths), max(lengths)) == (60, 2, 256)
    expected = SentenceTransformer(str(minilm), device="cpu").encode(texts)
    np.testing.assert_allclose(demo.embed(texts, on_long="error"), expected, rtol=0, atol=1e-5)


def test_hidden_states_and_attention_equal_the_reference(demo: Encoder, minilm: Path) -> None:
    from kinfolk.nn.trace import Trace

    model = transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()
    inputs = transformers.AutoTokenizer.from_pretrained(minilm)(THREE[0], return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs, output_hidden_states=True, output_attentions=True)
    trace = Trace()
    demo.embed(THREE[0], trace=trace)
    for (ours,), theirs in zip(trace.hidden, expected.hidden_states, strict=True):
        torch.testing.assert_close(ours, theirs[0], rtol=0, atol=1e-4)
    for (ours,), theirs in zip(trace.weights, expected.attentions, strict=True):
        torch.testing.assert_close(ours, theirs[0], rtol=0, atol=1e-5)


def test_a_saved_folder_serves_the_other_libraries_as_well(demo: Encoder, tmp_path: Path) -> None:
    folder = demo.save(tmp_path / "saved")
    texts = [*THREE, passages()[0], ""]
    ours = demo.embed(texts)
    np.testing.assert_allclose(SentenceTransformer(str(folder), device="cpu").encode(texts), ours, rtol=0, atol=1e-6)
    model, report = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(texts[3], return_tensors="pt")
    with torch.no_grad():
        expected = model.eval()(**inputs).last_hidden_state[0].mean(0).numpy()
    np.testing.assert_allclose(ours[3], expected / np.linalg.norm(expected), rtol=0, atol=1e-6)
    assert np.array_equal(load(folder, device="cpu").embed(texts), ours)


def test_the_demo_model_cannot_fill_masks_and_says_so(demo: Encoder) -> None:
    with pytest.raises(MissingHeadError, match="BertForMaskedLM"):
        demo.fill("A [MASK] sits on the mat.")
