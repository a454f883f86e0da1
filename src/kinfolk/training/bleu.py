"""BLEU of texts as people read them, computed by sacreBLEU, whose signature says how: one function, for every use.

    BLEU = brevity penalty x exp(mean of log p_n),  p_n the share of n-grams that the reference has too, n from 1 to 4

Papineni et al. 2002; Post 2018, "A Call for Clarity in Reporting BLEU Scores". Training, evaluation and tests all call
`bleu`, so their numbers can be compared. Scripts that write no blanks are cut into characters, since words cannot be
told apart; the signature says that too (tok).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kinfolk.errors import InputError, missing_extra

try:
    from sacrebleu.metrics.bleu import BLEU
except ImportError as error:
    raise missing_extra("BLEU needs sacrebleu", error) from None

CHINESE = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
UNSPACED = re.compile("[\u0e00-\u0eff\u3040-\u30ff]")  # Thai, Lao, kana
OFTEN = 0.2  # of all characters, the share from which a text counts as written in a script


@dataclass(frozen=True)
class Bleu:
    """The score, from 0 to 100, and sacreBLEU's signature."""

    score: float
    signature: str


def bleu(texts: Sequence[str], references: Sequence[str]) -> Bleu:
    """BLEU of a whole set of texts against one reference each.

    >>> round(bleu(["the cat sat on a mat"], ["the cat sat on the mat"]).score, 1)
    53.7
    """
    if len(texts) != len(references) or not texts:
        raise InputError(
            f"BLEU compares texts with references: {len(texts)} and {len(references)} are not to be paired"
        )
    metric = BLEU(tokenize=tokenization(references))
    score = metric.corpus_score(list(texts), [list(references)]).score
    return Bleu(score, str(metric.get_signature()))


def tokenization(references: Sequence[str]) -> str:
    """sacreBLEU's name for how the references are cut into words: its default, or characters."""
    text = "".join("".join(reference.split()) for reference in references)
    if len(UNSPACED.findall(text)) > OFTEN * len(text):
        return "char"
    return "zh" if len(CHINESE.findall(text)) > OFTEN * len(text) else "13a"
