"""Translate texts, a chunk at a time: memory stays the same however many there are.

Within a chunk neighbours in a batch have about the same length; a batch holds as many rows (sentences x beams) as its
budget allows. Order is kept, blank texts stay empty, and no result depends on its batch. In files, lines become lines
(a line break inside a translation a blank), and a table keeps its columns and gets `translation` and `score`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

from kinfolk.api.align import copy_unknown, require_attention
from kinfolk.api.predict_file import text_reader, write_stream, write_table
from kinfolk.data.batching import chunks, token_batches
from kinfolk.data.formats import STDIN, TABLE_SUFFIXES, Row, read_texts
from kinfolk.data.writers import OnDone
from kinfolk.errors import InputError, check_choice, check_texts, shorten_list, warn
from kinfolk.files import check_not_same_file
from kinfolk.generation.config import Beam, Hypothesis, Penalty, Request, Sampling
from kinfolk.generation.defaults import MAX_BEAMS, MAX_TOKENS, GenerationConfig, check_at_most
from kinfolk.generation.sampling import sample, stream_of
from kinfolk.generation.search import beam, greedy
from kinfolk.nn.packed import pack
from kinfolk.text.tokenizer import Text

TRAINED = "trained_length"  # in config.json: the longest source and target that training saw, in tokens
CHUNK_TEXTS = 512
BATCH_TOKENS, BATCH_ROWS = 4096, 512  # at most: tokens of the sources, times beams; sentences, times beams
MAX_SOURCE_TOKENS = 2048  # the rest of a source is cut, and counted
RANKING, SAMPLING = ("length_penalty", "penalty", "early_stopping"), ("temperature", "top_k", "top_p", "seed")
LENGTH_FACTOR, LENGTH_MARGIN = 2, 50  # by default at most 2 n + 50 tokens for a source of n


class TranslationWarning(UserWarning):
    """Texts were too long or not read completely, or translations are incomplete."""


@dataclass(frozen=True)
class Translation:
    """A text with its score, by which it was ranked, and its log-probability.

    `finished` is false where the maximum number of tokens cut it off.
    """

    text: str
    score: float
    log_probability: float
    finished: bool


Chunk = list[list[Translation]]  # of each text, best first


@dataclass(frozen=True)
class TranslateSettings:
    """What `translate` will do. `max_tokens` is the maximum number of tokens of a translation, the end included."""

    search: Beam
    sampling: Sampling | None = None
    max_tokens: int | None = None
    copy_unknown: bool = False


@dataclass
class TranslationStats:
    """Counts over all texts so far, for the warnings at the end."""

    translator: Any
    texts: int = 0
    long: int = 0  # texts that are longer than those that training saw
    longest: int = 0  # in tokens
    cut_tokens: int = 0
    unfinished: int = 0  # translations
    unknown_source: int = 0  # tokens
    unknown_target: int = 0  # tokens, left out

    def report(self) -> None:
        known, unsupported = self.translator.trained_length, self.translator.decoding.unsupported
        messages = {
            f"{self.long:,} texts are longer than the {known:,} tokens that the model was trained on (the longest has "
            f"{self.longest:,}), so their translations may be poor": self.long,
            f"{self.cut_tokens:,} source tokens beyond {MAX_SOURCE_TOKENS:,} were cut": self.cut_tokens,
            f"{self.unfinished:,} translations did not end and were cut at their maximum length": self.unfinished,
            f"{self.unknown_source:,} source tokens are unknown to the vocabulary": self.unknown_source,
            f"{self.unknown_target:,} unknown tokens were left out of the translations; with attention, copy_unknown "
            "copies source words instead": self.unknown_target,
            f"generation_config.json has settings that are not supported: {shorten_list(unsupported)}": unsupported,
        }
        for message, applies in messages.items():
            if applies:
                warn(TranslationWarning(message))


class TranslateOptions(TypedDict, total=False):
    """What `translate` takes by name, besides n_best."""

    beam: int | None
    length_penalty: float | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None
    max_tokens: int | None
    copy_unknown: bool
    penalty: str | None
    early_stopping: str | None


def translate_settings(translator: Any, n_best: int = 1, **options: Unpack[TranslateOptions]) -> TranslateSettings:
    """What `translate` will do with these arguments on this model."""
    known = TranslateOptions.__annotations__
    named: dict[str, Any] = {
        check_choice("option", name, known): value for name, value in options.items() if value is not None
    }
    sampled = {name: named[name] for name in SAMPLING if name in named}  # any of these options asks for sampling
    sampling = Sampling(**sampled) if sampled else None
    beam, max_tokens = named.get("beam"), named.get("max_tokens")
    check_at_most(MAX_TOKENS, max_tokens=max_tokens)
    check_at_most(MAX_BEAMS, beam=beam, n_best=n_best)
    if sampled and (beam not in (None, 1) or n_best != 1):
        raise InputError("sampling has neither a beam nor an n-best list; sample again with another seed")
    defaults: GenerationConfig = translator.decoding
    beams = max(defaults.beams, n_best) if beam is None else beam
    ranked = next((name for name in RANKING if name in named), None)
    if ranked is not None and (sampled or beams == 1):
        raise InputError(f"{ranked} is an option of beam search, not of greedy search or sampling")
    penalty = Penalty(named.get("length_penalty", defaults.penalty.alpha), named.get("penalty", defaults.penalty.kind))
    search = Beam(beams, n_best, penalty, named.get("early_stopping", defaults.early_stopping))
    copies = bool(named.get("copy_unknown", False))
    if copies:
        require_attention(translator.model)
    return TranslateSettings(search, sampling, max_tokens or defaults.max_tokens, copies)


@overload
def translate_texts(
    translator: Any, texts: str, *, n_best: Literal[1] = 1, **options: Unpack[TranslateOptions]
) -> str: ...
@overload
def translate_texts(
    translator: Any, texts: Iterable[str], *, n_best: Literal[1] = 1, **options: Unpack[TranslateOptions]
) -> list[str]: ...
@overload
def translate_texts(
    translator: Any, texts: str, *, n_best: int, **options: Unpack[TranslateOptions]
) -> list[Translation]: ...
@overload
def translate_texts(
    translator: Any, texts: Iterable[str], *, n_best: int, **options: Unpack[TranslateOptions]
) -> list[list[Translation]]: ...
def translate_texts(
    translator: Any,
    texts: str | Iterable[str],
    beam: int | None = None,
    length_penalty: float | None = None,
    n_best: int = 1,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    max_tokens: int | None = None,
    copy_unknown: bool = False,
    penalty: str | None = None,
    early_stopping: str | None = None,
) -> str | list[str] | list[Translation] | list[list[Translation]]:
    """The translation of a text: a string for a string, a list for a list or generator. Blank texts stay empty.

    `beam` is the beam size (1: the likeliest token each time), `length_penalty` (alpha) how much longer texts are
    favoured: a text of n tokens has its log-probability divided by ((5 + n) / 6)^alpha
    (`penalty="gnmt"`) or n^alpha ("power"). A search ends when nothing better can come (`early_stopping`
    "never"), when the best open text is no better as it stands ("heuristic"), or with as many texts as beams
    ("full"). Unsaid they are 4, 0.6, gnmt and never; for Marian folders as their generation settings say, else 4,
    1.0, power and heuristic. With `n_best` above 1 that many `Translation`s with scores are returned for each text,
    best first. `temperature`, `top_k`, `top_p` or `seed` ask for a text drawn at random. `max_tokens` is the
    greatest number of tokens.
    `copy_unknown` puts the source word that was looked at most where the vocabulary has none; it needs attention.
    """
    settings = translate_settings(
        translator, n_best, beam=beam, length_penalty=length_penalty, temperature=temperature, top_k=top_k, top_p=top_p,
        seed=seed, max_tokens=max_tokens, copy_unknown=copy_unknown, penalty=penalty, early_stopping=early_stopping,
    )  # fmt: skip
    chunks = translate_chunks(translator, [texts] if isinstance(texts, str) else texts, settings)
    translations = [candidates for chunk in chunks for candidates in chunk]
    results: list[Any] = translations if n_best > 1 else [candidates[0].text for candidates in translations]
    return results[0] if isinstance(texts, str) else results


def translate_chunks(translator: Any, texts: Iterable[str], settings: TranslateSettings) -> Iterator[Chunk]:
    """As `translate`, a chunk of texts at a time: memory stays the same however many there are."""
    stats = TranslationStats(translator)
    yield from counted_chunks(texts, settings, stats)
    stats.report()


def counted_chunks(texts: Iterable[str], settings: TranslateSettings, stats: TranslationStats) -> Iterator[Chunk]:
    """The translations of each text, best first, for at most CHUNK_TEXTS texts at a time; `stats` tells of them."""
    yield from map(_Decoder(settings, stats).chunk, chunks(check_texts(texts), CHUNK_TEXTS))


def generated_ids(translator: Any, text: str) -> list[int]:
    """The token ids of a text's translation by default settings, without the end; a blank text has none."""
    decoder = _Decoder(translate_settings(translator), TranslationStats(translator))
    ids = decoder.encode(text)
    return decoder.hypotheses([ids])[0][0].ids if ids else []


