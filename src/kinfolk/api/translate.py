"""Translate texts, a chunk at a time: memory stays the same however many there are.

Within a chunk neighbours in a batch have about the same length; a batch holds as many rows (sentences x beams) as its
budget allows. Order is kept, blank texts stay empty, and no result depends on its batch.

In files, lines become lines, one for each, blank ones included; a line break inside a translation becomes a blank. A
table keeps its columns and gets `translation` and `score`. Bad lines are raised before anything is computed, and the
output appears when it is complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinfolk.api.align import UnknownSpan, copy_unknown
from kinfolk.api.generation_config import MAX_BEAMS, MAX_TOKENS, GenerationConfig
from kinfolk.api.table_files import InputRows, Report, text_reader, write_stream, write_table
from kinfolk.data.batching import chunks, token_batches
from kinfolk.data.formats import STDIN, TABLE_SUFFIXES, Row, read_texts
from kinfolk.errors import InputError, check_int, shorten_list, type_name, warn
from kinfolk.files import check_not_same_file
from kinfolk.generation.config import Beam, DecodingConstraints, Hypothesis, Penalty, Request, Sampling
from kinfolk.generation.sampling import sample
from kinfolk.generation.search import beam, greedy
from kinfolk.nn.packed import pack
from kinfolk.text.tokenizer import Text

if TYPE_CHECKING:
    from kinfolk.api.loaded import Translator

CHUNK_TEXTS = 512
BATCH_TOKENS, BATCH_ROWS = 4096, 512  # at most: tokens of the sources, times beams; sentences, times beams
MAX_SOURCE_TOKENS = 2048  # the rest of a source is cut, and counted
LENGTH_FACTOR, LENGTH_MARGIN = 2, 50  # by default at most 2 n + 50 tokens for a source of n


class TranslationWarning(UserWarning):
    """Texts were longer than the model knows or not read completely, or translations are incomplete."""


@dataclass(frozen=True)
class Translation:
    """A text with its score, by which it was ranked, and its log-probability.

    `finished` is false where the maximum number of tokens cut it off.
    """

    text: str
    score: float
    log_probability: float
    finished: bool


@dataclass(frozen=True)
class TranslateSettings:
    """What `translate` will do. `max_length` is the maximum number of tokens of a translation, the end included."""

    search: Beam
    sampling: Sampling | None = None
    max_length: int | None = None
    copy_unknown: bool = False

    @classmethod
    def make(
        cls,
        defaults: GenerationConfig,
        beam: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        max_length: int | None = None,
        copy_unknown: bool = False,
        penalty: str | None = None,
        early_stopping: str | None = None,
    ) -> TranslateSettings:
        """From a user's options and the model's defaults. Any sampling option asks for sampling."""
        for name, value, maximum in (
            ("max_length", max_length, MAX_TOKENS),
            ("beam", beam, MAX_BEAMS),
            ("n_best", n_best, MAX_BEAMS),
        ):
            if value is not None and check_int(name, value) > maximum:
                raise InputError(f"{name}={value} must be from 1 to {maximum:,}")
        options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        named: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        sampling = Sampling(**named) if named else None
        if sampling is not None and (beam not in (None, 1) or n_best != 1):
            raise InputError("sampling has neither a beam nor an n-best list; sample again with another seed")
        beams = max(defaults.beams, n_best) if beam is None else beam
        ranking = {"length_penalty": length_penalty, "penalty": penalty, "early_stopping": early_stopping}
        for name, option in ranking.items():
            if option is not None and (sampling is not None or beams == 1):
                raise InputError(f"{name} is an option of beam search, not of greedy search or sampling")
        alpha = defaults.penalty.alpha if length_penalty is None else length_penalty
        kind, stopping = penalty or defaults.penalty.kind, early_stopping or defaults.early_stopping
        search = Beam(beams, n_best, Penalty(alpha, kind), stopping)
        return cls(search, sampling, max_length or defaults.max_tokens, copy_unknown)

    @property
    def rows(self) -> int:
        """Of a sentence in a batch."""
        return 1 if self.sampling is not None else self.search.beams


@dataclass
class TranslationStats:
    """Counts over all texts so far, for the warnings at the end."""

    trained_length: int  # in tokens
    texts: int = 0
    long: int = 0  # texts that are longer than that
    longest: int = 0
    cut_tokens: int = 0
    unfinished: int = 0  # translations
    unknown_source: int = 0  # tokens
    unknown_target: int = 0  # tokens, left out
    unsupported: tuple[str, ...] = ()  # settings of the model's folder

    def tell(self) -> None:
        """Warn, once for all texts."""
        messages = {
            f"{self.long:,} texts are longer than the {self.trained_length:,} tokens that the model was trained on "
            f"(the longest has {self.longest:,}), so their translations may be poor": self.long,
            f"{self.cut_tokens:,} source tokens beyond {MAX_SOURCE_TOKENS:,} were cut": self.cut_tokens,
            f"{self.unfinished:,} translations did not end and were cut at their maximum length": self.unfinished,
            f"{self.unknown_source:,} source tokens are unknown to the vocabulary": self.unknown_source,
            f"{self.unknown_target:,} unknown tokens were left out of the translations; with attention, copy_unknown "
            "copies source words instead": self.unknown_target,
            f"generation_config.json has settings that are not supported: {shorten_list(self.unsupported)}": bool(
                self.unsupported
            ),
        }
        for message, applies in messages.items():
            if applies:
                warn(TranslationWarning(message))


def translate_chunks(
    translator: Any, texts: Iterable[str], settings: TranslateSettings, stats: TranslationStats | None = None
) -> Iterator[list[list[Translation]]]:
    """The translations of each text, best first, for at most CHUNK_TEXTS texts at a time.

    Warnings come at the end, unless the caller keeps the `stats`.
    """
    own = stats or TranslationStats(translator.trained_length)
    own.unsupported = translator.decoding.unsupported
    for chunk in chunks(texts, CHUNK_TEXTS):
        translations = _Chunk(translator, chunk, own.texts, settings, own).translations()
        own.texts += len(chunk)
        yield translations
    if stats is None:
        own.tell()


def generated_ids(translator: Any, text: str) -> list[int]:
    """The token ids of a text's translation by default settings, without the end; a blank text has none."""
    stats = TranslationStats(translator.trained_length)
    chunk = _Chunk(translator, [text], 0, translator.translate_settings(), stats)
    return chunk.hypotheses([0], [chunk.max_tokens(0)])[0][0].ids if chunk.ids[0] else []


