"""Small tokenizers of every kind, learned from a few sentences written for the tests."""

from __future__ import annotations

import random
from functools import cache

from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.train import train_tokenizer

SENTENCES = (
    "The river carried the small boat past the old mill and into the quiet harbour.",
    "Nobody knew why the baker's daughter painted every door in the village green.",
    "In 1894, twelve astronomers counted 3,251 stars; in 1912 they counted them again.",
    "Rain fell on the mountains, on the fields, on the roofs and on the sleeping cats.",
    "She asked for bread, butter, two apples and a newspaper from the day before.",
    "Unbelievable as it sounds, the clockmaker repaired the clock without opening it.",
    "Les élèves écoutaient la leçon; dehors, la neige tombait sur le café fermé.",
    "Die Müllerin öffnete das Fenster und hörte die Glocken über dem Fluß.",
    "猫坐在窗前看雨。河水慢慢流过村子。",
    "Running, walking, talking: the children were playing while the teachers were sleeping.",
    "A teacher teaches, a painter paints, a baker bakes, a singer sings and a writer writes.",
    "The email said: meet me @ 7:30 (or later), bring $20 & don't tell anyone!",
)
KINDS = ("wordpiece", "bpe", "byte_bpe", "unigram", "characters")
SIZES = {"wordpiece": 320, "bpe": 320, "byte_bpe": 400, "unigram": 150, "characters": 82}

NASTY = (
    "",
    " ",
    "\t\n \r\n",
    "\0",
    "a\0b",
    "\ufeffthe river",
    "שלום עולם",
    "cafe\u0301 e\u0327le\u0300ves",
    "👩‍👩‍👧‍👦 the 🇩🇪 boat 👍🏽",
    "猫坐在窗前看雨",
    "one\r\ntwo\nthree\rfour\u2028five",
    "\x10the \x01river",
    "[MASK] the [SEP] <mask> </s>",
    "``quoted'' text",
    "\u3000wide\u3000blank\u00a0hard",
    "ﬁ ½ Ⅳ ﷺ ①",
    "İstanbul Fluß ẞ",
    "\u200bzero\u200dwidth\u00adsoft",
    "\ufffd lost",
    "  two  blanks  ",
    "9,000, 3,251",
    "\u1100\u1161 \u0301 \u0345x",
    "x" * 500,
)


@cache
def small(kind: str) -> Tokenizer:
    """A tokenizer of the kind, learned once per run."""
    return train_tokenizer(kind, SENTENCES * 3, SIZES[kind])


def strange_texts(count: int, seed: int) -> list[str]:
    """Random strings of letters, blanks, marks, controls and special tokens."""
    letters = [*"abcXYZ09 .,-'\"`\n\t\r", *(text for text in NASTY if 0 < len(text) < 12)]
    letters += [
        "\x10",
        "\x01",
        "\x7f",
        "\x1c",
        "\x85",
        "\u0301",
        "\u0327",
        "\u200d",
        "中",
        "é",
        "ﬁ",
        "Ġ",
        "▁",
        "##",
        "한",
    ]
    generator = random.Random(seed)
    return ["".join(generator.choices(letters, k=generator.randrange(14))) for _ in range(count)]
