"""Translations of a file, computed chunk by chunk: memory does not grow with the file.

Lines become lines, one for each, blank ones included; a line break inside a translation becomes a blank. A table keeps
its columns and gets `translation` and `score`. Bad lines are raised before anything is computed, and the output appears
when it is complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from kinfolk.api.table_files import InputRows, Report, text_reader, write_stream, write_table
from kinfolk.api.translate import CHUNK_TEXTS, TranslateSettings, Translation, TranslationStats, translate_chunks
from kinfolk.data.formats import STDIN, TABLE_SUFFIXES, Row, read_texts
from kinfolk.errors import InputError
from kinfolk.files import check_not_same_file
from kinfolk.text.tokenizer import Text

if TYPE_CHECKING:
    from kinfolk.api.loaded import Translator


def translate_file(
    translator: Translator,
    source: str | Path,
    output: str | Path,
    settings: TranslateSettings | None = None,
    column: str | None = None,
    report: Report = lambda done: None,
) -> int:
    """Translate every text of `source`, and write lines or, by its name, a table to `output`; the number of texts.

    `column` names the texts of a table. More than one translation of each text can be written to .jsonl only.
    """
    check_not_same_file(source, output)
    settings = settings or translator.translate_settings()
    suffix, several = Path(output).suffix.lower(), settings.search.n_best > 1
    if several and suffix != ".jsonl":
        raise InputError(f"{output}: several translations of a text are written to a file that ends in .jsonl")
    stats = TranslationStats(translator.trained_length)

    def lines() -> Iterator[tuple[str, int]]:
        if str(source) != STDIN:
            deque(read_texts(source, column), maxlen=0)  # raises bad lines
        for chunk in translate_chunks(translator, read_texts(source, column), settings, stats):
            yield "".join(f"{one_line(options[0].text)}\n" for options in chunk), len(chunk)

    def predict(batch: Sequence[tuple[Text, str]]) -> Iterable[Row]:
        for chunk in translate_chunks(translator, [str(text) for text, _ in batch], settings, stats):
            yield from (_columns(options, several) for options in chunk)

    if suffix in TABLE_SUFFIXES:
        count = write_table(InputRows(source, text_reader(source, column, "")), output, predict, CHUNK_TEXTS, report)
    else:
        count = write_stream(output, lines(), report)
    stats.tell()
    return count


def one_line(text: str) -> str:
    """Without line breaks: whatever other programs take for one is a blank."""
    return " ".join(text.splitlines())


def _columns(options: Sequence[Translation], several: bool) -> Row:
    row: Row = {"translation": options[0].text, "score": round(options[0].score, 6)}
    return row | ({"translations": [asdict(option) for option in options]} if several else {})
