"""How long, how fast and how often a run trains: every setting with its default and its help text, and what follows.

The command line's options and the estimators' parameters are made of these fields (`settings_fields`), so this file
loads without torch.

The learning rate of a step, as a factor of its peak:

constant             1 after the warm-up
linear               falls to 0 in a straight line                      (BERT)
cosine               falls to 0 along half a cosine
inverse_sqrt         sqrt(warmup / step)                                (Transformer)
one_cycle            rises for 30 % of the run, falls along a cosine    (Smith 2018)
slanted_triangular   rises for 10 %, falls to 1/32                      (ULMFiT)
"""

from __future__ import annotations

import dataclasses
import math
import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field
from typing import Any

from kinfolk.errors import InputError, check_choice, check_int, check_number, did_you_mean

LARGEST_SEED = 2**62  # further runs take the seeds after it, and torch's generator takes 64 bits
PRECISIONS = ("fp32", "bf16")
OPTIMIZERS = ("adamw", "muon")
MINUTES = 0.05, 525_600
RISING_SHARES = {"one_cycle": 0.3, "slanted_triangular": 0.1}  # of the run
SCHEDULES = ("constant", "linear", "cosine", "inverse_sqrt", *RISING_SHARES)
ONE_CYCLE_START, SLANTED_RATIO = 25.0, 32.0


def setting(default: Any, help: str, choices: Sequence[str] | None = None) -> Any:
    return field(default=default, metadata={"help": help} | ({"choices": tuple(choices)} if choices else {}))


@dataclass(frozen=True)
class OptimizerSettings:
    learning_rate: float = setting(5e-5, "Peak learning rate.")
    layer_decay: float = setting(1.0, "Layer-wise learning-rate decay: each layer's rate over that of the one above.")
    weight_decay: float = setting(0.01, "AdamW's weight decay; not applied to biases and LayerNorm.")
    betas: tuple[float, float] = setting((0.9, 0.999), "AdamW's decay rates of its two moments.")
    epsilon: float = setting(1e-8, "AdamW's epsilon.")
    freeze: int = setting(0, "1 freezes the embeddings, n the first n - 1 layers as well.")
    optimizer: str = setting("adamw", "AdamW, or Muon for the matrices of layers and AdamW for the rest.", OPTIMIZERS)

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        for name in ("learning_rate", "epsilon"):
            check_number(name, getattr(self, name), 0, sys.float_info.max, "above 0")
        check_number("layer_decay", self.layer_decay, 0, 1, "above 0 and at most 1")
        check_number("weight_decay", self.weight_decay, 0, sys.float_info.max, "0 or more", inclusive=True)
        check_int("freeze", self.freeze, 0)
        if len(self.betas) != 2:
            raise InputError(f"betas={str(self.betas)[:60]} must be two numbers")
        for beta in self.betas:
            check_number("betas", beta, 0, math.nextafter(1, 0), "from 0 up to 1", inclusive=True)


