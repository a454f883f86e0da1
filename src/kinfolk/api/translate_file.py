"""Translations of a file, written while they are made: memory does not grow with the file.

Lines become lines, one for each, blank ones included; a line break inside a translation becomes a blank. A table keeps
its columns and gets `translation` and `score`. The input is looked through first, so that a bad line is told before
anything is computed, and the file takes its place when it is whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from kinfolk.api.tables import Inputs, Row, write_judged
from kinfolk.api.translate import CHUNK_TEXTS, TranslateSettings, Translation, TranslationStats, translate_chunks
from kinfolk.api.translator import Translator
from kinfolk.data.formats import STDIN, TABLE_SUFFIXES, read_texts
from kinfolk.errors import InputError
from kinfolk.files import atomic_write, check_not_same_file
from kinfolk.machine import trim_memory

Report = Callable[[int], None]  # called with the number of texts that were just done


def translate_file(
    translator: Translator,
    source: str | Path,
    output: str | Path,
    settings: TranslateSettings | None = None,
    column: str | None = None,
    report: Report = lambda done: None,
) -> int:
    """Translate every text of `source`, and write lines or, by its name, a table to `output`; how many there were.

    `column` names the texts of a table. More than one translation of each text can be written to .jsonl only.
    """
    check_not_same_file(source, output)
    chosen = settings or translator.translate_settings()
    suffix = Path(output).suffix.lower()
    if chosen.search.best > 1 and suffix != ".jsonl":
        raise InputError(f"{output}: several translations of a text are written to a file that ends in .jsonl")
    stats = TranslationStats(translator.trained_length)
    work = _write_table if suffix in TABLE_SUFFIXES else _write_lines
    count = work(translator, source, Path(output), chosen, column, report, stats)
    stats.tell()
    return count


def _write_lines(
    translator: Translator,
    source: str | Path,
    output: Path,
    settings: TranslateSettings,
    column: str | None,
    report: Report,
    stats: TranslationStats,
) -> int:
    if str(source) != STDIN:
        deque(read_texts(source, column), maxlen=0)  # bad lines are told now
    count = 0
    with atomic_write(output) as stream:
        for chunk in translate_chunks(translator, read_texts(source, column), settings, stats):
            _append(stream, [options[0] for options in chunk])
            count += len(chunk)
            report(len(chunk))
            trim_memory()
    return count


def _append(stream: BinaryIO, found: Sequence[Translation]) -> None:
    stream.write("".join(f"{one_line(item.text)}\n" for item in found).encode("utf-8", "replace"))


def one_line(text: str) -> str:
    """Without line breaks: whatever other programs take for one is a blank."""
    return " ".join(text.splitlines())


def _write_table(
    translator: Translator,
    source: str | Path,
    output: Path,
    settings: TranslateSettings,
    column: str | None,
    report: Report,
    stats: TranslationStats,
) -> int:
    inputs = Inputs(source, lambda text, place: str(text), column, pair="")

    def judge(texts: Sequence[str]) -> Iterable[Row]:
        for chunk in translate_chunks(translator, texts, settings, stats):
            yield from map(added, chunk)

    def added(options: list[Translation]) -> Row:
        row: Row = {"translation": options[0].text, "score": round(options[0].score, 6)}
        return row | ({"translations": [asdict(option) for option in options]} if settings.search.best > 1 else {})

    return write_judged(inputs, output, judge, CHUNK_TEXTS, report)
