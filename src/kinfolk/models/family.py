"""What every relative is made of: a body, heads, a config, and the record of its family.

A family is a plain record of what its file states; the registry lists the families; checkpoints/ applies their key
tables in both directions. What a model can do is read off its body's methods: it encodes (`forward(tokens, …)`), it
generates (`start`, `step`), it is conditional (`encode`; `forward(source, target, …)`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from kinfolk.errors import MissingHeadError
from kinfolk.models.config import Config
from kinfolk.nn.heads import VocabularyHead
from kinfolk.nn.packed import Tokens
from kinfolk.nn.recurrent import RecurrentStack, stored_names
from kinfolk.nn.trace import Trace

DROPOUTS = ("dropout", "attention_dropout")
ATTENTION = re.compile(r"\.(qkv|queries|keys_values)$")  # projections of attention


@dataclass(frozen=True)
class Joined:
    """One of our tensors is several of theirs, stacked along the first dimension: a fused q, k, v."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One of our tensors, (n,), is theirs with a dimension more, (1, n)."""

    name: str


@dataclass(frozen=True)
class Transposed:
    """Matrices of theirs are ours transposed, (inputs, outputs): GPT-2's Conv1D."""

    name: str


Keys = Mapping[str, str | Joined | Row | Transposed]


@dataclass(frozen=True)
class Head:
    """A head of a family: how it is built, its architecture's public name, and its tensors' public names.

    `duplicates` are public tensors that repeat another one of ours (a bias stored twice).
    """

    build: Callable[[Any, int], nn.Module]  # (config, number of labels)
    architecture: str
    keys: Keys
    duplicates: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Preset:
    """Settings with a name, and the number of parameters that their authors report ("" where nobody does)."""

    config: Any
    published: str


def init_normal(model: Any, seed: int = 0, std: float | None = None) -> None:
    """BERT's start: matrices and tables from N(0, init_std) or another `std`, biases zero, norms the identity."""
    generator = torch.Generator().manual_seed(seed)
    std = model.config.init_std if std is None else std
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            with torch.no_grad():
                if isinstance(module, nn.LayerNorm):
                    weight.fill_(1.0 if name == "weight" else 0.0)
                elif name.endswith("bias"):
                    weight.zero_()
                else:
                    weight.copy_(torch.empty(weight.shape).normal_(0.0, std, generator=generator))


def init_xavier(model: nn.Module, seed: int = 0) -> None:
    """Xavier's uniform start for matrices, N(0, 1 / width) for tables, biases zero, norms the identity.

    The projections of attention count as one matrix of three widths, as torch's and fairseq's do (Glorot and Bengio
    2010 give a matrix the bound sqrt(6 / (inputs + outputs))).
    """
    generator = torch.Generator().manual_seed(seed)
    for path, module in model.named_modules():
        for name, weight in module.named_parameters(recurse=False):
            with torch.no_grad():
                if isinstance(module, nn.LayerNorm):
                    weight.fill_(1.0 if name == "weight" else 0.0)
                elif weight.ndim == 1:
                    weight.zero_()
                elif isinstance(module, nn.Embedding):
                    weight.normal_(0.0, weight.shape[1] ** -0.5, generator=generator)
                else:
                    outputs = 3 * weight.shape[1] if ATTENTION.search(path) else weight.shape[0]
                    bound = math.sqrt(6 / (weight.shape[1] + outputs))
                    weight.uniform_(-bound, bound, generator=generator)


def init_recurrent(model: nn.Module, seed: int = 0) -> None:
    """Xavier's start, with the biases of LSTMs' forget gates at one (Jozefowicz et al. 2015)."""
    init_xavier(model, seed)
    for module in model.modules():
        if isinstance(module, nn.LSTM):
            for name, weight in module.named_parameters():
                if name.startswith("bias_ih"):
                    with torch.no_grad():
                        weight[module.hidden_size : 2 * module.hidden_size] = 1.0