class _Decoder:
    """The texts that follow those which `stats` has counted."""

    def __init__(self, settings: TranslateSettings, stats: TranslationStats):
        self.settings, self.stats, self.translator = settings, stats, stats.translator
        self.model, self.tokenizer = self.translator.model, self.translator.tokenizer

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode_source(text)
        if not self.settings.copy_unknown:
            self.stats.unknown_source += ids.count(self.tokenizer.source_unknown_id)
        if len(ids) > self.translator.trained_length:
            self.stats.long += 1
            self.stats.longest = max(self.stats.longest, len(ids))
        if len(ids) > MAX_SOURCE_TOKENS:
            self.stats.cut_tokens += len(ids) - MAX_SOURCE_TOKENS
            ids = [*ids[: MAX_SOURCE_TOKENS - 1], ids[-1]]
        return ids

    def chunk(self, texts: list[str]) -> Chunk:
        ids = [self.encode(text) for text in texts]
        translations = [[Translation("", 0.0, 0.0, True)] for _ in texts]
        filled = [index for index, row in enumerate(ids) if row]
        lengths = [len(ids[index]) for index in filled]
        rows = 1 if self.settings.sampling is not None else self.settings.search.beams
        for batch in token_batches(lengths, max(BATCH_TOKENS // rows, 1), max(BATCH_ROWS // rows, 1)):
            indices = [filled[position] for position in batch]
            hypotheses = self.hypotheses([ids[index] for index in indices])
            pairs = [(index, option) for index, each in zip(indices, hypotheses, strict=True) for option in each]
            spelled = iter(self._spell([(texts[index], ids[index], option.ids) for index, option in pairs]))
            for index, options in zip(indices, hypotheses, strict=True):
                limit = self._limit(ids[index])
                translations[index] = [self._translation(next(spelled), option, limit) for option in options]
                self.stats.unfinished += not translations[index][0].finished
        self.stats.texts += len(texts)
        return translations

    def _limit(self, ids: list[int]) -> int:
        return self.settings.max_tokens or LENGTH_FACTOR * len(ids) + LENGTH_MARGIN

    def hypotheses(self, sources: list[list[int]]) -> list[list[Hypothesis]]:
        """Of each source, best first. What is drawn hangs on seed and source, not on its place in the job."""
        batch, start = pack(sources, device=self.model.device), self.model.config.start_id
        limits, constraints = list(map(self._limit, sources)), self.translator.decoding.constraints
        request = Request(batch, start, limits, constraints)
        search, sampling = self.settings.search, self.settings.sampling
        if sampling is None and search.beams > 1:
            return beam(self.model, request, search)
        if sampling is None:
            return [[hypothesis] for hypothesis in greedy(self.model, request)]
        return [[hypothesis] for hypothesis in sample(self.model, request, sampling, list(map(stream_of, sources)))]

    def _spell(self, translations: list[tuple[str, list[int], list[int]]]) -> list[str]:
        """The text of each translation: its source, as text and ids, and its own ids."""
        if self.settings.copy_unknown:
            return copy_unknown(self.translator, translations)
        self.stats.unknown_target += sum(ids.count(self.tokenizer.unknown_id) for _, _, ids in translations)
        return [self.tokenizer.decode(ids) for _, _, ids in translations]

    def _translation(self, text: str, option: Hypothesis, limit: int) -> Translation:
        """An end that was forced at the last position does not finish a text."""
        forced = self.translator.decoding.constraints.forced_end and len(option.ids) + 1 >= limit
        return Translation(text, option.score, option.log_probability, option.finished and not forced)


def translate_file(
    translator: Any,
    source: str | Path,
    output: str | Path,
    settings: TranslateSettings | None = None,
    column: str | None = None,
    report: OnDone = lambda done: None,
) -> int:
    """Translate every text of `source`, and write lines or, by its name, a table to `output`; the number of texts.

    `column` names the texts of a table. More than one translation of each text can be written to .jsonl only.
    """
    check_not_same_file(source, output)
    settings = settings or translate_settings(translator)
    suffix, several, stats = Path(output).suffix.lower(), settings.search.n_best > 1, TranslationStats(translator)
    if several and suffix != ".jsonl":
        raise InputError(f"{output}: several translations of a text are written to a file that ends in .jsonl")

    def lines() -> Iterator[tuple[str, int]]:
        if str(source) != STDIN:
            deque(read_texts(source, column), maxlen=0)  # raises bad lines
        for chunk in counted_chunks(read_texts(source, column), settings, stats):
            yield "".join(f"{one_line(options[0].text)}\n" for options in chunk), len(chunk)

    def predict(batch: Sequence[tuple[Text, str]]) -> Iterable[Row]:
        for chunk in counted_chunks([str(text) for text, _ in batch], settings, stats):
            for options in chunk:
                row: Row = {"translation": options[0].text, "score": round(options[0].score, 6)}
                yield row | ({"translations": [asdict(option) for option in options]} if several else {})

    if suffix in TABLE_SUFFIXES:
        written = write_table(source, text_reader(source, column, ""), output, predict, CHUNK_TEXTS, report)
    else:
        written = write_stream(output, lines(), report)
    stats.report()
    return written.rows


def one_line(text: str) -> str:
    """Without line breaks: whatever other programs take for one is a blank."""
    return " ".join(text.splitlines())