@dataclass(frozen=True)
class TrainSettings:
    seed: int = setting(0, "Random seed: order of the data, dropout, newly initialized weights.")
    epochs: float = setting(3.0, "Passes over the training data.")
    minutes: float | None = setting(None, "Instead of epochs: wall-clock time until the model is saved.")
    steps: int | None = setting(None, "Instead of epochs: the number of steps.")
    batch_size: int = setting(32, "Examples per batch.")
    batch_tokens: int | None = setting(None, "Maximum number of tokens per batch, as well.")
    min_steps: int = setting(0, "Make batches smaller, down to an eighth, until the run has so many steps.")
    gradient_accumulation: int = setting(1, "Batches per step, whose gradients are accumulated.")
    schedule: str = setting("linear", "Learning-rate schedule.", SCHEDULES)
    warmup: float = setting(0.1, "Share of the run over which the learning rate rises.")
    max_grad_norm: float | None = setting(1.0, "Maximum gradient norm; 0: no clipping.")
    evaluations: int = setting(4, "Number of evaluations over the run; the last step is always evaluated.")
    evaluate_every: int | None = setting(None, "Instead: steps between evaluations.")
    patience: int | None = setting(None, "Early stopping: evaluations without improvement before the run ends.")
    weight_averaging: float = setting(0.0, "Share of the run, at its end, over which weights are averaged.")
    gradual_unfreezing: float = setting(0.0, "Share of the run over which layers unfreeze, from the top down.")
    precision: str = setting("fp32", "Mixed precision: bf16 matrix products while training.", PRECISIONS)
    fsdp: bool = setting(False, "Under torchrun: shard weights, gradients and optimizer state (FSDP).")
    optimization: OptimizerSettings = field(default_factory=OptimizerSettings)

    def __post_init__(self) -> None:
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("precision", self.precision, PRECISIONS)
        if check_int("seed", self.seed, 0) > LARGEST_SEED:
            raise InputError(f"seed={self.seed} must be at most {LARGEST_SEED:,}")
        whole = ("batch_size", "gradient_accumulation", "evaluations", "steps", "patience", "batch_tokens")
        for name in (*whole, "evaluate_every"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name))
        if self.minutes is not None:
            check_number("minutes", self.minutes, *MINUTES, "from 0.05 (three seconds) to 525,600 (a year)", True)
        for name in ("epochs", "max_grad_norm"):
            if getattr(self, name) is not None:
                zero = name == "max_grad_norm"
                check_number(name, getattr(self, name), 0, 1e6, "above 0 and at most a million", inclusive=zero)
        for name in ("warmup", "weight_averaging", "gradual_unfreezing"):
            check_number(name, getattr(self, name), 0, 1, "a share of the run, from 0 to 1", inclusive=True)
        check_int("min_steps", self.min_steps, 0)
        if self.steps is not None and self.minutes is not None:
            raise InputError("give steps or minutes, not both")
        if self.fsdp and self.optimization.optimizer == "muon":
            raise InputError("fsdp cannot be combined with optimizer=muon, which wants whole matrices; choose adamw")
        if self.fsdp and self.gradual_unfreezing:
            raise InputError("fsdp cannot be combined with gradual_unfreezing: shards are fixed when they are made")

    def but(self, **named: Any) -> TrainSettings:
        """The same with other settings of the run or its optimizer; an unknown name is an error with the nearest one.

        >>> TrainSettings().but(epochs=5, learning_rate=1e-4).optimization.learning_rate
        0.0001
        """
        of_run, of_optimizer = (set(kind.__dataclass_fields__) for kind in (TrainSettings, OptimizerSettings))
        for name in named:
            if name not in of_run | of_optimizer:
                raise InputError(f'training has no setting "{name}"{did_you_mean(name, sorted(of_run | of_optimizer))}')
        changes = {name: named[name] for name in named if name in of_run}
        optimizer = {name: named[name] for name in named if name in of_optimizer}
        changes["optimization"] = dataclasses.replace(changes.get("optimization", self.optimization), **optimizer)
        return dataclasses.replace(self, **changes)

    @classmethod
    def usual(cls, usual: Mapping[str, Any], named: Mapping[str, Any]) -> TrainSettings:
        """The usual settings of a kind of training, and those that are named; a whole `optimization` leaves none of the
        usual ones of its own."""
        of_optimizer = OptimizerSettings.__dataclass_fields__ if "optimization" in named else ()
        return cls().but(**{name: value for name, value in usual.items() if name not in of_optimizer} | dict(named))

    def changed(self) -> list[str]:
        """Names of what differs from the defaults, the optimizer's included.

        >>> TrainSettings(epochs=5).but(learning_rate=1e-4).changed()
        ['epochs', 'learning_rate']
        """
        values = dataclasses.asdict(self) | dataclasses.asdict(self.optimization)
        return [item.name for item in settings_fields() if values[item.name] != item.default]

    def described(self) -> dict[str, Any]:
        """All that the weights depend on. FSDP is not part of it: a run may be resumed with or without."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "fsdp"}


def settings_fields() -> list[Field[Any]]:
    """The settings of a run and of its optimizer: name, type, default, and `metadata` with help and choices."""
    both = (*dataclasses.fields(TrainSettings), *dataclasses.fields(OptimizerSettings))
    return [item for item in both if item.name != "optimization"]


def refuse_two_lengths(named: Mapping[str, Any]) -> None:
    """Epochs, minutes and steps each say how long a run is: only one of them can be obeyed."""
    lengths = [name for name in ("epochs", "minutes", "steps") if named.get(name) is not None]
    if len(lengths) > 1:
        raise InputError(f"{' and '.join(lengths)} each say how long to train; give one of them")
    if named.get("min_steps") and named.get("steps"):
        raise InputError("min_steps has no meaning beside steps: leave one of them out")


@dataclass(frozen=True)
class Horizon:
    """The plans of a run: from `step` on, it ends after `total` steps and evaluates `evaluations` times in all.

    Progress p(k) runs from 0 before the first step to 1 after the last. A new plan made at step s bends it, p stays
    continuous:

        p(k) = p(s) + (1 - p(s)) (k - s) / (total - s)

    Schedules follow p(k) * total, which is k as long as there is one plan.
    """

    plans: tuple[tuple[int, int, int], ...]  # (step, total, evaluations)

    @property
    def total(self) -> int:
        return self.plans[-1][1]

    @property
    def evaluations(self) -> int:
        return self.plans[-1][2]

    def known(self, step: int) -> Horizon:
        """The plans that step number `step` follows: those made before it."""
        return Horizon(tuple(plan for plan in self.plans if plan[0] <= step))

    def progress(self, step: int) -> float:
        progress = 0.0
        for (start, total, _), end in zip(self.plans, (*(plan[0] for plan in self.plans[1:]), math.inf), strict=True):
            progress += (1 - progress) * (min(step, end) - start) / (total - start)
            if step <= end:
                break
        return progress

    def position(self, step: int) -> float:
        """The step of a run of `total` steps that was planned at once."""
        return step if len(self.plans) == 1 else self.progress(step) * self.total

    def first_step(self, progress: float) -> int:
        """The first step, before the last one's end, with at least this progress before it."""
        return min(bisect_left(range(self.total), progress, key=self.progress), self.total - 1)

    def is_evaluated(self, step: int) -> bool:
        """After this step?"""
        if step >= self.total:
            return True
        evaluations = next(count for start, _, count in reversed(self.plans) if start < step)
        return self.parts(step, evaluations) > self.parts(step - 1, evaluations)

    def parts(self, step: int, count: int) -> int:
        """How many of `count` equal parts are done before a step; a share that lacks a rounding error counts."""
        return int(self.progress(step) * count + 1e-9)

    def planned_anew(self, step: int, total: int, evaluations: int) -> Horizon:
        return Horizon((*self.plans, (step, total, evaluations)))


