"""Long texts: windows that lose nothing, cuts that are counted, errors that name the text."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kinfolk.api.loaded import Encoder
from kinfolk.demo import passages
from kinfolk.errors import InputError, TooLongError
from kinfolk.nn.packed import pack
from kinfolk.text.train import train_tokenizer
from kinfolk.text.windows import CutWarning, split_text

LONG = " ".join(passages()[:8])
SIZE = 60


@pytest.mark.parametrize(
    "text", [LONG, ("A short question?", LONG), (LONG, "A short answer.")], ids=["one", "second", "first"]
)
def test_every_token_has_one_vector_and_its_place_in_the_whole_text(
    encoder: Encoder, text: str | tuple[str, str]
) -> None:
    whole = encoder.tokenizer.encode(text)
    embedded = encoder.embed(text, pool="none")
    assert len(whole) > 3 * SIZE
    assert embedded.tokens == whole.tokens
    assert embedded.offsets == whole.offsets
    assert embedded.words == whole.word_ids
    assert embedded.sequences == whole.sequence_ids
    assert embedded.vectors.shape == (len(whole), 16)


def test_a_token_is_taken_from_the_window_in_which_it_is_most_central(encoder: Encoder) -> None:
    whole = encoder.tokenizer.encode(LONG, add_special_tokens=False)
    centrality: dict[int, list[tuple[int, bool]]] = {token: [] for token in range(len(whole))}
    start, room, overlap = 0, SIZE - 2, (SIZE - 2) // 4
    for piece in split_text(encoder.tokenizer, LONG, 0, SIZE):
        inside = range(1, len(piece.encoding) - 1)
        for row in inside:
            edge = min(row - 1, len(inside) - row)
            centrality[start + row - 1].append((edge, piece.own[0] <= row < piece.own[1]))
        start += room - overlap
    for edges in centrality.values():
        assert [mine for _, mine in edges].count(True) == 1
        # within one token of the middle of the overlap, left and right are equally good
        assert max(edge for edge, _ in edges) - next(edge for edge, mine in edges if mine) <= 1


@pytest.mark.parametrize("pool", ["mean", "first"])
def test_a_text_is_the_mean_of_its_windows_weighted_by_their_tokens(encoder: Encoder, pool: str) -> None:
    pieces = split_text(encoder.tokenizer, LONG, 0, SIZE)
    assert sum(piece.weight for piece in pieces) == len(encoder.tokenizer.encode(LONG))
    vectors, weights = windows_alone(encoder, pool), [piece.weight for piece in pieces]
    np.testing.assert_allclose(encoder.embed(LONG, pool=pool), np.average(vectors, 0, weights), rtol=0, atol=1e-5)
    unit = encoder.embed(LONG, pool=pool, normalize=True)
    assert abs(np.linalg.norm(unit) - 1) < 1e-6


def test_the_maximum_of_a_text_is_the_maximum_of_its_windows(encoder: Encoder) -> None:
    np.testing.assert_allclose(encoder.embed(LONG, pool="max"), windows_alone(encoder, "max").max(0), rtol=0, atol=1e-5)


def windows_alone(encoder: Encoder, pool: str) -> np.ndarray:
    """Each window's vector, from the model itself."""
    import torch

    from kinfolk.nn.packed import pack

    rows = []
    for piece in split_text(encoder.tokenizer, LONG, 0, SIZE):
        tokens = pack([piece.encoding.ids])
        with torch.inference_mode():
            rows.append(getattr(tokens.layout, pool)(encoder.model(tokens))[0].numpy())
    return np.stack(rows)


def test_long_and_short_texts_do_not_disturb_each_other(encoder: Encoder) -> None:
    texts = ["short", LONG, "", (LONG, "x"), LONG[:700], "end"]
    together = encoder.embed(texts, normalize=True)
    for index, text in enumerate(texts):
        np.testing.assert_allclose(encoder.embed(text, normalize=True), together[index], rtol=0, atol=1e-6)


