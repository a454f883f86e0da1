"""Texts to vectors: every choice of layers and pooling against the reference's hidden states."""

from __future__ import annotations

import threading
from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

from kinfolk.api import embed
from kinfolk.api.embed import TokenVectors
from kinfolk.api.loaded import Encoder
from kinfolk.demo import passages
from kinfolk.errors import InputError
from kinfolk.nn.trace import Trace

TEXTS = ["Cats sleep.", ("Where do bees live?", "In a hive."), "", *(text[:90] for text in passages()[:5])]
LAYERS: dict[Any, tuple[list[int], bool]] = {
    "first": ([0], False),
    "last": ([5], False),
    "second_to_last": ([4], False),
    "sum_last_4": ([2, 3, 4, 5], True),
    "concat_last_4": ([2, 3, 4, 5], False),
    "sum_all": ([1, 2, 3, 4, 5], True),
    3: ([3], False),
    (0, 5, 2): ([0, 5, 2], False),
}


@cache
def their_hidden_states(folder: Path) -> list[Any]:
    """For each text: the reference's vectors of all layers, (layers, tokens, width)."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    states = []
    for text in TEXTS:
        inputs = tokenizer(*(text if isinstance(text, tuple) else (text,)), return_tensors="pt")
        with torch.no_grad():
            states.append(torch.cat(model(**inputs, output_hidden_states=True).hidden_states).numpy())
    return states


@pytest.mark.parametrize("pool", ["first", "last", "mean", "max", "none"])
@pytest.mark.parametrize("layers", LAYERS, ids=str)
def test_layers_and_pooling_follow_the_reference(five_layers: Path, encoder: Encoder, layers: Any, pool: str) -> None:
    numbers, summed = LAYERS[layers]
    vectors = encoder.embed(TEXTS, layers=layers, pool=pool)
    for ours, states in zip(vectors, their_hidden_states(five_layers), strict=True):
        tokens = states[numbers].sum(0) if summed else np.concatenate(states[numbers], axis=-1)
        pooled = {"first": tokens[0], "last": tokens[-1], "mean": tokens.mean(0), "max": tokens.max(0)}
        expected = pooled.get(pool, tokens)
        np.testing.assert_allclose(ours.vectors if pool == "none" else ours, expected, rtol=0, atol=2e-5)


def test_the_shape_of_the_answer_follows_the_shape_of_the_question(encoder: Encoder) -> None:
    assert encoder.embed("one text").shape == encoder.embed(("a", "pair")).shape == encoder.embed("").shape == (16,)
    assert encoder.embed(["one text"]).shape == encoder.embed([("a", "pair")]).shape == (1, 16)
    assert encoder.embed(text for text in ("a", "generator")).shape == (2, 16)
    assert encoder.embed([]).shape == encoder.embed(iter(())).shape == (0, 16)
    assert encoder.embed([], layers="concat_last_4").shape == (0, 64)
    assert encoder.embed([], pool="none") == []
    assert isinstance(encoder.embed("one text", pool="none"), TokenVectors)
    assert encoder.embed(["x"]).dtype == np.float32


def test_a_pair_is_not_the_same_as_its_texts_joined(encoder: Encoder) -> None:
    assert np.abs(encoder.embed(("one", "two")) - encoder.embed("one two")).max() > 1e-3


def test_token_vectors_know_their_place_in_the_text(encoder: Encoder) -> None:
    whole = encoder.embed(("Cats sleep.", "Dogs bark."), pool="none")
    assert len(whole.vectors) == len(whole.offsets) == len(whole.tokens) == len(whole.words) == len(whole.sequences)
    assert whole.tokens[0] == "[CLS]"
    assert whole.sequences[0] is None
    second = [span for span, side in zip(whole.offsets, whole.sequences, strict=True) if side == 1]
    assert (second[0][0], second[-1][1]) == (0, len("Dogs bark."))


def test_normalised_vectors_have_unit_length(encoder: Encoder) -> None:
    plain, unit = encoder.embed(TEXTS), encoder.embed(TEXTS, normalize=True)
    np.testing.assert_allclose(unit, plain / np.linalg.norm(plain, axis=1, keepdims=True), rtol=0, atol=1e-6)
    rows = encoder.embed("Cats sleep.", pool="none", normalize=True).vectors
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=0, atol=1e-6)


def test_neither_batch_nor_chunk_changes_a_vector(encoder: Encoder) -> None:
    words = " ".join(passages()).split()
    texts = [" ".join(words[start % 400 : start % 400 + start % 9]) for start in range(2100)]
    together = encoder.embed(texts, normalize=True)
    for number in [*range(0, 2100, 23), 2047, 2048, 2099]:
        np.testing.assert_allclose(encoder.embed(texts[number], normalize=True), together[number], rtol=0, atol=1e-6)


@pytest.mark.parametrize("number", [0, 1, 2, 3, 40, 41])
def test_vectors_of_many_chunks_are_one_array_in_order(
    encoder: Encoder, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{index} cats sleep" for index in range(number)]
    expected = encoder.embed(texts, normalize=True)
    monkeypatch.setattr(embed, "CHUNK_TEXTS", 2)
    vectors = encoder.embed((text for text in texts), normalize=True)
    assert vectors.shape == (number, encoder.model.config.width)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-6)


def test_texts_of_all_lengths_cost_their_own_tokens(encoder: Encoder) -> None:
    words = " ".join(passages()).split()
    texts = [" ".join(words[:count]) for count in range(0, 30, 3)]
    rows: Counter[str] = Counter()

    def count(name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        rows[name] += len(inputs[0])

    layers = {name: layer for name, layer in encoder.model.body.stack.named_modules() if isinstance(layer, nn.Linear)}
    hooks = [layer.register_forward_hook(partial(count, name)) for name, layer in layers.items()]
    encoder.embed(texts)
    for hook in hooks:
        hook.remove()
    tokens = sum(len(encoding) for encoding in encoder.tokenizer.encode_many(texts))
    assert rows == dict.fromkeys(layers, tokens)


def test_a_trace_changes_nothing_and_keeps_the_order_of_the_texts(encoder: Encoder) -> None:
    for trace in (Trace(), Trace(hidden=False)):
        traced = encoder.embed(TEXTS, layers="second_to_last", trace=trace)
        np.testing.assert_allclose(traced, encoder.embed(TEXTS, layers="second_to_last"), rtol=0, atol=1e-5)
        assert [weights.shape[-1] for weights in trace.weights[0]] == [len(encoding) for encoding in trace.encodings]
        assert trace.encodings[0].tokens == encoder.tokenizer.encode(TEXTS[0]).tokens


@pytest.mark.parametrize("wrong", [None, ("a", "b", "c"), 1.5, b"bytes", ["a"], ("a", None), {}], ids=str)
def test_a_wrong_text_is_named_by_its_position(encoder: Encoder, wrong: Any) -> None:
    with pytest.raises(InputError, match=r"^text 2 is (a|bytes) .* expected a string, or a tuple of two$"):
        encoder.embed(["fine", ("also", "fine"), wrong])
    with pytest.raises(InputError, match=r"^text 2050 is (a|bytes) "):
        encoder.embed(["fine"] * 2050 + [wrong])


def test_layers_may_be_numbers_of_numpy(encoder: Encoder) -> None:
    expected = encoder.embed(TEXTS, layers=[0, 1])
    for layers in ([np.int64(0), np.int8(1)], np.array([0, 1]), np.arange(2, dtype=np.uint8), range(2)):
        assert np.array_equal(encoder.embed(TEXTS, layers=layers), expected)
    for layers in (np.int64(1), np.array(1), 1):
        assert np.array_equal(encoder.embed(TEXTS, layers=layers), encoder.embed(TEXTS, layers=[1]))


@pytest.mark.parametrize("wrong", [None, 1.5, 7, ("a", "b", "c"), (), b"abc", {"a": "b"}], ids=str)
def test_what_is_neither_text_nor_collection_is_refused(encoder: Encoder, wrong: Any) -> None:
    with pytest.raises(InputError, match="expected a "):
        encoder.embed(wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": "lst"}, 'layers=.*did you mean "last"'),
        ({"layers": [0, 6]}, r"layers=\[0, 6\]: this model has layers 0 \(embedding output\) to 5"),
        ({"layers": []}, "this model has layers"),
        ({"layers": 2.0}, "this model has layers"),
        ({"layers": np.array([1.0, 2.0])}, "this model has layers"),
        ({"layers": np.array([[1, 2]])}, "this model has layers"),
        ({"layers": {1, 2}}, "this model has layers"),
        ({"pool": "avg"}, "choose one of first, last, mean, max, none"),
        ({"pool": 3}, "choose one of first, last, mean, max, none"),
        ({"on_long": "ignore"}, "choose one of window, cut, error"),
    ],
)
def test_an_unknown_option_lists_the_known_ones(encoder: Encoder, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        encoder.embed("text", **options)


def test_two_threads_that_share_a_model_get_the_right_answers(encoder: Encoder) -> None:
    alone = {pool: encoder.embed(TEXTS, pool=pool) for pool in ("mean", "max", "first")}
    wrong: list[str] = []

    def work(pool: str) -> None:
        wrong.extend(pool for _ in range(20) if not np.array_equal(encoder.embed(TEXTS, pool=pool), alone[pool]))

    threads = [threading.Thread(target=work, args=(pool,)) for pool in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
