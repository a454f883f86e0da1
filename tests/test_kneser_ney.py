"""The n-gram control: its probabilities are some, they agree with a case worked by hand, and order helps."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path

import pytest

from surroundings import shared_data

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
TEXT = ["the cat sat", "the cat ran", "the dog sat", "a dog ran off", "a cat sat on the dog", "the cat sat on a cat"]


@pytest.fixture(autouse=True)
def recipes_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(RECIPES))


def sentences() -> list[list[str]]:
    return [line.split() for line in TEXT]


@pytest.mark.parametrize("discount", [None, 0.4])
@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_sum_to_one_after_every_context(order: int, discount: float | None) -> None:
    from kneser_ney import START, KneserNey

    model = KneserNey.learn(sentences(), order, discount)
    assert "<eos>" in model.words
    assert START not in model.words
    known = [*sorted(model.words), START, "never-seen"]
    contexts = [context for length in range(3) for context in itertools.product(known, repeat=length)]
    contexts += [(START, *sentence[:index]) for sentence in sentences() for index in range(len(sentence) + 1)]
    for context in contexts:
        result = [model.probability(word, context) for word in model.words]
        assert sum(result) == pytest.approx(1, abs=1e-12)
        assert min(result) > 0


def test_two_sentences_worked_by_hand() -> None:
    """<s> a b <eos>, <s> a c <eos>; pairs: <s>a twice, ab, ac, b<eos>, c<eos>. Four words: a, b, c, <eos>.

    Before a stands one word, before b one, before c one, before <eos> two: five in all. With a discount of 1/2 each of
    four words loses 1/2, so 2/5 goes to 1/4 each:
        p(a) = 1/2 / 5 + 2/5 / 4 = 0.2,  p(<eos>) = 3/2 / 5 + 2/5 / 4 = 0.4
    After a two words, once each, so 1/2 is backed off:  p(b | a) = 1/2 / 2 + 1/2 * 0.2 = 0.35, p(a | a) = 0.1.
    After the start a twice, so 1/4 is backed off:       p(a | <s>) = 3/2 / 2 + 1/4 * 0.2 = 0.8.
    After b the end once, so 1/2 is backed off:          p(<eos> | b) = 1/2 + 1/2 * 0.4 = 0.7.
    """
    from kneser_ney import KneserNey

    model = KneserNey.learn([["a", "b"], ["a", "c"]], order=2, discount=0.5)
    wanted = {("a",): 0.2, ("b",): 0.2, ("<eos>",): 0.4, ("b", "a"): 0.35, ("a", "a"): 0.1, ("a", "<s>"): 0.8}
    for (word, *before), probability in wanted.items():
        assert model.probability(word, before) == pytest.approx(probability, abs=1e-12)
    assert model.perplexity([["a", "b"]]) == pytest.approx((0.8 * 0.35 * 0.7) ** (-1 / 3))


def test_discounts_are_those_of_chen_and_goodman() -> None:
    from kneser_ney import USUAL_DISCOUNT, estimated

    plain = 40 / (40 + 2 * 10)
    wanted = (1 - 2 * plain * 10 / 40, 2 - 3 * plain * 5 / 10, 3 - 4 * plain * 3 / 5)
    assert estimated(Counter({1: 40, 2: 10, 3: 5, 4: 3, 9: 7})) == pytest.approx(wanted)
    assert estimated(Counter({1: 40, 2: 10})) == pytest.approx((1 - 2 * plain / 4, 2, plain))
    assert estimated(Counter({1: 3, 5: 1})) == (USUAL_DISCOUNT,) * 3


def test_a_word_that_was_never_seen_is_the_unknown_one_or_a_fault() -> None:
    from kneser_ney import KneserNey

    model = KneserNey.learn([["a", "<unk>", "b"]], order=2)
    assert model.perplexity([["a", "zebra", "b"]]) == model.perplexity([["a", "<unk>", "b"]])
    with pytest.raises(ValueError, match="'zebra'"):
        KneserNey.learn([["a", "b"]], order=2).perplexity([["a", "zebra"]])
    with pytest.raises(ValueError, match="order=0"):
        KneserNey.learn([["a"]], order=0)


def test_one_word_alone_is_as_frequent_as_it_is() -> None:
    from kneser_ney import KneserNey

    model = KneserNey.learn(sentences(), order=1, discount=0.0)
    counts = Counter(word for sentence in sentences() for word in [*sentence, "<eos>"])
    for word, count in counts.items():
        assert model.probability(word, ["the"]) == pytest.approx(count / sum(counts.values()))
    entropy = -sum(count * math.log(count / sum(counts.values())) for count in counts.values()) / sum(counts.values())
    assert model.perplexity(sentences()) == pytest.approx(math.exp(entropy))


@pytest.mark.slow
def test_five_words_give_the_published_perplexity_of_the_penn_treebank() -> None:
    """141.2: Mikolov et al. 2011, "Empirical Evaluation and Combination of Advanced Language Modeling Techniques"."""
    from kneser_ney import KneserNey, sentences_of

    model = KneserNey.learn(sentences_of(shared_data("ptb/ptb.train.txt")), order=5)
    assert len(model.words) == 10_000
    assert model.perplexity(sentences_of(shared_data("ptb/ptb.test.txt"))) == pytest.approx(141.2, abs=0.1)