class _Chunk:
    """Some texts, of which the first has index `first` in the whole job."""

    def __init__(
        self, translator: Any, texts: list[str], first: int, settings: TranslateSettings, stats: TranslationStats
    ):
        self.texts, self.first, self.settings, self.stats = texts, first, settings, stats
        self.model, self.tokenizer, self.defaults = translator.model, translator.tokenizer, translator.decoding
        self.ids = [self._encode(index) for index in range(len(texts))]

    def _encode(self, index: int) -> list[int]:
        text = self.texts[index]
        if not isinstance(text, str):
            raise InputError(f"text {self.first + index} is {type_name(text)}, expected a string")
        ids: list[int] = self.tokenizer.encode_source(text)
        if not self.settings.copy_unknown:
            self.stats.unknown_source += ids.count(self.tokenizer.source_unknown_id)
        if len(ids) > self.stats.trained_length:
            self.stats.long += 1
            self.stats.longest = max(self.stats.longest, len(ids))
        if len(ids) > MAX_SOURCE_TOKENS:
            self.stats.cut_tokens += len(ids) - MAX_SOURCE_TOKENS
            ids = [*ids[: MAX_SOURCE_TOKENS - 1], ids[-1]]
        return ids

    def translations(self) -> list[list[Translation]]:
        translations = [[Translation("", 0.0, 0.0, True)] for _ in self.texts]
        filled = [index for index, ids in enumerate(self.ids) if ids]
        lengths = [len(self.ids[index]) for index in filled]
        rows = self.settings.rows
        for batch in token_batches(lengths, max(BATCH_TOKENS // rows, 1), max(BATCH_ROWS // rows, 1)):
            indices = [filled[position] for position in batch]
            limits = [self.max_tokens(index) for index in indices]
            hypotheses = self.hypotheses(indices, limits)
            texts = iter(self._texts(indices, hypotheses))
            for index, limit, options in zip(indices, limits, hypotheses, strict=True):
                translations[index] = [self._translation(next(texts), option, limit) for option in options]
                self.stats.unfinished += not translations[index][0].finished
        return translations

    def max_tokens(self, index: int) -> int:
        """Of this text's translation."""
        return self.settings.max_length or LENGTH_FACTOR * len(self.ids[index]) + LENGTH_MARGIN

    def hypotheses(self, indices: list[int], limits: Sequence[int]) -> list[list[Hypothesis]]:
        """What the model generates for some of the texts, best first."""
        source = pack([self.ids[index] for index in indices], device=self.model.device)
        config, defaults = self.model.config, self.defaults
        rules = DecodingConstraints(config.end_id, defaults.forbidden, defaults.forced_end, defaults.renormalize)
        request = Request(source, config.start_id, limits, rules)
        search, sampling = self.settings.search, self.settings.sampling
        if sampling is not None:
            return [[one] for one in sample(self.model, request, sampling, [self.first + index for index in indices])]
        if search.beams == 1:
            return [[one] for one in greedy(self.model, request)]
        return beam(self.model, request, search)

    def _texts(self, indices: list[int], hypotheses: list[list[Hypothesis]]) -> list[str]:
        """Of all options of all sentences, one after the other."""
        flat = [(index, option.ids) for index, options in zip(indices, hypotheses, strict=True) for option in options]
        texts, unknown = [self.tokenizer.decode(ids) for _, ids in flat], self.tokenizer.unknown_id
        if not self.settings.copy_unknown:
            self.stats.unknown_target += sum(ids.count(unknown) for _, ids in flat)
            return texts
        positions = [position for position, (_, ids) in enumerate(flat) if unknown in ids]
        spans = [
            UnknownSpan(self.texts[index], self.ids[index], ids) for index, ids in map(flat.__getitem__, positions)
        ]
        for position, text in zip(positions, copy_unknown(self.model, self.tokenizer, spans), strict=True):
            texts[position] = text
        return texts

    def _translation(self, text: str, option: Hypothesis, limit: int) -> Translation:
        """An end that was forced at the last position does not finish a text."""
        forced = self.defaults.forced_end and len(option.ids) + 1 >= limit
        return Translation(text, option.score, option.log_probability, option.finished and not forced)


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
            for options in chunk:
                row: Row = {"translation": options[0].text, "score": round(options[0].score, 6)}
                yield row | ({"translations": [asdict(option) for option in options]} if several else {})

    if suffix in TABLE_SUFFIXES:
        count = write_table(InputRows(source, text_reader(source, column, "")), output, predict, CHUNK_TEXTS, report)
    else:
        count = write_stream(output, lines(), report)
    stats.tell()
    return count


def one_line(text: str) -> str:
    """Without line breaks: whatever other programs take for one is a blank."""
    return " ".join(text.splitlines())
