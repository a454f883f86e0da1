"""What is done to a text before the library sees it.

Long words are cut, so that time and memory stay linear.

A run of more than `LONGEST_RUN` characters without a space is no word. It is cut into runs of that length, each encoded
by itself: up to a few tokens at every cut differ from what the library would give, and the cut parts count
as words of their own. No character is lost and offsets are those of the uncut text.

A workaround for a bug of the library: control characters that shift offsets.

sentencepiece's normalisation table deletes control characters. Where such a character opens a stretch of text (at the
start, or right after an added token), the library forgets that it was there and every offset of the stretch comes out
too small. A space in its place is dropped as well, gives the same ids, and keeps the offsets right.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable
from typing import Any

LONGEST_RUN = 100_000

RUN = re.compile(r"\S+")


def long_word_cuts(text: str, longest: int = LONGEST_RUN) -> list[int]:
    """Where to cut a text; nowhere in a natural one."""
    if len(text) <= longest:
        return []
    cuts: list[int] = []
    for run in RUN.finditer(text):
        cuts += range(run.start() + longest, run.end(), longest)
    return cuts


def split_long_words(text: str, longest: int = LONGEST_RUN) -> list[tuple[int, str]]:
    """(start, characters) of the parts of a text."""
    edges = [0, *long_word_cuts(text, longest), len(text)]
    return [(start, text[start:end]) for start, end in itertools.pairwise(edges)]


CONTROLS = "\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f"  # what the table deletes
CONTROL = re.compile(f"[{CONTROLS}]")

TextMap = Callable[[str], str]


def mask_controls(document: dict[str, Any]) -> TextMap | None:
    """What to do to each text before the library reads it, for tokenizers that have the bug; None for others."""
    normalizer, splitter = document.get("normalizer") or {}, document.get("pre_tokenizer") or {}
    names = [step["type"] for step in normalizer.get("normalizers", [normalizer]) if "type" in step]
    first = splitter.get("pretokenizers", [splitter])[:1]
    if "Precompiled" not in names or not first or first[0].get("type") != "WhitespaceSplit":
        return None
    added = sorted((entry["content"] for entry in document.get("added_tokens") or []), key=len, reverse=True)
    opening = re.compile("|".join(map(re.escape, added))) if added else None
    strips = "StripAccents" in names

    def mask(text: str) -> str:
        if not CONTROL.search(text):
            return text
        characters = list(text)
        starts = [0, *(match.end() for match in opening.finditer(text))] if opening else [0]
        for start in starts:
            for index in range(start, _opening_end(text, start, strips)):
                characters[index] = " "
        return "".join(characters)

    return mask


def _opening_end(text: str, start: int, strips: bool) -> int:
    """Where the run of deleted characters from `start` ends: behind its last control character."""
    end = start
    for index in range(start, len(text)):
        if CONTROL.match(text, index):
            end = index + 1
        elif not (strips and unicodedata.category(text[index]) == "Mn"):
            break
    return end
