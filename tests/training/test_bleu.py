"""Our BLEU is sacreBLEU's, of texts as they stand, and says so."""

from __future__ import annotations

import pytest
import sacrebleu

from kinfolk.errors import InputError
from kinfolk.training.metrics import bleu

TEXTS = ["The cat sat on a mat.", "He didn't come, did he?", "", "It costs 3.50 dollars"]
REFERENCES = ["The cat sat on the mat.", "He did not come, did he?", "Nothing.", "It costs 3.50 dollars!"]


def test_the_score_is_that_of_sacrebleu() -> None:
    result = bleu(TEXTS, REFERENCES)
    assert result.score == sacrebleu.corpus_bleu(TEXTS, [REFERENCES]).score
    assert "tok:13a" in result.signature
    assert f"version:{sacrebleu.__version__}" in result.signature


def test_scripts_without_blanks_are_compared_by_characters() -> None:
    chinese = bleu(["我是学生。"], ["我是一个学生。"])
    assert chinese.score == sacrebleu.corpus_bleu(["我是学生。"], [["我是一个学生。"]], tokenize="zh").score
    assert "tok:zh" in chinese.signature
    assert "tok:char" in bleu(["こんにちは"], ["こんばんは"]).signature


def test_texts_without_references_are_refused() -> None:
    for texts, references in (([], []), (["a"], ["a", "b"])):
        with pytest.raises(InputError, match="references"):
            bleu(texts, references)