MEGABYTES = 10_000_000  # letters


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x" * MEGABYTES, "words"),  # the quickest to tokenise
        pytest.param(("x" * 999 + " ") * (MEGABYTES // 1000), "wordpiece", marks=pytest.mark.slow),
        pytest.param((LONG + " ") * (MEGABYTES // len(LONG)), "words", marks=pytest.mark.slow),
    ],
    ids=["one word", "long words", "prose"],
)
def test_ten_megabytes_are_read_to_their_end(encoder: Encoder, text: str, kind: str) -> None:
    encoder = replace(encoder, tokenizer=train_tokenizer(kind, passages(), 320))
    embedded = encoder.embed(text, pool="none")
    assert len(embedded.vectors) == len(embedded.offsets) > SIZE
    reached = 0
    for start, end in embedded.offsets[1:-1]:
        assert text[reached:start].strip() == ""
        reached = max(reached, end)
    assert reached == len(text.rstrip()) >= MEGABYTES - 1


def test_a_text_that_just_fits_is_not_cut(encoder: Encoder) -> None:
    text = "cat " * (SIZE - 2)
    pieces_per_word = len(encoder.tokenizer.encode("cat", add_special_tokens=False))
    fits = "cat " * ((SIZE - 2) // pieces_per_word)
    assert len(encoder.tokenizer.encode(fits)) <= SIZE
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.embed(fits, on_long="cut")
        encoder.embed(fits, on_long="error")
    with pytest.warns(CutWarning):
        encoder.embed(text + text, on_long="cut")


def test_a_cut_is_one_warning_that_counts_what_was_kept_and_dropped(encoder: Encoder) -> None:
    lengths = [len(encoder.tokenizer.encode(text, add_special_tokens=False)) for text in (LONG, LONG[:700])]
    with pytest.warns(CutWarning) as caught:
        vectors = encoder.embed(["short", LONG, LONG[:700]], on_long="cut")
    (warning,) = (entry.message for entry in caught)
    assert isinstance(warning, CutWarning)
    kept = 2 * (SIZE - 2)
    assert (warning.texts, warning.kept, warning.dropped) == (2, kept, sum(lengths) - kept)
    assert str(warning) == f"2 texts were cut: {kept} of their tokens kept, {sum(lengths) - kept} dropped"
    whole = encoder.tokenizer.encode(LONG)
    start = encoder.embed(LONG[: whole.offsets[SIZE - 2][1]])
    np.testing.assert_allclose(vectors[1], start, rtol=0, atol=1e-5)


def test_every_cut_is_reported_even_where_the_counts_are_the_same(encoder: Encoder) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            encoder.embed(LONG, on_long="cut")
    assert [entry.category for entry in caught] == [CutWarning, CutWarning]
    assert {entry.filename for entry in caught} == {__file__}


def test_a_cut_is_reported_to_code_without_a_module(encoder: Encoder) -> None:
    with pytest.warns(CutWarning):
        exec("encoder.embed(text, on_long='cut')", {"encoder": encoder, "text": LONG})


def test_a_filter_for_the_callers_module_is_obeyed(encoder: Encoder) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=__name__)
        encoder.embed(LONG, on_long="cut")
    assert caught == []


def test_an_error_names_the_text_and_both_lengths(encoder: Encoder) -> None:
    length = len(encoder.tokenizer.encode(LONG))
    with pytest.raises(TooLongError, match=f'^text 2 .*{length} tokens, .*60; on_long="window"'):
        encoder.embed(["short", "short", LONG], on_long="error")


def test_a_pair_of_two_long_texts_is_named(encoder: Encoder) -> None:
    reason = (
        r'^text 1: the shorter text of the pair has \d+ tokens, and a window has room for 57 of both; .*on_long="cut"'
    )
    with pytest.raises(InputError, match=reason):
        encoder.embed(["short", (LONG, LONG)])
    with pytest.warns(CutWarning, match="1 text .* 57 "):
        assert encoder.embed((LONG, LONG), on_long="cut").shape == (16,)


def test_a_window_and_a_stride_of_the_users_own(encoder: Encoder) -> None:
    windows = split_text(encoder.tokenizer, LONG, 0, 20, 5)
    together = encoder.model(pack([piece.encoding.ids for piece in windows])).detach().numpy()
    starts = np.cumsum([0, *(len(piece.encoding) for piece in windows)])
    own = [together[start + piece.own[0] : start + piece.own[1]] for start, piece in zip(starts, windows, strict=False)]
    embedded = encoder.embed(LONG, layers="last", pool="none", window=20, stride=5)
    assert embedded.tokens == encoder.tokenizer.encode(LONG).tokens
    assert np.abs(embedded.vectors - np.concatenate(own)).max() < 1e-5
    with pytest.raises(InputError, match=r"window=61 .* 60 tokens"):
        encoder.embed(LONG, window=61)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"window": 2}, "window=2 "),
        ({"window": "3"}, "window=3 "),
        ({"window": 5.0}, "window=5.0 "),
        ({"window": True}, "window=True "),
        ({"stride": -3}, "stride=-3 "),
        ({"window": 12, "stride": 10}, "stride=10 .* 10 tokens"),
    ],
)
def test_windows_that_cannot_be_are_refused_before_the_first_text(encoder: Encoder, options: Any, reason: str) -> None:
    with pytest.raises(InputError, match=f"^{reason}"):
        encoder.embed([], **options)
