"""Texts to texts, a chunk at a time: memory stays the same however many there are.

Within a chunk neighbours in a batch have about the same length; a batch holds as many rows (sentences x beams) as its
budget allows. Order is kept, blank texts stay empty, and no result depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kinfolk.api.copying import UnknownSpan, copied
from kinfolk.api.generation_config import MOST_BEAMS, MOST_LENGTH, GenerationConfig
from kinfolk.data.batching import chunks, token_batches
from kinfolk.errors import InputError, check_int, shorten_list, type_name, warn
from kinfolk.generation.config import Beam, DecodingConstraints, Hypothesis, Penalty, Request, Sampling
from kinfolk.generation.sampling import sample
from kinfolk.generation.search import beam, greedy
from kinfolk.nn.packed import pack

CHUNK_TEXTS = 512
BATCH_TOKENS, BATCH_ROWS = 4096, 512  # at most: tokens of the sources, times beams; sentences, times beams
MOST_TOKENS = 2048  # of a source: what lies beyond is cut, and counted
LONGER, MORE = 2, 50  # a text may have so many times its source's tokens, and so many more


class TranslationWarning(UserWarning):
    """Texts were longer than the model knows or not read whole, or translations are not what they might be."""


@dataclass(frozen=True)
class Translation:
    """A text with its score, which it was ranked by, and its log-probability.

    `finished` is false where the greatest length cut it off.
    """

    text: str
    score: float
    log_probability: float
    finished: bool


@dataclass(frozen=True)
class TranslateSettings:
    """What `translate` will do. `max_length` counts tokens of a translation, the end included."""

    search: Beam
    sampling: Sampling | None = None
    max_length: int | None = None
    copy_unknown: bool = False

    @classmethod
    def make(
        cls,
        manner: GenerationConfig,
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
        """From what a user says; what is not said is as the model is used to. Any sampling option asks for sampling."""
        for name, number, most in (
            ("max_length", max_length, MOST_LENGTH),
            ("beam", beam, MOST_BEAMS),
            ("n_best", n_best, MOST_BEAMS),
        ):
            if number is not None and check_int(name, number) > most:
                raise InputError(f"{name}={number} must be from 1 to {most:,}")
        options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        named: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        sampling = Sampling(**named) if named else None
        if sampling is not None and (beam not in (None, 1) or n_best != 1):
            raise InputError(
                "a text that is drawn at random has no beam and no second best; draw again with another seed"
            )
        beams = max(manner.beams, n_best) if beam is None else beam
        ranking = {"length_penalty": length_penalty, "penalty": penalty, "early_stopping": early_stopping}
        for name, value in ranking.items():
            if value is not None and (sampling is not None or beams == 1):
                raise InputError(f"{name} is about the texts of a beam; a greedy or drawn text has no rivals")
        alpha = manner.penalty.alpha if length_penalty is None else length_penalty
        kind, stopping = penalty or manner.penalty.kind, early_stopping or manner.early_stopping
        search = Beam(beams, n_best, Penalty(alpha, kind), stopping)
        return cls(search, sampling, max_length or manner.longest, copy_unknown)

    @property
    def rows(self) -> int:
        """Of a sentence in a batch."""
        return 1 if self.sampling is not None else self.search.beams


@dataclass
class TranslationStats:
    """How many texts there were so far, how many of them were too long, cut, or not brought to an end.

    And how many tokens were unknown, of the sources and of the translations; these were left out.
    """

    known: int  # tokens, that the model was trained on
    texts: int = 0
    long: int = 0
    longest: int = 0
    dropped: int = 0
    unfinished: int = 0
    unread: int = 0
    unspelled: int = 0
    unheeded: tuple[str, ...] = ()  # settings of the model's folder

    def tell(self) -> None:
        """Warn, once for all texts."""
        if self.long:
            _tell(
                f"{self.long:,} texts are longer than the {self.known:,} tokens that the model was trained on (the "
                f"longest has {self.longest:,}), so their translations may be poor"
            )
        if self.dropped:
            _tell(f"{self.dropped:,} tokens beyond {MOST_TOKENS:,} were cut: no more of a text is read")
        if self.unfinished:
            _tell(f"{self.unfinished:,} translations did not end and were cut at their greatest length (max_length)")
        if self.unread:
            _tell(f"{self.unread:,} tokens of the texts are unknown to the vocabulary: the model cannot read them")
        if self.unspelled:
            _tell(
                f"{self.unspelled:,} unknown tokens were left out of the translations; with attention, copy_unknown "
                "puts words of the source in their place"
            )
        if self.unheeded:
            _tell(f"generation_config.json asks for what is not done here: {shorten_list(self.unheeded)}")


def _tell(message: str) -> None:
    warn(TranslationWarning(message))


def translate_chunks(
    translator: Any, texts: Iterable[str], settings: TranslateSettings, stats: TranslationStats | None = None
) -> Iterator[list[list[Translation]]]:
    """For each text its best translations, best first; lists of at most CHUNK_TEXTS texts.

    What is to be said of the texts is a warning at the end, unless a `tally` is given to keep it.
    """
    kept = stats or TranslationStats(translator.trained_length)
    kept.unheeded = translator.manner.unheeded
    for chunk in chunks(texts, CHUNK_TEXTS):
        found = _Chunk(translator, chunk, kept.texts, settings, kept).translations()
        kept.texts += len(chunk)
        yield found
    if stats is None:
        kept.tell()


def written_ids(translator: Any, text: str) -> list[int]:
    """The tokens of a text's translation as it is usually sought, without the end; a blank text has none."""
    found = _Chunk(translator, [text], 0, translator.translate_settings(), TranslationStats(translator.trained_length))
    return found.written([0], [found.longest(0)])[0][0].ids if found.ids[0] else []


