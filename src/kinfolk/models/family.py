"""What every relative is made of: a body, heads, a config, and the record of its family.

What a model can do is read off its body's methods: it encodes (`forward(tokens, …)`), it generates (`start`, `step`),
it is conditional (`encode`; `forward(source, target, …)`). Every body has a `depth`, the number of its layers,
`layer_id(name)`, the layer of a weight (0 for tables), and a `token_embedding` that a vocabulary head may share. The
registry is `FILES`: a new relative adds one line there.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from kinfolk.errors import ConfigError, InputError, MissingHeadError, did_you_mean
from kinfolk.models.config import Config
from kinfolk.nn.heads import VocabularyHead
from kinfolk.nn.packed import Tokens
from kinfolk.nn.trace import Trace

FILES = {
    "kinfolk-seq2seq": "kinfolk.models.seq2seq",
    "kinfolk-attention": "kinfolk.models.attention_seq2seq",
    "kinfolk-transformer": "kinfolk.models.transformer",
    "marian": "kinfolk.models.marian",
    "openai-gpt": "kinfolk.models.gpt",
    "gpt2": "kinfolk.models.gpt2",
    "bert": "kinfolk.models.bert",
    "roberta": "kinfolk.models.roberta",
    "albert": "kinfolk.models.albert",
    "distilbert": "kinfolk.models.distilbert",
    "mpnet": "kinfolk.models.mpnet",
    "kinfolk-recurrent-lm": "kinfolk.models.recurrent_lm",
}
ATTENTION = re.compile(r"\.(qkv|queries|keys_values)$")  # projections of attention


@dataclass(frozen=True)
class Source:
    """Where one of our tensors lies in a public file: under one name, or several, stacked along the first dimension.

    A `row` is (1, n) there and (n,) here; matrices that are `transposed` there are (inputs, outputs): GPT-2's Conv1D.
    """

    names: tuple[str, ...]
    row: bool = False
    transposed: bool = False

    def join(self, parts: list[Tensor]) -> Tensor:
        """Their tensors -> ours."""
        if self.row:
            return parts[0].squeeze(0)
        if self.transposed and parts[0].ndim == 2:
            return parts[0].t().contiguous()
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def divide(self, tensor: Tensor) -> dict[str, Tensor]:
        """Our tensor -> theirs."""
        if self.row:
            return {self.names[0]: tensor.unsqueeze(0)}
        if self.transposed and tensor.ndim == 2:
            return {self.names[0]: tensor.t().contiguous()}
        return dict(zip(self.names, tensor.chunk(len(self.names)) if len(self.names) > 1 else (tensor,), strict=True))


Keys = Mapping[str, str | Source]


@dataclass(frozen=True)
class Head:
    """A head of a family: how it is built, its architecture's public name, and its tensors' public names."""

    build: Callable[[Any, int], nn.Module]  # (config, number of labels)
    architecture: str
    keys: Keys
    duplicates: Mapping[str, str] = field(default_factory=dict)  # public tensors that repeat one of ours


@dataclass(frozen=True)
class Preset:
    config: Any
    published: str = ""  # the number of parameters that their authors report


@torch.no_grad()
def init_normal(model: Any, seed: int = 0, std: float | None = None) -> None:
    """BERT's start: matrices and tables from N(0, init_std) or another `std`, biases zero, norms the identity. Other
    vectors and scalars, such as a gate, have no usual start and are left: Family.initialize fills them as well."""
    generator = torch.Generator().manual_seed(seed)
    std = model.config.init_std if std is None else std
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            if isinstance(module, nn.LayerNorm):
                weight.fill_(1.0 if name == "weight" else 0.0)
            elif name.endswith("bias"):
                weight.zero_()
            elif weight.ndim > 1 or "bias" in name:
                weight.copy_(torch.empty(weight.shape).normal_(0.0, std, generator=generator))


@torch.no_grad()
def init_xavier(model: nn.Module, seed: int = 0) -> None:
    """Xavier's uniform start for matrices, N(0, 1 / width) for tables, biases zero, norms the identity.

    The projections of attention count as one matrix of three widths, as torch's and fairseq's do.
    """
    generator = torch.Generator().manual_seed(seed)
    for path, module in model.named_modules():
        for name, weight in module.named_parameters(recurse=False):
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


@dataclass(frozen=True, kw_only=True)
class Family:
    """What a model file states about its relative. Key tables map our modules to public ones."""

    name: str  # the public model_type
    title: str
    parent: str | None = None
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
    tied_heads: tuple[str, ...] = ("masked_lm",)  # score with the token embedding unless tie_word_embeddings is false
    initialize: Callable[[Any, int], None] = init_normal  # weights to train from, by a seed
    ignored: tuple[str, ...] = ()  # public tensors that hold no weights; `{}` is a layer's index
    repeats: Callable[[Any], Mapping[str, str]] = lambda config: {}  # public tensors equal to another, by config
    sinusoids: tuple[str, ...] = ()  # public tensors that hold what we compute
    generation_config: Callable[[Any], dict[str, Any]] | None = None  # content of generation_config.json

    def body_keys(self, config: Any) -> Keys:
        return self.keys(config) if callable(self.keys) else self.keys

    @property
    def has_pooler(self) -> bool:
        return not callable(self.keys) and any(name.startswith("pooler") for name in self.keys)

    @property
    def is_conditional(self) -> bool:
        return hasattr(self.body, "encode")


class Model(nn.Module):
    """A body and the heads on top of it."""

    def __init__(self, family: Family, config: Any, heads: Mapping[str, int] | None = None, pooler: bool | None = None):
        """`heads`: wanted ones and their number of labels; without `pooler`, there is one where a head reads it."""
        super().__init__()
        self.family, self.config = family, config
        heads = dict.fromkeys(family.default_heads, 0) if heads is None else heads
        built = {name: family.heads[name].build(config, labels) for name, labels in heads.items()}
        pooler = any(head.reads == "pooled" for head in built.values()) if pooler is None else pooler
        self.body: Any = family.body(config, pooler=True) if pooler else family.body(config)
        self.heads = nn.ModuleDict(built)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        """The body's vectors of the last layer: of tokens (encoders) or of a target, given its source (conditional)."""
        return self.body(*inputs, **options)  # type: ignore[no-any-return]

    @torch.no_grad()
    def start(self, source: Tokens, beams: int) -> Any:
        """Read the sources or prompts; the state before the first step of generation (nn/state.py)."""
        return self.body.start(source, beams)

    @torch.no_grad()
    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Each row's last token (rows,) -> scores of its next one (rows, vocabulary), and the state after it."""
        hidden, state = self.body.step(ids, state)
        return self.vocabulary_head.step(hidden, self.body.token_embedding), state

    @property
    def vocabulary_head(self) -> Any:
        return next((head for head in self.heads.values() if isinstance(head, VocabularyHead)), None)

    def vocabulary_scores(self, hidden: Tensor) -> Tensor:
        """Of the next or the masked token, before the softmax: (tokens, width) -> (tokens, vocabulary)."""
        return self.vocabulary_head(hidden, self.body.token_embedding)  # type: ignore[no-any-return]

    def vocabulary_loss(self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        return self.vocabulary_head.loss(hidden, self.body.token_embedding, targets, smoothing)  # type: ignore[no-any-return]

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

    def scores(self, name: str, tokens: Tokens, hidden: Tensor | None = None, at: Tensor | None = None) -> Tensor:
        """Scores of the head `name` for vectors; with `at`, only for those rows (a vocabulary is wide).

        Without `hidden` the vectors are computed, and of the last layer no more than the head reads.
        """
        head: Any = self.heads[name]
        if head.reads in ("first", "pooled"):
            first = self.body.first(tokens) if hidden is None else tokens.layout.first(hidden)
            return head(self.body.pooler(first) if head.reads == "pooled" else first)  # type: ignore[no-any-return]
        hidden = self.hidden_for(name, tokens) if hidden is None else hidden
        if head.reads == "layers":
            return head(hidden, tokens.layout)  # type: ignore[no-any-return]
        if head.reads == "last":
            return head(self.body.last(hidden, tokens.layout))  # type: ignore[no-any-return]
        rows = hidden if at is None else hidden[at]
        return self.vocabulary_scores(rows) if isinstance(head, VocabularyHead) else head(rows)


def init_model(family: Family, config: Any, seed: int = 0, heads: Mapping[str, int] | None = None) -> Model:
    """A model to be trained from scratch; the same seed gives the same weights."""
    with torch.device("meta"):
        model = Model(family, config, heads)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(math.nan)
    family.initialize(model, seed)
    left = [name for name, weight in model.named_parameters() if weight.isnan().any()]
    if left:
        raise TypeError(f"Family.initialize of {family.title} must say how {', '.join(left)} start")
    return model


def count_parameters(family: Family, config: Any) -> int:
    """Number of parameters of a body with the heads that its published sizes count, without allocating one."""
    with torch.device("meta"):
        model = Model(family, config, pooler=family.has_pooler)
    return sum(weight.numel() for weight in model.parameters())


def with_dropout(config: Any, dropout: float) -> Any:
    """A config with this dropout, of attention too."""
    names = [name for name in ("dropout", "attention_dropout") if hasattr(config, name)]
    return replace(config, **dict.fromkeys(names, dropout))


def with_new_head(
    model: Model, name: str, labels: int, seed: int = 0, dropout: float | None = None
) -> tuple[Model, list[str]]:
    """The same body under a new head; with the names of all newly initialized weights.

    The pooler is made anew where the checkpoint had none. `dropout` replaces the config's, also that of attention.
    """
    family, config = model.family, model.config
    if name not in family.heads:
        raise MissingHeadError(f"{family.title} has no {name} head; its heads are {', '.join(family.heads)}")
    if dropout is not None:
        config = with_dropout(config, dropout)
    new = init_model(family, config, seed, {name: labels})
    body = {tensor: weight for tensor, weight in model.state_dict().items() if tensor.startswith("body.")}
    initialized = new.load_state_dict(body, strict=False).missing_keys
    return new.to(model.device), initialized


def weights_hash(module: nn.Module) -> str:
    # By the names that weights had when the first search indexes were saved: their hashes must stay valid.
    digest, names = hashlib.sha256(), {}
    for name in module.state_dict():
        earlier = name.replace(".feed_forward.up.", ".feed_forward.widen.")
        names[name] = earlier.replace(".feed_forward.down.", ".feed_forward.narrow.")
    for path, part in module.named_modules():
        if hasattr(part, "stored_names"):  # recurrent stacks, which encoders need not know
            names |= part.stored_names(f"{path}.")
    for name, weight in sorted((names[name], weight) for name, weight in module.state_dict().items()):
        digest.update(f"{name} {tuple(weight.shape)}\n".encode())
        digest.update(weight.detach().float().cpu().contiguous().numpy().data)
    return digest.hexdigest()


@cache
def family(name: str) -> Family:
    """The family of a public model type."""
    if name not in FILES:
        known = ", ".join(FILES)
        raise ConfigError(f'model type "{name[:60]}" is not one of kinfolk\'s ({known}){did_you_mean(name, FILES)}')
    record: Family = import_module(FILES[name]).FAMILY
    return record


def all_families() -> list[Family]:
    return [family(name) for name in FILES]


def preset(name: str, conditional: bool | None = None) -> tuple[Family, Preset]:
    """The family and settings of a model with a name, among those that are (not) conditional where that matters."""
    families = [record for record in all_families() if conditional in (None, record.is_conditional)]
    owners = {preset_name: record for record in families for preset_name in record.presets}
    if name not in owners:
        raise InputError(f'no preset is called "{name}"{did_you_mean(name, owners)}')
    return owners[name], owners[name].presets[name]
