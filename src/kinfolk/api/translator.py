"""A model that turns a text into a text, with its tokenizer and its verbs: what `kinfolk.load` returns for one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kinfolk.api.align import Alignment, align, align_written, require_attention
from kinfolk.api.generation_config import GenerationConfig
from kinfolk.api.translate import TranslateSettings, Translation, translate_chunks, written_ids
from kinfolk.checkpoints.folder import Checkpoint, read_checkpoint, write_checkpoint
from kinfolk.checkpoints.manifest import CARD, write_manifest
from kinfolk.errors import InputError, TokenizerError, type_name
from kinfolk.files import atomic_folder, write_bytes
from kinfolk.models.family import Family, Model
from kinfolk.text.pairs import TranslationTokenizer, load_pair_tokenizer

if TYPE_CHECKING:
    from kinfolk.api.info import ModelInfo

TRAINED = "trained_length"  # in config.json: the longest source and target that training saw, in tokens


@dataclass
class Translator:
    """A text-to-text model of the family, ready for use. Made by `kinfolk.load` and `kinfolk.train_translator`."""

    model: Model
    tokenizer: TranslationTokenizer
    public: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)
    name: str = ""  # what the user called it, for messages

    def __post_init__(self) -> None:
        config, tokenizer = self.model.config, self.tokenizer
        sizes = {"source": (tokenizer.source_size, config.vocabulary_size)}
        sizes["target"] = (tokenizer.target_size, config.target_vocabulary)
        for side, (ids, rows) in sizes.items():
            if ids > rows:
                raise TokenizerError(
                    f"the tokenizer has {side} ids up to {ids - 1:,}, the model's table {rows:,} rows: "
                    "they do not belong together"
                )
        if (tokenizer.begin_id, tokenizer.end_id) != (config.start_id, config.end_id):
            raise TokenizerError(
                f"the tokenizer begins and ends a target with the ids {tokenizer.begin_id} and {tokenizer.end_id}, the "
                f"model with {config.start_id} and {config.end_id}: they do not belong together"
            )
        self.manner = GenerationConfig.of(self.family, config, self.public, self.generation)

    @property
    def family(self) -> Family:
        """What the registry knows of its kind."""
        return self.model.family

    @property
    def device(self) -> torch.device:
        return self.model.device

    @cached_property
    def trained_length(self) -> int:
        """The longest source that the model knows, in tokens, its end included."""
        said, context = self.public.get(TRAINED), int(self.model.config.context)
        known = isinstance(said, list) and len(said) == 2 and all(type(number) is int for number in said)
        return min(said[0], context) if known and said is not None else context

    def translate(
        self,
        texts: str | Iterable[str],
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
    ) -> str | list[str] | list[Translation] | list[list[Translation]]:
        """The translation of a text: a string for a string, a list for a list or generator. Blank texts stay empty.

        `beam` is how many texts are looked at side by side (1: the likeliest token each time), `length_penalty` (alpha)
        how much longer ones are favoured: a text of n tokens has its log-probability divided by ((5 + n) / 6)^alpha
        (`penalty="gnmt"`) or n^alpha ("power"). A search ends when nothing better can come (`early_stopping`
        "never"), when the best open text is no better as it stands ("heuristic"), or with as many texts as beams
        ("full"). Unsaid they are 4, 0.6, gnmt and never; for Marian folders as their generation settings say, else 4,
        1.0, power and heuristic. With `n_best` above 1 that many `Translation`s with scores are returned for each text,
        best first. `temperature`, `top_k`, `top_p` or `seed` ask for a text drawn at random. `max_length` is the
        greatest number of tokens.
        `copy_unknown` puts the source word that was looked at most where the vocabulary has none; it needs attention.
        """
        drawn = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        sought = {"beam": beam, "length_penalty": length_penalty, "n_best": n_best, "penalty": penalty}
        sought["early_stopping"] = early_stopping
        settings = self.translate_settings(**sought, **drawn, max_length=max_length, copy_unknown=copy_unknown)
        single = isinstance(texts, str)
        if not isinstance(texts, Iterable):
            raise InputError(f"expected a text or a collection of texts, found {type_name(texts)}")
        given: Iterable[str] = [texts] if isinstance(texts, str) else texts
        found = [options for chunk in self.translate_stream(given, settings) for options in chunk]
        if n_best > 1:
            return found[0] if single else found
        plain = [options[0].text for options in found]
        return plain[0] if single else plain

    def translate_stream(self, texts: Iterable[str], settings: TranslateSettings) -> Iterator[list[list[Translation]]]:
        """As `translate`, a chunk of texts at a time: memory stays the same however many there are."""
        return translate_chunks(self, texts, settings)

    def translate_settings(self, **options: Any) -> TranslateSettings:
        """What `translate` will do with these arguments on this model."""
        found = TranslateSettings.make(self.manner, **options)
        if found.copy_unknown:
            require_attention(self.model)
        return found

    def align(self, source: str, target: str | None = None, pieces: bool = False) -> Alignment:
        """Which words of the source the model looks at when it writes each word of `target`, or of its own translation.

        `weights` are (layers, heads, target, source), and every row sums to one. `pieces` leaves words in their pieces.
        """
        for name, text in {"source": source, "target": "" if target is None else target}.items():
            if not isinstance(text, str):
                raise InputError(f"the {name} is {type_name(text)}, expected a string")
        if target is None:
            found = align_written(self.model, self.tokenizer, source, written_ids(self, source))
        else:
            found = align(self.model, self.tokenizer, source, target)
        return found if pieces else found.words()

    def info(self) -> ModelInfo:
        """Family, settings and sizes."""
        from kinfolk.api.info import describe_model

        return describe_model(self.model, self.tokenizer)

    def to(self, device: str) -> Translator:
        """The same model on another device ("auto", "cpu", "cuda")."""
        from kinfolk.api.loaded import pick_device  # it stands on this file

        return replace(self, model=self.model.to(pick_device(device)))

    def save(self, folder: str | Path, card: str | None = None) -> Path:
        """Write a folder that kinfolk can load; Marian's can be loaded by transformers too.

        `card` is the text of its README.md, which may be edited later.
        """
        path = Path(folder)
        with atomic_folder(path) as temporary:
            write_checkpoint(temporary, Checkpoint(self.model, self.public, self.generation))
            self.tokenizer.save(temporary)
            if card is not None:
                write_bytes(temporary / CARD, card.encode("utf-8", "replace"))
            write_manifest(temporary)
        return path


def read_translator(folder: Path, device: torch.device, name: str, allow_pickle: bool = False) -> Translator:
    """The text-to-text model of a folder."""
    found = read_checkpoint(folder, allow_pickle)
    tokenizer = load_pair_tokenizer(folder)
    return Translator(found.model.to(device), tokenizer, found.hf_config, found.generation_config, name)
