"""What every relative is made of: a config, a body, heads, a family record.

A family is a plain record of what its file states; the registry lists the families; checkpoints apply their name
tables in both directions. Bodies and heads only compute: the verbs live in jobs/.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from kinfolk.errors import ConfigError, MissingHeadError, did_you_mean
from kinfolk.nn.fast.linear import Embedding
from kinfolk.nn.packed import Tokens
from kinfolk.nn.trace import Trace

MOST_LAYERS = 1_000
MOST_SETTINGS = 1_000
TABLE_HEADS = ("masked_lm", "next_token")  # which may score with the table that the body reads with
DROPOUTS = ("dropout", "attention_dropout")
LARGEST_SIZE = 2**24  # no width, vocabulary or table of positions comes near it

# Public names of activations, and ours. `gelu_new` and its relatives are one formula.
PUBLIC_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


@dataclass(frozen=True)
class Config:
    """Settings of a model under our own names. Subclasses add fields and the table of public names."""

    hf_names: ClassVar[dict[str, str]] = {}  # our field: the public one
    hf_required: ClassVar[dict[str, Any]] = {}  # public settings that change the model, and the one value we build
    hf_defaults: ClassVar[
        dict[str, Any]
    ] = {}  # what a public file means by leaving a setting out, where that is not ours

    @classmethod
    def make(cls, **settings: Any) -> Self:
        """A config from named settings; an unknown name is an error that suggests the nearest known one.

        >>> from kinfolk.models.bert import BertConfig
        >>> BertConfig.make(widht=8)
        Traceback (most recent call last):
        kinfolk.errors.ConfigError: BertConfig has no setting "widht"; did you mean "width"?
        """
        known = [item.name for item in dataclasses.fields(cls)]
        for name in settings:
            if name not in known:
                raise ConfigError(f'{cls.__name__} has no setting "{name}"{did_you_mean(name, known)}')
        return cls(**settings)

    @classmethod
    def from_hf(cls, public: Mapping[str, Any], where: str) -> Self:
        """Read a public config.json. Names we do not know are left alone unless they look like a misspelling."""
        for name, value in cls.hf_required.items():
            if name in public and public[name] not in (value, None):
                found = str(public[name])[:60]
                raise ConfigError(f"{where}: {name}={found!r} is not supported here (only {value!r} is)")
        ours = {theirs: name for name, theirs in cls.hf_names.items()}
        _refuse_misspelt(public, list(ours), where)
        given = {ours[name]: value for name, value in public.items() if name in ours and value is not None}
        settings = cls.hf_defaults | given
        activation = settings.get("activation")
        if activation is not None:
            if not isinstance(activation, str) or activation not in PUBLIC_ACTIVATIONS:
                raise ConfigError(f"{where}: unknown activation {str(activation)[:80]!r}")
            settings["activation"] = PUBLIC_ACTIVATIONS[activation]
        kinds = {item.name: item.type for item in dataclasses.fields(cls)}
        try:
            for name, value in given.items():
                _check_kind(cls.hf_names[name], kinds[name], value)  # as the file calls it
            return cls(**settings)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None

    def to_hf(self) -> dict[str, Any]:
        """The settings under their public names, as config.json wants them."""
        settings = {theirs: getattr(self, name) for name, theirs in self.hf_names.items()}
        activations = {ours: theirs for theirs, ours in reversed(PUBLIC_ACTIVATIONS.items())}
        if "activation" in self.hf_names:
            theirs = self.hf_names["activation"]
            settings[theirs] = activations[settings[theirs]]
        return settings | dict(self.hf_required)

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            _check_kind(item.name, item.type, getattr(self, item.name))


def _check_kind(name: str, kind: Any, value: Any) -> None:
    if kind == "int":
        if type(value) is not int or not 0 <= value <= LARGEST_SIZE:
            raise ConfigError(f"{name}={str(value)[:60]} is not a whole number between 0 and {LARGEST_SIZE:,}")
    elif kind == "float":
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise ConfigError(f"{name}={str(value)[:60]} is not a number from 0 up to 1")
    elif kind == "str" and not isinstance(value, str):
        raise ConfigError(f"{name}={str(value)[:60]} is not a string")


def _refuse_misspelt(public: Mapping[str, Any], known: list[str], where: str) -> None:
    import difflib

    if len(public) > MOST_SETTINGS:
        raise ConfigError(f"{where}: {len(public):,} settings are more than a config has")
    for name in public:
        if name in known:
            continue
        close = difflib.get_close_matches(name, [other for other in known if other not in public], 1, cutoff=0.9)
        if close:
            raise ConfigError(f'{where}: unknown setting "{name[:60]}"; did you mean "{close[0]}"?')


@dataclass(frozen=True)
class EncoderConfig(Config):
    """Settings that everything has which reads a text and gives a vector for each token."""

    vocabulary_size: int
    width: int
    layers: int
    positions: int
    segments: int
    dropout: float
    init_std: float
    pad_id: int

    @property
    def first_position(self) -> int:
        """The row of the position table that the first token of a text takes."""
        return 0

    @property
    def context(self) -> int:
        """How many tokens a text may have, specials included."""
        return self.positions - self.first_position

    @property
    def table_width(self) -> int:
        """Width of the token embedding."""
        return self.width

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("vocabulary_size", "width", "positions"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1")
        if self.layers > MOST_LAYERS:
            raise ConfigError(f"layers={self.layers:,} is more than the {MOST_LAYERS:,} that a model may have")
        if self.context < 1:
            raise ConfigError(
                f"{self.positions} positions leave no room for a text that starts at {self.first_position}"
            )


@dataclass(frozen=True)
class Joined:
    """One of our tensors is several of theirs, stacked along the first dimension: a fused q, k, v."""

    parts: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One of our tensors, (n,), is theirs with a dimension more, (1, n)."""

    name: str