class _Chunk:
    """Some texts, of which the first is number `first` of the whole job."""

    def __init__(
        self, translator: Any, texts: list[str], first: int, settings: TranslateSettings, stats: TranslationStats
    ):
        self.translator, self.texts, self.first = translator, texts, first
        self.settings, self.stats, self.manner = settings, stats, translator.manner
        self.model, self.tokenizer, self.config = translator.model, translator.tokenizer, translator.model.config
        self.ids = [self._encoded(place) for place in range(len(texts))]

    def _encoded(self, place: int) -> list[int]:
        text = self.texts[place]
        if not isinstance(text, str):
            raise InputError(f"text {self.first + place} is {type_name(text)}, expected a string")
        ids: list[int] = self.tokenizer.encode_source(text)
        if not self.settings.copy_unknown:
            self.stats.unread += ids.count(self.tokenizer.source_unknown_id)
        if len(ids) > self.stats.known:
            self.stats.long += 1
            self.stats.longest = max(self.stats.longest, len(ids))
        if len(ids) > MOST_TOKENS:
            self.stats.dropped += len(ids) - MOST_TOKENS
            ids = [*ids[: MOST_TOKENS - 1], ids[-1]]
        return ids

    def translations(self) -> list[list[Translation]]:
        found = [[Translation("", 0.0, 0.0, True)] for _ in self.texts]
        places = [place for place, ids in enumerate(self.ids) if ids]
        lengths = [len(self.ids[place]) for place in places]
        rows = self.settings.rows
        for numbers in token_batches(lengths, max(BATCH_TOKENS // rows, 1), max(BATCH_ROWS // rows, 1)):
            batch = [places[number] for number in numbers]
            longest = [self.longest(place) for place in batch]
            written = self.written(batch, longest)
            texts = iter(self._texts(batch, written))
            for place, most, options in zip(batch, longest, written, strict=True):
                found[place] = [self._judged(next(texts), option, most) for option in options]
                self.stats.unfinished += not found[place][0].finished
        return found

    def longest(self, place: int) -> int:
        """The most tokens of this text's translation."""
        return self.settings.max_length or LONGER * len(self.ids[place]) + MORE

    def written(self, batch: list[int], longest: Sequence[int]) -> list[list[Hypothesis]]:
        """What the model writes for some of the texts, best first."""
        source = pack([self.ids[place] for place in batch], device=self.model.device)
        manner = self.manner
        rules = DecodingConstraints(self.config.end_id, manner.never, manner.forced_end, manner.renormalised)
        request = Request(source, self.config.start_id, longest, rules)
        search, sampling = self.settings.search, self.settings.sampling
        if sampling is not None:
            return [[one] for one in sample(self.model, request, sampling, [self.first + place for place in batch])]
        if search.beams == 1:
            return [[one] for one in greedy(self.model, request)]
        return beam(self.model, request, search)

    def _texts(self, batch: list[int], written: list[list[Hypothesis]]) -> list[str]:
        """Of all options of all sentences, one after the other."""
        flat = [(place, option.ids) for place, options in zip(batch, written, strict=True) for option in options]
        texts, unknown = [self.tokenizer.decode(ids) for _, ids in flat], self.tokenizer.unknown_id
        if not self.settings.copy_unknown:
            self.stats.unspelled += sum(ids.count(unknown) for _, ids in flat)
        else:
            numbers = [number for number, (_, ids) in enumerate(flat) if unknown in ids]
            given = [
                UnknownSpan(self.texts[place], self.ids[place], ids) for place, ids in map(flat.__getitem__, numbers)
            ]
            for number, text in zip(numbers, copied(self.model, self.tokenizer, given), strict=True):
                texts[number] = text
        return texts

    def _judged(self, text: str, option: Hypothesis, longest: int) -> Translation:
        """An end that was forced upon the last place is none."""
        forced = self.manner.forced_end and len(option.ids) + 1 >= longest
        return Translation(text, option.score, option.log_probability, option.finished and not forced)