@dataclass(frozen=True)
class Family:
    """What a model file states about its relative. Key tables map our modules to public ones (checkpoints/keys.py)."""

    name: str  # the public model_type
    title: str
    parent: str | None
    idea: str
    paper: str
    config: type[Config]
    body: Callable[..., nn.Module]
    heads: Mapping[str, Head]
    presets: Mapping[str, Preset]
    keys: Keys | Callable[[Any], Keys]  # of the body; a function where they depend on the config
    prefix: str = ""  # of the body's tensors in a checkpoint that also has heads
    base_architecture: str | None = None  # of a body without heads; None: it always has its `default_heads`
    pretraining_heads: tuple[str, ...] = ()  # that one architecture has together:
    joint_architecture: str | None = None
    default_heads: tuple[str, ...] = ()  # of a new model; published sizes count them
    initialize: Callable[[Any, int], None] = init_normal  # weights to train from, by a seed
    ignored: tuple[str, ...] = ()  # public tensors that hold no weights
    repeats: Callable[[Any], Mapping[str, str]] = lambda config: {}  # public tensors equal to another, by config
    sinusoids: tuple[str, ...] = ()  # public tensors that hold what we compute
    generation_config: Callable[[Any], dict[str, Any]] | None = None  # content of generation_config.json

    def body_keys(self, config: Any) -> Keys:
        """The key table for a model of these settings."""
        return self.keys(config) if callable(self.keys) else self.keys

    @property
    def has_pooler(self) -> bool:
        """Do its public checkpoints know a pooler?"""
        return not callable(self.keys) and any(name.startswith("pooler") for name in self.keys)

    @property
    def is_conditional(self) -> bool:
        """Does it read a source before it writes a target?"""
        return hasattr(self.body, "encode")