def rate_factor(schedule: str, step: float, total: int, warmup: int) -> float:
    """The factor for one step, from 0 to total - 1; between two where a run was planned anew (budget.py).

    >>> [round(rate_factor("linear", step, total=6, warmup=2), 2) for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if schedule in RISING_SHARES:
        warmup = max(1, round(RISING_SHARES[schedule] * total))
    rising, after, rest = step < warmup, step - warmup, max(total - warmup, 1)
    risen = min(step + 1, warmup)  # a step between two is not above the peak
    if schedule == "one_cycle":
        if rising:
            return 1 / ONE_CYCLE_START + (1 - 1 / ONE_CYCLE_START) * 0.5 * (1.0 - _cosine(risen, warmup))
        return 0.5 * (1.0 + _cosine(min(after + 1, rest), rest))
    if schedule == "slanted_triangular":
        height = risen / warmup if rising else max(0.0, 1 - (after + 1) / rest)
        return (1 + height * (SLANTED_RATIO - 1)) / SLANTED_RATIO
    if rising:
        return risen / warmup
    if schedule == "inverse_sqrt":
        return math.sqrt(max(warmup, 1) / (max(warmup, 1) + after))
    return {"constant": 1.0, "linear": 1.0 - after / rest, "cosine": 0.5 * (1.0 + _cosine(after, rest))}[schedule]


def _cosine(step: float, steps: int) -> float:
    return math.cos(math.pi * step / steps)
