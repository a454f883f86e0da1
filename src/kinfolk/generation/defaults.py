"""The default way to decode with a translator, as its folder or its family says.

transformers divides a text's score by its length to the power of length_penalty. Our own families take Vaswani et al.'s
beam of 4 with GNMT's length penalty of 0.6, and search until nothing better can come; their config.json may give
another number of beams, and a limit. Settings of transformers that would change a text and are not supported are kept
by name, for a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kinfolk.errors import ConfigError, InputError, check_int
from kinfolk.generation.config import DecodingConstraints, Penalty
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


def _whole(low: int, high: int) -> tuple[Callable[[Any], bool], str]:
    return lambda value: type(value) is int and low <= value <= high, f"an integer from {low} to {high:,}"


def _are_bad_words(words: Any) -> bool:
    """Sequences of several ids are not supported."""
    return isinstance(words, list) and all(isinstance(ids, list) and [int] == list(map(type, ids)) for ids in words)


# Of both kinds of folders and, below, of transformers' alone.
OWN = ("num_beams", "max_length")
DEFAULTS: dict[str, Any] = {
    "num_beams": 4, "early_stopping": False, "renormalize_logits": False, "length_penalty": 1.0, "bad_words_ids": [],
}  # fmt: skip
CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "num_beams": _whole(1, MAX_BEAMS),
    "max_length": _whole(2, MAX_TOKENS),
    "early_stopping": (lambda value: value == "never" or isinstance(value, bool), "true, false or never"),
    "renormalize_logits": (lambda value: isinstance(value, bool), "true or false"),
    "length_penalty": (lambda value: type(value) in (int, float), "a number"),
    "bad_words_ids": (_are_bad_words, "a list of lists with one id each"),
}


def check_at_most(maximum: int, **options: int | None) -> None:
    """Refuse an option that is no whole number from 1 to `maximum`."""
    for name, value in options.items():
        if value is not None and check_int(name, value) > maximum:
            raise InputError(f"{name}={value} must be from 1 to {maximum:,}")


@dataclass(frozen=True)
class GenerationConfig:
    """The default way to decode with a model. `max_tokens` counts the tokens of a text, its end included."""

    beams: int
    constraints: DecodingConstraints
    penalty: Penalty = field(default_factory=Penalty)
    early_stopping: str = "never"
    max_tokens: int | None = None  # None: it depends on the source
    unsupported: tuple[str, ...] = ()  # settings of the folder

    @classmethod
    def of(
        cls, family: Family, config: TranslationConfig, hf_config: Mapping[str, Any], generation: Mapping[str, Any]
    ) -> GenerationConfig:
        """From the two files; the defaults are those of transformers, but for four beams and all positions."""
        named = {name: value for name, value in {**hf_config, **generation}.items() if value is not None}
        settings = DEFAULTS | {"max_length": min(config.positions, MAX_TOKENS)} | named
        own = family.generation_config is None
        for name, (fits, what) in CHECKS.items():
            if not (own and name not in OWN) and not fits(settings[name]):
                raise ConfigError(f"generation config: {name}={str(settings[name])[:60]} is not {what}")
        beams, max_tokens = settings["num_beams"], settings["max_length"] - 1  # theirs counts the start token too
        forbidden = {config.pad_id, config.start_id} - {config.end_id}
        if own:
            constraints = DecodingConstraints(config.end_id, tuple(sorted(forbidden)))
            return cls(beams, constraints, max_tokens=max_tokens if "max_length" in named else None)
        forbidden |= {word[0] for word in settings["bad_words_ids"]}
        if not all(0 <= token < config.target_vocabulary for token in forbidden):
            raise ConfigError("generation config: bad_words_ids has ids that are not in the vocabulary")
        try:
            penalty = Penalty(float(settings["length_penalty"]), "power")
        except (InputError, OverflowError) as error:
            raise ConfigError(f"generation config: {error}") from None
        forced, renormalized = "forced_eos_token_id" in settings, settings["renormalize_logits"]
        constraints = DecodingConstraints(config.end_id, tuple(sorted(forbidden)), forced, renormalized)
        # config.json says much else; of it only what is known to concern generation counts.
        said = {name: value for name, value in hf_config.items() if name in IN_CONFIG} | dict(generation)
        unsupported = tuple(
            f"{name}={str(value)[:20]}"
            for name, value in sorted(said.items())
            if value is not None and name not in SUPPORTED | NEUTRAL and value != UNSUPPORTED.get(name)
        )
        stopping = EARLY_STOPPING[settings["early_stopping"]]
        return cls(beams, constraints, penalty, stopping, max_tokens, unsupported)
