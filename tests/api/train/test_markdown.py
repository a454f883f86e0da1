"""Markdown made of users' words shows those words, and nothing in them acts."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from kinfolk.api.report import escaped, indented, plain, table

READER = MarkdownIt("commonmark").enable("table")
WORDS = [
    "a|b",
    "a\\|b\\",
    "`code` and *stars*",
    "_under_ __two__ ~~gone~~",
    "<script>alert(1)</script>",
    "[link](http://x.y) ![image](z)",
    "&amp; &#65; $x$ # @you {a}",
    "日本語 العربية 😀",
    "- item",
    "---",
]


def cells(markdown: str) -> list[list[str]]:
    """Rows of the only table, as a reader sees their text."""
    rows: list[list[str]] = []
    for token in READER.parse(markdown):
        if token.type == "tr_open":
            rows.append([])
        if token.type == "inline":
            parts = token.children or []
            assert {part.type for part in parts} <= {"text", "text_special"}, token.content
            rows[-1].append("".join(part.content for part in parts))
    return rows


@pytest.mark.parametrize("word", WORDS)
def test_a_cell_shows_the_word_itself(word: str) -> None:
    assert cells(table(("name", word), [(word, 1)])) == [["name", word], [word, "1"]]


def test_what_no_screen_shows_is_replaced_and_lines_are_joined() -> None:
    assert plain("a\nb\tc  d\u2028e\0\udcff") == "a b c d e��"
    assert plain("x" * 100, limit=5) == "xxxx…"
    assert escaped("\n") == ""
    table(("a",), [("\udcff",)]).encode()


def test_numbers_are_easy_to_read() -> None:
    assert cells(table(("a", "b", "c"), [(0.123456, 1234567, "0.5")]))[1] == ["0.1235", "1,234,567", "0.5"]


def test_a_block_is_shown_as_it_is() -> None:
    (token,) = READER.parse(indented("a |\n```\nb\x0cc\udcff"))
    assert token.type == "code_block"
    assert token.content.rstrip("\n") == "a |\n```\nb\nc?"
