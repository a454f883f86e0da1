"""Interpolated modified Kneser-Ney: an n-gram model of words, the control that language models have to beat.

    p(w | h) = (c(hw) - D(c(hw))) / c(h)  +  b(h) p(w | h without its first word)

c counts, in the longest n-grams, how often hw occurs; in shorter ones, how many different words stand before it, which
is what a word that is reached by backing off must be judged by. D is one of three discounts for counts of one, two and
more, estimated for each length from how many n-grams occur once, twice, three and four times; b(h) is all that was
discounted after h, so that probabilities sum to one. At the bottom stands 1 / words. Every sentence begins anew:
n-grams that begin with its start have nothing before them and keep their plain counts.
Papers: Kneser and Ney 1995; Chen and Goodman 1999, "An Empirical Study of Smoothing Techniques for Language Modeling".

`python recipes/kneser_ney.py` prints perplexities on the Penn Treebank, <eos> counted as a word.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from common import data_file, table

START, END, UNKNOWN = "<s>", "<eos>", "<unk>"
USUAL_DISCOUNT = 0.75  # where a text is too small to estimate one
Words = tuple[str, ...]


@dataclass(frozen=True)
class Length:
    """What is known of n-grams of one length: their counts, and of each context its total and its share of backing off.

    `discounts` are for counts of one, two, and more.
    """

    counts: dict[Words, int]
    discounts: tuple[float, float, float]
    contexts: dict[Words, tuple[int, float]]

    @classmethod
    def of(cls, counts: dict[Words, int], discounts: tuple[float, float, float] | None = None) -> Length:
        """From counts alone, unless discounts are given."""
        estimates = discounts or estimated(Counter(counts.values()))
        totals: dict[Words, int] = defaultdict(int)
        taken: dict[Words, float] = defaultdict(float)
        for gram, count in counts.items():
            totals[gram[:-1]] += count
            taken[gram[:-1]] += estimates[min(count, 3) - 1]
        return cls(counts, estimates, {context: (total, taken[context] / total) for context, total in totals.items()})

    def share(self, gram: Words, total: int) -> float:
        """The first summand of the formula."""
        count = self.counts.get(gram, 0)
        return (count - self.discounts[min(count, 3) - 1]) / total if count else 0.0


@dataclass(frozen=True)
class KneserNey:
    """A model of order n, which looks back at n - 1 words; `words` are all that it can be asked for."""

    words: frozenset[str]
    lengths: list[Length]  # n-grams of one word first

    @classmethod
    def learn(cls, sentences: Iterable[Sequence[str]], order: int = 5, discount: float | None = None) -> KneserNey:
        """From sentences without marks; a `discount` that is given takes the place of all estimates."""
        if order < 1:
            raise ValueError(f"order={order} must be at least 1")
        discounts = None if discount is None else (discount, discount, discount)
        counts = _counted(sentences, order)
        words = frozenset(gram[0] for gram in counts[0])
        adjusted = [*map(_continuations, counts, counts[1:]), counts[-1]]
        return cls(words, [Length.of(each, discounts) for each in adjusted])

    def probability(self, word: str, before: Sequence[str] = ()) -> float:
        """Of a word after others; `before` begins with the mark of the start where a sentence does."""
        longest = len(self.lengths) - 1
        context: Words = tuple(before[-longest:]) if longest else ()
        share = 1 / len(self.words)
        for begin in range(len(context), -1, -1):  # from the word alone to the whole context
            past = context[begin:]
            length = self.lengths[len(past)]
            if past not in length.contexts:  # nor will anything longer be there
                break
            total, back = length.contexts[past]
            share = length.share((*past, word), total) + back * share
        return share

    def perplexity(self, sentences: Iterable[Sequence[str]]) -> float:
        """Of all words of the sentences and of their ends."""
        total, count = 0.0, 0
        for sentence in sentences:
            marked = self._marked(sentence)
            for index in range(1, len(marked)):
                before = marked[max(0, index - len(self.lengths)) : index]
                total -= math.log(self.probability(marked[index], before))
            count += len(marked) - 1
        return math.exp(total / count)

    def _marked(self, sentence: Sequence[str]) -> list[str]:
        """With start and end; a word that was never seen is the unknown one."""
        known = [word if word in self.words else UNKNOWN for word in sentence]
        if UNKNOWN in known and UNKNOWN not in self.words:
            strange = next(word for word in sentence if word not in self.words)
            raise ValueError(f"{strange!r} was not in the training text, and neither was {UNKNOWN}")
        return [START, *known, END]


def estimated(many: Counter[int]) -> tuple[float, float, float]:
    """The discounts, where `many` says how many n-grams have each count (Chen and Goodman, equation 26)."""
    once, twice, thrice, four = (many[count] for count in (1, 2, 3, 4))
    if not (once and twice):
        return USUAL_DISCOUNT, USUAL_DISCOUNT, USUAL_DISCOUNT
    plain = once / (once + 2 * twice)
    first = 1 - 2 * plain * twice / once
    second = 2 - 3 * plain * thrice / twice
    third = 3 - 4 * plain * four / thrice if thrice else plain
    if not (0 <= second <= 2 and 0 <= third <= 3):  # too few to say more
        return plain, plain, plain
    return first, second, third


def _counted(sentences: Iterable[Sequence[str]], order: int) -> list[dict[Words, int]]:
    """How often each n-gram occurs, by its length; the start is never a word of its own."""
    grams: list[Counter[Words]] = [Counter() for _ in range(order)]
    for sentence in sentences:
        marked = (START, *sentence, END)
        for length, counts in enumerate(grams, 1):
            counts.update(zip(*(marked[shift:] for shift in range(length)), strict=False))
    del grams[0][(START,)]
    return [dict(counts) for counts in grams]


def _continuations(counts: dict[Words, int], longer: dict[Words, int]) -> dict[Words, int]:
    """Of each n-gram how many different words stand before it; at the start of a sentence how often it occurs."""
    before: Counter[Words] = Counter(gram[1:] for gram in longer)
    return {gram: count if gram[0] == START else before[gram] for gram, count in counts.items()}


def sentences_of(path: Path) -> Iterator[list[str]]:
    """The words of each line."""
    with path.open(encoding="utf-8") as lines:
        yield from (line.split() for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--orders", type=int, nargs="+", default=[1, 5], help="lengths of the longest n-grams")
    rows = []
    for order in parser.parse_args().orders:
        start = time.monotonic()
        model = KneserNey.learn(sentences_of(data_file("ptb/ptb.train.txt")), order)
        valid, test = (model.perplexity(sentences_of(data_file(f"ptb/ptb.{part}.txt"))) for part in ("valid", "test"))
        seconds = time.monotonic() - start
        rows.append([str(order), f"{len(model.words):,}", f"{valid:.1f}", f"{test:.1f}", f"{seconds:.0f}"])
    print(table(["order", "words", "valid perplexity", "test perplexity", "seconds"], rows))


if __name__ == "__main__":
    main()
