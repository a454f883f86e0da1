"""A translator in Marian's layout, which transformers reads and ct2-transformers-converter turns into CTranslate2's."""

from __future__ import annotations

from kinfolk.api.loaded import TRAINED, Translator
from kinfolk.errors import InputError, warn
from kinfolk.generation.config import Penalty
from kinfolk.models.marian import MarianConfig
from kinfolk.models.to_marian import to_marian as model_to_marian
from kinfolk.models.transformer import TransformerConfig
from kinfolk.text.pairs import PairTokenizer, as_marian


class LayoutWarning(UserWarning):
    """Another program will read the folder otherwise than we do."""


def to_marian(translator: Translator) -> Translator:
    """The same translator with Marian's names, ids and tokenizer; one of Marian's stays as it is.

    How it wants to be asked comes along as far as Marian's settings can say it: their length penalty has another form,
    which a warning tells.
    """
    model, tokenizer, decoding = translator.model, translator.tokenizer, translator.decoding
    if isinstance(model.config, MarianConfig):
        return translator
    if not isinstance(model.config, TransformerConfig) or not isinstance(tokenizer, PairTokenizer):
        raise InputError(f"{translator.family.title} has no place in Marian's layout; only a Transformer has")
    words, rows = as_marian(tokenizer, model.config.positions)
    moved = model_to_marian(model, rows)
    for note in _departures(model.config.zero_start, decoding.penalty):
        warn(LayoutWarning(note))
    public = {name: translator.hf_config[name] for name in (TRAINED,) if name in translator.hf_config}
    generation = {"num_beams": decoding.beams, "length_penalty": decoding.penalty.alpha, "early_stopping": "never"}
    return Translator(moved, words, public, generation, name=translator.name)


def _departures(zero_start: bool, penalty: Penalty) -> list[str]:
    """What others will do otherwise."""
    notes = []
    if penalty.kind == "gnmt" and penalty.alpha:
        alpha = f"{penalty.alpha:g}"
        notes.append(
            f"all that read this folder divide the score of a text of n tokens by n^{alpha}, not by ((5+n)/6)^{alpha} "
            "as before, so a beam may choose another text; greedy search is the same"
        )
    if not zero_start:
        notes.append(
            "transformers will give a text the same probability as kinfolk, but CTranslate2 will not: it begins a text "
            "with a vector of zeros, and this model has learned another one; train with zero_start=true for both"
        )
    return notes
