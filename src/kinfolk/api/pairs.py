"""Pairs as a model learns from them, and what there is to know about them before it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from kinfolk.data.examples import fingerprint
from kinfolk.data.pairs import Pair
from kinfolk.errors import DataError, shorten_list
from kinfolk.objectives.translation import PairSample, pair_sample
from kinfolk.text.pairs import PairTokenizer

SHOWN = 3
MUCH = 0.05  # of a side's tokens: more unknown ones are warned of


@dataclass(frozen=True)
class PairSamples:
    """Pairs that fit the model, ready to be packed, and those that do not: their places are known to `where`."""

    items: list[PairSample]
    pairs: list[Pair]
    long: list[str]  # where they stand: a side has more tokens than the model promises to know
    silent: list[str]  # where they stand: the vocabulary finds nothing to read in them

    @property
    def longest(self) -> list[int]:
        """Tokens of the longest source and of the longest target."""
        sides = ((item.ids, item.target) for item in self.items)
        return [max(lengths) for lengths in zip(*((len(ids), len(target)) for ids, target in sides), strict=True)]


def pair_samples(pairs: Sequence[Pair], tokenizer: PairTokenizer, context: int) -> PairSamples:
    """Pairs with more than `context` tokens on a side are left out, not cut: half a target teaches the wrong end."""
    found = PairSamples([], [], [], [])
    for pair in pairs:
        source, target = tokenizer.encode_source(pair.source), tokenizer.encode_target(pair.target)
        if not source:
            found.silent.append(pair.location)
        elif max(len(source), len(target)) > context:
            found.long.append(pair.location)
        else:
            found.items.append(pair_sample(source, target, len(found.pairs)))
            found.pairs.append(pair)
    return found


@dataclass(frozen=True)
class PairSurvey:
    """What there is to know before training; `str` is what is printed."""

    pairs: int
    dev_pairs: int
    model: str
    parameters: int
    started: int  # of these, that begin as a language model's
    vocabulary: str
    source_tokens: tuple[int, int]  # median and longest
    target_tokens: tuple[int, int]
    unknown: tuple[float, float]  # shares of source and target tokens that the vocabulary cannot spell
    shared: int  # dev pairs whose source stands in the training pairs too
    notes: tuple[str, ...]  # on pairs that were left out

    def __str__(self) -> str:
        (source, longest_source), (target, longest_target) = self.source_tokens, self.target_tokens
        new = f"{self.started:,} of them from a language model" if self.started else "trained from scratch"
        lines = [
            f"pairs       {self.pairs:,} to train on, {self.dev_pairs:,} for dev",
            f"vocabulary  {self.vocabulary}; unknown are {self.unknown[0]:.2%} of the source tokens, "
            f"{self.unknown[1]:.2%} of the target's",
            f"tokens      source median {source:,}, longest {longest_source:,}; "
            f"target median {target:,}, longest {longest_target:,}",
            f"model       {self.model}, {self.parameters:,} parameters, {new}",
        ]
        for side, share in zip(("source", "target"), self.unknown, strict=True):
            if share > MUCH:
                lines.append(
                    f"warning     the model cannot read {share:.0%} of the {side}: its vocabulary does not fit"
                )
        if self.shared:
            lines.append(f"warning     {self.shared:,} dev pairs have a source that is trained on too")
        return "\n".join(lines + [f"note        {note}" for note in self.notes])


def survey_pairs(
    learned: PairSamples, held: PairSamples, tokenizer: PairTokenizer, model: str, weights: tuple[int, int]
) -> PairSurvey:
    """Look through the pairs that will be used; `weights` are all of the model, and those from a language model."""
    if not learned.items:
        raise DataError("no pair is left to train on: " + "; ".join(_left_out(learned, "")))
    sources = [len(item.ids) for item in learned.items]
    targets = [len(item.target) for item in learned.items]
    unread = sum(number == tokenizer.source_unknown_id for item in learned.items for number in item.ids)
    unknown = sum(number == tokenizer.unknown_id for item in learned.items for number in item.target)
    known = {fingerprint((pair.source,)) for pair in learned.pairs}
    other = "" if tokenizer.joint else f" and {tokenizer.target_size:,}"
    return PairSurvey(
        pairs=len(learned.items),
        dev_pairs=len(held.items),
        model=model,
        parameters=weights[0],
        started=weights[1],
        vocabulary=f"{tokenizer.source.kind}, {tokenizer.source_size:,} pieces{other}",
        source_tokens=(int(median(sources)), max(sources)),
        target_tokens=(int(median(targets)), max(targets)),
        unknown=(unread / sum(sources), unknown / sum(targets)),
        shared=sum(fingerprint((pair.source,)) in known for pair in held.pairs),
        notes=(*_left_out(learned, ""), *_left_out(held, "dev ")),
    )


def _left_out(found: PairSamples, which: str) -> list[str]:
    reasons = {"longer than the model's limit": found.long, "without anything to read for the vocabulary": found.silent}
    return [
        f"{len(places):,} {which}pairs were left out, {reason}: {shorten_list(places, SHOWN)}"
        for reason, places in reasons.items()
        if places
    ]
