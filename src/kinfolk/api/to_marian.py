"""A translator in Marian's layout, which transformers reads and ct2-transformers-converter turns into CTranslate2's."""

from __future__ import annotations

from kinfolk.api.loaded import Translator
from kinfolk.api.translate import TRAINED
from kinfolk.errors import InputError, warn
from kinfolk.models.marian import MarianConfig
from kinfolk.models.marian import to_marian as model_to_marian
from kinfolk.models.transformer import TransformerConfig
from kinfolk.text.marian import as_marian
from kinfolk.text.pairs import PairTokenizer


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
        raise InputError(f"{translator.model.family.title} has no place in Marian's layout; only a Transformer has")
    marian_tokenizer, rows = as_marian(tokenizer, model.config.positions)
    moved, alpha = model_to_marian(model, rows), decoding.penalty.alpha
    if decoding.penalty.kind == "gnmt" and alpha:
        score = f"the score of a text of n tokens by n^{alpha:g}, not by ((5+n)/6)^{alpha:g} as before"
        beam = "so a beam may choose another text; greedy search is the same"
        warn(LayoutWarning(f"all that read this folder divide {score}, {beam}"))
    if not model.config.zero_start:
        same = "transformers will give a text the same probability as kinfolk, but CTranslate2 will not"
        start = "it begins a text with a vector of zeros, this model with a learned one"
        warn(LayoutWarning(f"{same}: {start}; train with zero_start=true for both"))
    public = {name: translator.hf_config[name] for name in (TRAINED,) if name in translator.hf_config}
    generation = {"num_beams": decoding.beams, "length_penalty": alpha, "early_stopping": "never"}
    return Translator(moved, marian_tokenizer, public, generation, name=translator.name)