Keys = Mapping[str, str | Joined | Row]


@dataclass(frozen=True)
class Head:
    """A head of a family: how it is built, its architecture's public name, and its tensors' public names.

    `duplicates` are public tensors that repeat another one of ours (tied tables, a bias stored twice).
    """

    build: Callable[[Any, int], nn.Module]
    architecture: str
    keys: Keys
    duplicates: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Preset:
    """A published model: its settings, and the number of parameters that its authors report."""

    config: EncoderConfig
    published: str


@dataclass(frozen=True)
class Family:
    """What a model file states about its relative."""

    name: str  # the public model_type
    title: str
    parent: str | None
    idea: str
    paper: str
    config: type[EncoderConfig]
    body: type[nn.Module]
    prefix: str  # of the body's tensors in a checkpoint that also has heads
    base_architecture: str
    presets: Mapping[str, Preset]
    keys: Keys
    heads: Mapping[str, Head]
    ignored: tuple[str, ...] = ("embeddings.position_ids", "embeddings.token_type_ids")
    pair_architecture: str | None = None  # masked LM and a sentence-pair head together
    counted: tuple[str, ...] = ()  # heads that published sizes count

    @property
    def has_pooler(self) -> bool:
        """Do its public checkpoints know a pooler?"""
        return any(name.startswith("pooler") for name in self.keys)


class Model(nn.Module):
    """A body and the heads that came with it."""

    def __init__(self, family: Family, config: EncoderConfig, heads: Mapping[str, int], pooler: bool, own_table: bool):
        """`heads` maps the names of wanted heads to their number of labels (0 where that has no meaning)."""
        super().__init__()
        self.family = family
        self.config = config
        self.body = family.body(config, pooler)
        built = {name: family.heads[name].build(config, labels) for name, labels in heads.items()}
        if own_table and "masked_lm" in built:
            built["masked_lm"].table = nn.Parameter(torch.empty(config.vocabulary_size, config.table_width))
        self.heads = nn.ModuleDict(built)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def forward(self, tokens: Tokens, trace: Trace | None = None, depth: int | None = None) -> Tensor:
        """Vectors of the last layer, or of layer `depth`: (tokens, width)."""
        return self.body(tokens, trace, depth)  # type: ignore[no-any-return]

    def layer_ids(self) -> dict[str, int]:
        """How far above the input each parameter stands: 0 for embeddings, i for layer i, more for pooler and heads."""
        return {name: self._depth(name) for name, _ in self.named_parameters()}

    def _depth(self, name: str) -> int:
        if not name.startswith("body.") or name.startswith("body.pooler."):
            return self.config.layers + 1
        return self.body.depth_of(name)  # type: ignore[operator, no-any-return]

    def reading_table(self) -> str | None:
        """The module that is the table of tokens, unless a head scores with that table too."""
        if any(head in TABLE_HEADS for head in self.heads):
            return None
        tables = ((name, module.weight) for name, module in self.named_modules() if isinstance(module, Embedding))
        return next((name for name, weight in tables if weight is self.body.token_table), None)

    def with_heads(self, heads: Mapping[str, nn.Module]) -> Model:
        """The same body, shared and not copied, under other heads."""
        with torch.device("meta"):
            other = Model(self.family, self.config, {}, pooler=False, own_table=False)
        other.body, other.heads = self.body, nn.ModuleDict(heads)
        return other.train(self.training)

    def hidden_for(self, name: str, tokens: Tokens) -> Tensor:
        """What the head `name` reads: vectors of the last layer (tokens, width), or of several, frozen."""
        head: Any = self.heads[name]
        return self.frozen_layers(tokens, head.layers) if head.reads == "layers" else self(tokens)

    def frozen_layers(self, tokens: Tokens, numbers: Sequence[int]) -> Tensor:
        """Vectors of layers by number, 0 for the embeddings: (layers, tokens, width). No gradient flows into them."""
        trace = Trace(attention=False)
        self(tokens, trace, max(numbers))
        return torch.stack([trace.packed[number] for number in numbers])

    def judge(self, name: str, tokens: Tokens) -> Tensor:
        """What the head `name` says of a batch; of the last layer no more is computed than the head reads."""
        reads = self.heads[name].reads
        if reads in ("first", "pooled"):
            return self._judge_first(name, self.body.first(tokens))  # type: ignore[operator]
        return self.scores(name, tokens, self.hidden_for(name, tokens))

    def _judge_first(self, name: str, first: Tensor) -> Tensor:
        head = self.heads[name]
        return head(self.body.pooler(first) if head.reads == "pooled" else first)  # type: ignore[operator, no-any-return]

    def scores(self, name: str, tokens: Tokens, hidden: Tensor, at: Tensor | None = None) -> Tensor:
        """What the head `name` says of the vectors; with `at`, only of those rows (the masked-LM head is wide)."""
        head = self.heads[name]
        if head.reads == "layers":
            return head(hidden, tokens.layout)  # type: ignore[no-any-return]
        if head.reads in ("first", "pooled"):
            return self._judge_first(name, tokens.layout.first(hidden))
        if head.reads == "last":
            return head(self.body.last(hidden, tokens.layout))  # type: ignore[operator, no-any-return]
        wanted = hidden if at is None else hidden[at]
        if name in TABLE_HEADS:
            return head(wanted, self.body.token_table)  # type: ignore[no-any-return]
        return head(wanted)  # type: ignore[no-any-return]


