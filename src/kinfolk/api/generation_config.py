"""The decoding settings of a translator: what its folder says, or the defaults of its family.

Folders of transformers say it in generation_config.json (older ones in config.json). There a text's score is divided by
its length to the power of length_penalty, and the search stops as early_stopping says. Our own families take Vaswani et
al.'s beam of 4 with GNMT's length penalty of 0.6, and search until nothing better can come (generation/search.py);
their config.json may give another number of beams, and a limit. Settings of transformers that would change a text and
are not supported here are kept by name, for a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kinfolk.errors import ConfigError, InputError
from kinfolk.generation.config import Penalty
from kinfolk.models.config import TranslationConfig
from kinfolk.models.family import Family

EARLY_STOPPING: dict[bool | str, str] = {False: "heuristic", True: "full", "never": "never"}  # theirs: ours
MAX_BEAMS, MAX_TOKENS = 1_000, 16_384  # beyond, a search would fill the memory
SUPPORTED = {
    "num_beams", "max_length", "length_penalty", "early_stopping", "forced_eos_token_id", "bad_words_ids",
    "renormalize_logits",
}  # fmt: skip
# Settings that make no difference to a text, or only to one that is sampled (do_sample).
NEUTRAL = {
    "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "transformers_version", "use_cache",
    "_from_model_config", "temperature", "top_k", "top_p", "typical_p", "min_p", "epsilon_cutoff", "eta_cutoff",
    "cache_implementation", "output_attentions", "output_hidden_states", "output_scores", "output_logits",
    "return_dict_in_generate", "num_return_sequences", "max_time", "_commit_hash",
}  # fmt: skip
# Settings that do make one, with the value at which they do not.
UNSUPPORTED: dict[str, Any] = {
    "do_sample": False, "min_length": 0, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0, "diversity_penalty": 0.0,
    "num_beam_groups": 1, "remove_invalid_values": False, "guidance_scale": 1.0, "penalty_alpha": 0.0,
    "token_healing": False, "top_h": 1.0,
}  # fmt: skip
IN_CONFIG = {*UNSUPPORTED, "max_new_tokens", "min_new_tokens", "suppress_tokens", "begin_suppress_tokens",
             "forced_bos_token_id", "force_words_ids", "sequence_bias"}  # fmt: skip


@dataclass(frozen=True)
class GenerationConfig:
    """The default way to decode with a model. `max_tokens` counts the tokens of a text, its end included."""

    beams: int = 4
    penalty: Penalty = field(default_factory=Penalty)
    early_stopping: str = "never"
    max_tokens: int | None = None  # None: it depends on the source
    forced_end: bool = False
    renormalize: bool = False
    forbidden: tuple[int, ...] = ()
    unsupported: tuple[str, ...] = ()  # settings of the folder

    @classmethod
    def of(
        cls, family: Family, config: TranslationConfig, hf_config: Mapping[str, Any], generation: Mapping[str, Any]
    ) -> GenerationConfig:
        """From the two files; the defaults are those of transformers, but for four beams and all positions."""
        forbidden = {config.pad_id, config.start_id} - {config.end_id}
        settings = {name: value for name, value in {**hf_config, **generation}.items() if value is not None}
        beams = _integer(settings, "num_beams", 4, 1, MAX_BEAMS)
        default: int = min(config.positions, MAX_TOKENS)
        max_tokens = _integer(settings, "max_length", default, 2, MAX_TOKENS) - 1  # theirs counts the start token too
        if family.generation_config is None:
            limit = max_tokens if "max_length" in settings else None
            return cls(beams, max_tokens=limit, forbidden=tuple(sorted(forbidden)))
        return cls(
            beams,
            penalty=_penalty(settings),
            early_stopping=_early_stopping(settings),
            max_tokens=max_tokens,
            forced_end="forced_eos_token_id" in settings,
            renormalize=_boolean(settings, "renormalize_logits"),
            forbidden=tuple(sorted(forbidden | _bad_words(settings, config))),
            unsupported=_unsupported(hf_config, generation),
        )


def _integer(settings: Mapping[str, Any], name: str, default: int, minimum: int, maximum: int) -> int:
    value = settings.get(name, default)
    if type(value) is not int or not minimum <= value <= maximum:
        raise ConfigError(
            f"generation config: {name}={str(value)[:60]} is not an integer from {minimum} to {maximum:,}"
        )
    return value


def _boolean(settings: Mapping[str, Any], name: str) -> bool:
    value = settings.get(name, False)
    if not isinstance(value, bool):
        raise ConfigError(f"generation config: {name}={str(value)[:60]} is not true or false")
    return value


def _unsupported(hf_config: Mapping[str, Any], generation: Mapping[str, Any]) -> tuple[str, ...]:
    """As name=value. config.json says much else; of it only what is known to concern generation counts."""
    settings = {name: value for name, value in hf_config.items() if name in IN_CONFIG} | dict(generation)
    return tuple(
        f"{name}={str(value)[:20]}"
        for name, value in sorted(settings.items())
        if value is not None and name not in SUPPORTED | NEUTRAL and value != UNSUPPORTED.get(name)
    )


def _penalty(settings: Mapping[str, Any]) -> Penalty:
    value = settings.get("length_penalty", 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"generation config: length_penalty={str(value)[:60]} is not a number")
    try:
        return Penalty(float(value), "power")
    except (InputError, OverflowError) as error:
        raise ConfigError(f"generation config: length_penalty: {error}") from None


def _early_stopping(settings: Mapping[str, Any]) -> str:
    value = settings.get("early_stopping", False)
    if not isinstance(value, bool | str) or value not in EARLY_STOPPING:
        raise ConfigError(f"generation config: early_stopping={str(value)[:60]} is not true, false or never")
    return EARLY_STOPPING[value]


def _bad_words(settings: Mapping[str, Any], config: TranslationConfig) -> set[int]:
    """The ids of bad_words_ids; sequences of several ids are not supported."""
    words = settings.get("bad_words_ids", [])
    lists = isinstance(words, list) and all(isinstance(word, list) and len(word) == 1 for word in words)
    ids: list[Any] = [word[0] for word in words] if lists else [None]
    if not all(type(token) is int and 0 <= token < config.target_vocabulary for token in ids):
        raise ConfigError("generation config: bad_words_ids is not a list of lists with one id each")
    return set(ids)
