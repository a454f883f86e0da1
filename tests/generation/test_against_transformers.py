"""Our search over our Marian finds what transformers' generate finds over its own, with the same weights."""

from __future__ import annotations

from typing import Any

import pytest
from reference import END, PAD, UNKNOWN, both, generated

from kinfolk.generation.config import Beam, DecodingConstraints, Penalty, Request
from kinfolk.generation.search import beam, greedy
from kinfolk.nn.packed import pack

SOURCES = [[5, 6, 7, 0], [9, 0], [11, 12, 13, 14, 15, 0], [28, 27, 26, 0], [3, 3, 3, 3, 0]]
LONGEST = 9
STOPS: dict[bool | str, str] = {False: "heuristic", True: "full", "never": "never"}
MODELS = ((1, 0.3, 3.0), (3, 0.3, 4.0))
COMMON: dict[str, Any] = {"max_new_tokens": LONGEST, "suppress_tokens": [PAD, UNKNOWN]}


def request(sources: list[list[int]] = SOURCES, **rules: Any) -> Request:
    return Request(
        pack(sources), PAD, [LONGEST] * len(sources), DecodingConstraints(END, never=(PAD, UNKNOWN), **rules)
    )


@pytest.mark.parametrize("early_stopping", STOPS)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0, -1.0])
def test_beam_search_writes_the_same_texts_with_the_same_scores(early_stopping: bool | str, alpha: float):
    for numbers in MODELS:
        theirs, ours = both(*numbers)
        actual = beam(ours, request(), Beam(3, 3, Penalty(alpha, "power"), STOPS[early_stopping]))
        options = {"num_beams": 3, "num_return_sequences": 3, "length_penalty": alpha}
        expected = generated(theirs, SOURCES, early_stopping=early_stopping, **options, **COMMON)
        texts = [text for texts in actual for text in texts]
        assert [(text.ids, text.finished) for text in texts] == [(ids, ended) for ids, ended, _ in expected]
        assert [text.score for text in texts] == pytest.approx([score for *_, score in expected], abs=2e-5)


def test_the_three_ways_to_stop_differ_here():
    ways = [Beam(3, 3, Penalty(1.0, "power"), stop) for stop in STOPS.values()]
    _, ours = both(*MODELS[0])
    result = [[text.ids for texts in beam(ours, request(), way) for text in texts] for way in ways]
    assert result[0] != result[1] != result[2] != result[0]


def test_a_forced_end_is_the_same():
    for numbers in MODELS:
        theirs, ours = both(*numbers)
        actual = beam(ours, request(forced_end=True), Beam(4, 2, Penalty(1.0, "power"), "heuristic"))
        options = {"num_beams": 4, "num_return_sequences": 2, "forced_eos_token_id": END}
        texts = [(text.ids, text.finished) for texts in actual for text in texts]
        expected = generated(theirs, SOURCES, early_stopping=False, **options, **COMMON)
        assert texts == [(ids, ended) for ids, ended, _ in expected]


def test_log_probabilities_can_be_renormalised():
    differ = False
    for numbers in MODELS:
        theirs, ours = both(*numbers)
        options = Beam(4, 2, Penalty(1.0, "power"), "heuristic")
        actual = [text for texts in beam(ours, request(renormalized=True), options) for text in texts]
        asked = {"num_beams": 4, "num_return_sequences": 2, "renormalize_logits": True, "early_stopping": False}
        expected = generated(theirs, SOURCES, **asked, **COMMON)
        assert [text.ids for text in actual] == [ids for ids, *_ in expected]
        assert [text.score for text in actual] == pytest.approx([score for *_, score in expected], abs=2e-5)
        plain = [text for texts in beam(ours, request(), options) for text in texts]
        differ |= [text.score for text in plain] != pytest.approx([text.score for text in actual], abs=1e-3)
    assert differ


def test_greedy_search_is_the_same():
    for numbers in MODELS:
        theirs, ours = both(*numbers)
        expected = [(ids, ended) for ids, ended, _ in generated(theirs, SOURCES, num_beams=1, **COMMON)]
        assert [(text.ids, text.finished) for text in greedy(ours, request())] == expected
        assert [(text.ids, text.finished) for (text,) in beam(ours, request(), Beam(1))] == expected


def test_a_sentence_alone_gets_what_it_gets_in_company():
    _, ours = both(*MODELS[1])
    together = beam(ours, request(), Beam(4, 2))
    for index, source in enumerate(SOURCES):
        (alone,) = beam(ours, request([source]), Beam(4, 2))
        assert [text.ids for text in alone] == [text.ids for text in together[index]]
