"""How a model wants to be asked for texts: what its folder says, or what its family is used to.

Folders of transformers say it in generation_config.json (older ones in config.json). There a text's score is divided by
its length to the power of length_penalty, and the search stops as early_stopping says. Our own families take Vaswani et
al.'s beam of 4 with GNMT's length penalty of 0.6, and search until nothing better can come (generation/search.py);
their config.json may say another number of beams, and a limit. Settings of transformers that would change a text
and are not followed here are kept by name, to be told.
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
MOST_BEAMS, MOST_LENGTH = 1_000, 16_384  # beyond, a search would fill the memory
FOLLOWED = {
    "num_beams", "max_length", "length_penalty", "early_stopping", "forced_eos_token_id", "bad_words_ids",
    "renormalize_logits",
}  # fmt: skip
# What transformers does with these makes no difference to a text, or only to one that is drawn (do_sample).
IDLE = {
    "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "transformers_version", "use_cache",
    "_from_model_config", "temperature", "top_k", "top_p", "typical_p", "min_p", "epsilon_cutoff", "eta_cutoff",
    "cache_implementation", "output_attentions", "output_hidden_states", "output_scores", "output_logits",
    "return_dict_in_generate", "num_return_sequences", "max_time", "_commit_hash",
}  # fmt: skip
# Those that do make one, with the value at which they do not.
UNHEEDED: dict[str, Any] = {
    "do_sample": False, "min_length": 0, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0, "diversity_penalty": 0.0,
    "num_beam_groups": 1, "remove_invalid_values": False, "guidance_scale": 1.0, "penalty_alpha": 0.0,
    "token_healing": False, "top_h": 1.0,
}  # fmt: skip
NAMED_OLD = {*UNHEEDED, "max_new_tokens", "min_new_tokens", "suppress_tokens", "begin_suppress_tokens",
             "forced_bos_token_id", "force_words_ids", "sequence_bias"}  # fmt: skip


@dataclass(frozen=True)
class GenerationConfig:
    """The usual way to write with a model. `longest` counts the tokens of a text, its end included."""

    beams: int = 4
    penalty: Penalty = field(default_factory=Penalty)
    early_stopping: str = "never"
    longest: int | None = None  # None: it depends on the source
    forced_end: bool = False
    renormalised: bool = False
    never: tuple[int, ...] = ()
    unheeded: tuple[str, ...] = ()  # settings of the folder that are not followed

    @classmethod
    def of(
        cls, family: Family, config: TranslationConfig, public: Mapping[str, Any], generation: Mapping[str, Any]
    ) -> GenerationConfig:
        """From the two files; what they do not say is as transformers has it, but for four beams and all positions."""
        never = {config.pad_id, config.start_id} - {config.end_id}
        said = {name: value for name, value in {**public, **generation}.items() if value is not None}
        beams = _number(said, "num_beams", 4, 1, MOST_BEAMS)
        usual: int = min(config.positions, MOST_LENGTH)
        longest = _number(said, "max_length", usual, 2, MOST_LENGTH) - 1  # theirs counts the start token too
        if family.generation_config is None:
            return cls(beams, longest=longest if "max_length" in said else None, never=tuple(sorted(never)))
        return cls(
            beams,
            penalty=_penalty(said),
            early_stopping=_early_stopping(said),
            longest=longest,
            forced_end="forced_eos_token_id" in said,
            renormalised=_truth(said, "renormalize_logits"),
            never=tuple(sorted(never | _forbidden(said, config))),
            unheeded=_unheeded(public, generation),
        )


def _number(said: Mapping[str, Any], name: str, usual: int, least: int, most: int) -> int:
    value = said.get(name, usual)
    if type(value) is not int or not least <= value <= most:
        raise ConfigError(
            f"{name}={str(value)[:60]} of the generation settings is not a number from {least} to {most:,}"
        )
    return value


def _truth(said: Mapping[str, Any], name: str) -> bool:
    value = said.get(name, False)
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={str(value)[:60]} of the generation settings is not true or false")
    return value


def _unheeded(public: Mapping[str, Any], generation: Mapping[str, Any]) -> tuple[str, ...]:
    """As name=value. config.json says much else; of it only what is known to be about texts counts."""
    said = {name: value for name, value in public.items() if name in NAMED_OLD} | dict(generation)
    return tuple(
        f"{name}={str(value)[:20]}"
        for name, value in sorted(said.items())
        if value is not None and name not in FOLLOWED | IDLE and value != UNHEEDED.get(name)
    )


def _penalty(said: Mapping[str, Any]) -> Penalty:
    value = said.get("length_penalty", 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"length_penalty={str(value)[:60]} of the generation settings is not a number")
    try:
        return Penalty(float(value), "power")
    except (InputError, OverflowError) as error:
        raise ConfigError(f"length_penalty of the generation settings: {error}") from None


def _early_stopping(said: Mapping[str, Any]) -> str:
    value = said.get("early_stopping", False)
    if not isinstance(value, bool | str) or value not in EARLY_STOPPING:
        raise ConfigError(f"early_stopping={str(value)[:60]} of the generation settings is not true, false or never")
    return EARLY_STOPPING[value]


def _forbidden(said: Mapping[str, Any], config: TranslationConfig) -> set[int]:
    """The ids of bad_words_ids; sequences of several ids are not supported."""
    words = said.get("bad_words_ids", [])
    lists = isinstance(words, list) and all(isinstance(word, list) and len(word) == 1 for word in words)
    ids = [word[0] for word in words] if lists else [None]
    if not all(type(number) is int and 0 <= number < config.target_vocabulary for number in ids):
        raise ConfigError("bad_words_ids of the generation settings is not a list of lists with one id each")
    return {number for number in ids if number is not None}