def initialize(model: nn.Module, deviation: float, seed: int = 0) -> None:
    """BERT's start: matrices and tables from N(0, deviation), biases zero, norms the identity."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            with torch.no_grad():
                if isinstance(module, nn.LayerNorm):
                    weight.fill_(1.0 if name == "weight" else 0.0)
                elif name.endswith("bias"):
                    weight.zero_()
                else:
                    weight.copy_(torch.empty(weight.shape).normal_(0.0, deviation, generator=generator))


def count_parameters(family: Family, config: EncoderConfig, pooler: bool = True) -> int:
    """Number of weights of a body with the heads that its published sizes count, computed without allocating one."""
    with torch.device("meta"):
        model = Model(family, config, dict.fromkeys(family.counted, 0), pooler, own_table=False)
    return sum(weight.numel() for weight in model.parameters())


def with_fresh_head(
    model: Model, name: str, labels: int, seed: int = 0, dropout: float | None = None
) -> tuple[Model, list[str]]:
    """The same body under a new head of so many labels; with the names of all weights that start at random.

    The pooler is kept where the head reads it and made anew where the checkpoint had none. `dropout` is another one
    than the model's own, on vectors as on attention.
    """
    known = model.family.heads
    if name not in known:
        raise MissingHeadError(f"{model.family.title} has no {name} head; its heads are {', '.join(known)}")
    config = model.config
    if dropout is not None:
        changes: dict[str, Any] = {item: dropout for item in DROPOUTS if hasattr(config, item)}
        config = dataclasses.replace(config, **changes)
    pooled = known[name].build(config, labels).reads == "pooled"
    fresh = Model(model.family, config, {name: labels}, pooler=pooled, own_table=False)
    initialize(fresh, config.init_std, seed)
    kept = model.state_dict()
    started = [tensor for tensor in fresh.state_dict() if not (tensor.startswith("body.") and tensor in kept)]
    fresh.load_state_dict(
        {tensor: kept[tensor] for tensor in fresh.state_dict() if tensor not in started}, strict=False
    )
    return fresh.to(model.device), started


def weights_hash(model: Model) -> str:
    """SHA-256 of the body's weights, by name and shape."""
    return module_hash(model.body)


def module_hash(module: nn.Module) -> str:
    """The same of any module."""
    digest = hashlib.sha256()
    for name, weight in sorted((_hashed_name(name), weight) for name, weight in module.state_dict().items()):
        digest.update(f"{name} {tuple(weight.shape)}\n".encode())
        digest.update(weight.detach().float().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def _hashed_name(name: str) -> str:
    """The name under which hashes know a weight: saved search indexes hold hashes that must stay valid."""
    return name.replace(".feed_forward.up.", ".feed_forward.widen.").replace(
        ".feed_forward.down.", ".feed_forward.narrow."
    )
