"""How long, how fast and how often a run trains, and what of that has no meaning."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kinfolk.errors import InputError, check_choice, kind_of, nearest, number_between, whole_number
from kinfolk.nn.fast.precision import PRECISIONS
from kinfolk.training.optimizer import OptimizerSettings
from kinfolk.training.schedule import SCHEDULES

LARGEST_SEED = 2**62  # those of further runs come after it, and torch's generator takes 64 bits


@dataclass(frozen=True)
class TrainSettings:
    """How long, how fast, how often."""

    seed: int = 0
    epochs: float = 3.0
    minutes: float | None = None  # instead of epochs: as many steps as fit, evaluations and checkpoints included
    steps: int | None = None  # instead of both
    batch_size: int = 32
    batch_tokens: int | None = None
    gradient_accumulation: int = 1  # batches per step
    schedule: str = "linear"
    warmup: float = 0.1  # share of the run
    max_grad_norm: float | None = 1.0  # the longest gradient; None or 0: any
    evaluations: int = 4  # over the whole run; the last step is always evaluated
    evaluate_every: int | None = None  # steps, instead
    patience: int | None = None  # evaluations without a better one before stopping
    weight_averaging: float = 0.0  # share of the run, at its end, over which weights are averaged
    gradual_unfreezing: float = 0.0  # share of the run over which layers thaw from the top, one by one
    precision: str = "fp32"  # or bf16: of matrix products while learning
    fsdp: bool = False  # divide weights, gradients and the optimizer's memory among several processes
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)

    def __post_init__(self) -> None:
        if not isinstance(self.optimizer, OptimizerSettings):
            raise InputError(f"optimizer is {kind_of(self.optimizer)}; expected OptimizerSettings")
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("precision", self.precision, PRECISIONS)
        if whole_number("seed", self.seed, 0) > LARGEST_SEED:
            raise InputError(f"seed={self.seed} must be at most {LARGEST_SEED:,}")
        for name in (
            "batch_size",
            "gradient_accumulation",
            "evaluations",
            "steps",
            "patience",
            "batch_tokens",
            "evaluate_every",
        ):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name))
        for name in ("epochs", "minutes", "max_grad_norm"):
            if not (name == "max_grad_norm" and self.max_grad_norm == 0) and getattr(self, name) is not None:
                number_between(name, getattr(self, name), 0, 1e6, "above 0, and not above a million")
        for name in ("warmup", "weight_averaging", "gradual_unfreezing"):
            number_between(name, getattr(self, name), 0, 1, "a share of the run, from 0 to 1", with_low=True)
        if self.steps is not None and self.minutes is not None:
            raise InputError("give steps or minutes, not both")
        if self.fsdp and self.gradual_unfreezing:
            raise InputError(
                "shard cannot be combined with gradual_unfreezing: what learns is fixed when a model is divided"
            )

    def but(self, **named: Any) -> TrainSettings:
        """The same with other settings of the run or its optimizer; an unknown name is an error with the nearest one.

        >>> TrainSettings().but(epochs=5, learning_rate=1e-4).optimizer.learning_rate
        0.0001
        """
        own = {item.name for item in dataclasses.fields(self)}
        theirs = {item.name for item in dataclasses.fields(OptimizerSettings)}
        for name in named:
            if name not in own | theirs:
                raise InputError(f'training has no setting "{name}"{nearest(name, sorted(own | theirs))}')
        found = {name: value for name, value in named.items() if name in own}
        optimizer = {name: value for name, value in named.items() if name in theirs}
        if optimizer:
            found["optimizer"] = dataclasses.replace(found.get("optimizer", self.optimizer), **optimizer)
        return dataclasses.replace(self, **found)

    def changed(self) -> list[str]:
        """Names of what differs from the defaults, the optimizer's included.

        >>> TrainSettings(epochs=5).but(learning_rate=1e-4).changed()
        ['epochs', 'learning_rate']
        """
        pairs = ((self, TrainSettings()), (self.optimizer, OptimizerSettings()))
        return [
            item.name
            for own, usual in pairs
            for item in dataclasses.fields(own)
            if item.name != "optimizer" and getattr(own, item.name) != getattr(usual, item.name)
        ]

    def described(self) -> dict[str, Any]:
        """All that the weights depend on. How the work is divided is not part of it, so a run may go on divided."""
        found = dataclasses.asdict(self)
        del found["fsdp"]
        # Settings that came later are told only where they are used: older runs can go on.
        unused = {"steps": None, "precision": "fp32", "evaluate_every": None}
        later = [name for name, value in unused.items() if found[name] == value]
        return {name: value for name, value in found.items() if name not in later}


def refuse_two_lengths(named: Mapping[str, Any]) -> None:
    """Epochs, minutes and steps each say how long a run is: only one of them can be obeyed."""
    lengths = [name for name in ("epochs", "minutes", "steps") if named.get(name) is not None]
    if len(lengths) > 1:
        raise InputError(f"{' and '.join(lengths)} each say how long to train; give one of them")