class Model(nn.Module):
    """A body and the heads on top of it."""

    def __init__(self, family: Family, config: Any, heads: Mapping[str, int] | None = None, pooler: bool = False):
        """`heads` maps the names of wanted heads to their number of labels (0 where that has no meaning)."""
        super().__init__()
        self.family, self.config = family, config
        self.body: Any = family.body(config, pooler=True) if pooler else family.body(config)
        heads = dict.fromkeys(family.default_heads, 0) if heads is None else heads
        self.heads = nn.ModuleDict({name: family.heads[name].build(config, labels) for name, labels in heads.items()})

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        """The body's vectors of the last layer: of tokens (encoders) or of a target, given its source (conditional)."""
        return self.body(*inputs, **options)  # type: ignore[no-any-return]

    def encode(self, source: Tokens, trace: Trace | None = None) -> Tensor:
        """What a conditional model makes of its source: (source tokens, width)."""
        return self.body.encode(source, trace)  # type: ignore[no-any-return]

    @torch.no_grad()
    def start(self, source: Tokens, beams: int) -> Any:
        """Read the sources or prompts; the state before the first step of generation (nn/state.py)."""
        return self.body.start(source, beams)

    @torch.no_grad()
    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Each row's last token (rows,) -> scores of its next one (rows, vocabulary), and the state after it."""
        hidden, state = self.body.step(ids, state)
        return self.vocabulary_head.step(hidden, self.body.token_embedding), state  # type: ignore[union-attr]

    @property
    def vocabulary_head(self) -> VocabularyHead | None:
        """The head that scores the vocabulary, if there is one."""
        heads = (head for head in self.heads.values() if isinstance(head, VocabularyHead))
        return next(heads, None)

    def vocabulary_scores(self, hidden: Tensor) -> Tensor:
        """Of the next or the masked token, before the softmax: (tokens, width) -> (tokens, vocabulary)."""
        return self.vocabulary_head(hidden, self.body.token_embedding)  # type: ignore[misc, no-any-return]

    def vocabulary_loss(self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """The sum of the cross-entropies of targets (tokens,), computed in chunks (nn/losses.py)."""
        return self.vocabulary_head.loss(hidden, self.body.token_embedding, targets, smoothing)  # type: ignore[union-attr]

    def layer_ids(self) -> dict[str, int]:
        """The layer of each parameter: 0 for embeddings, i for layer i, one more than all for pooler and heads."""
        heads = {f"heads.{name}": self.body.depth + 1 for name, _ in self.heads.named_parameters()}
        return {f"body.{name}": self.body.layer_id(name) for name, _ in self.body.named_parameters()} | heads

    def embedding_only_read(self) -> str | None:
        """The module that is the table of tokens, unless a head may score with that table too."""
        if self.vocabulary_head is not None:
            return None
        table: nn.Module = self.body.token_embedding
        return next((name for name, module in self.named_modules() if module is table), None)

    def with_heads(self, heads: Mapping[str, nn.Module]) -> Model:
        """The same body, shared and not copied, under other heads."""
        with torch.device("meta"):
            other = Model(self.family, self.config, {})
        other.body, other.heads = self.body, nn.ModuleDict(heads)
        return other.train(self.training)

    def hidden_for(self, name: str, tokens: Tokens) -> Tensor:
        """What the head `name` reads: vectors of the last layer (tokens, width), or of several, frozen."""
        head: Any = self.heads[name]
        return self.frozen_layers(tokens, head.layers) if head.reads == "layers" else self(tokens)

    def frozen_layers(self, tokens: Tokens, layers: Sequence[int]) -> Tensor:
        """Vectors of some layers, 0 for the embeddings: (layers, tokens, width). No gradient flows into them."""
        trace = Trace(attention=False)
        self(tokens, trace=trace, depth=max(layers))
        return torch.stack([trace.packed[layer] for layer in layers])

    def predict_head(self, name: str, tokens: Tokens) -> Tensor:
        """Scores of the head `name` for a batch; of the last layer no more is computed than the head reads."""
        if self.heads[name].reads in ("first", "pooled"):
            return self._score_first(name, self.body.first(tokens))
        return self.scores(name, tokens, self.hidden_for(name, tokens))

    def scores(self, name: str, tokens: Tokens, hidden: Tensor, at: Tensor | None = None) -> Tensor:
        """Scores of the head `name` for vectors; with `at`, only for those rows (a vocabulary is wide)."""
        head = self.heads[name]
        if head.reads == "layers":
            return head(hidden, tokens.layout)  # type: ignore[no-any-return]
        if head.reads in ("first", "pooled"):
            return self._score_first(name, tokens.layout.first(hidden))
        if head.reads == "last":
            return head(self.body.last(hidden, tokens.layout))  # type: ignore[no-any-return]
        rows = hidden if at is None else hidden[at]
        return self.vocabulary_scores(rows) if isinstance(head, VocabularyHead) else head(rows)

    def _score_first(self, name: str, first: Tensor) -> Tensor:
        head = self.heads[name]
        return head(self.body.pooler(first) if head.reads == "pooled" else first)  # type: ignore[no-any-return]


def init_model(family: Family, config: Any, seed: int = 0, heads: Mapping[str, int] | None = None) -> Model:
    """A model to be trained from scratch; the same seed gives the same weights."""
    with torch.device("meta"):
        model = Model(family, config, heads)
    model.to_empty(device="cpu")
    family.initialize(model, seed)
    return model


def count_parameters(family: Family, config: Any, pooler: bool | None = None) -> int:
    """Number of parameters of a body with the heads that its published sizes count, without allocating one."""
    with torch.device("meta"):
        model = Model(family, config, pooler=family.has_pooler if pooler is None else pooler)
    return sum(weight.numel() for weight in model.parameters())


def with_new_head(
    model: Model, name: str, labels: int, seed: int = 0, dropout: float | None = None
) -> tuple[Model, list[str]]:
    """The same body under a new head of so many labels; with the names of all newly initialized weights.

    The pooler is kept where the head reads it and made anew where the checkpoint had none. `dropout` replaces that of
    the config, on vectors as on attention.
    """
    known = model.family.heads
    if name not in known:
        raise MissingHeadError(f"{model.family.title} has no {name} head; its heads are {', '.join(known)}")
    config = model.config
    if dropout is not None:
        changes: dict[str, Any] = {item: dropout for item in DROPOUTS if hasattr(config, item)}
        config = dataclasses.replace(config, **changes)
    pooled = known[name].build(config, labels).reads == "pooled"
    new = Model(model.family, config, {name: labels}, pooler=pooled)
    init_normal(new, seed)
    kept = model.state_dict()
    initialized = [tensor for tensor in new.state_dict() if not (tensor.startswith("body.") and tensor in kept)]
    new.load_state_dict(
        {tensor: kept[tensor] for tensor in new.state_dict() if tensor not in initialized}, strict=False
    )
    return new.to(model.device), initialized


def weights_hash(module: nn.Module) -> str:
    """SHA-256 of a module's weights, by name and shape."""
    # By the names that weights had when the first search indexes were saved: their hashes must stay valid.
    digest, names = hashlib.sha256(), {name: name for name in module.state_dict()}
    for ours, hashed in (
        (".feed_forward.up.", ".feed_forward.widen."),
        (".feed_forward.down.", ".feed_forward.narrow."),
    ):
        names = {name: known.replace(ours, hashed) for name, known in names.items()}
    for path, part in module.named_modules():
        if isinstance(part, RecurrentStack):
            names |= stored_names(f"{path}.", part.kind, part.layers, part.directions == 2)
    for name, weight in sorted((names[name], weight) for name, weight in module.state_dict().items()):
        digest.update(f"{name} {tuple(weight.shape)}\n".encode())
        digest.update(weight.detach().float().cpu().contiguous().numpy().data)
    return digest.hexdigest()
