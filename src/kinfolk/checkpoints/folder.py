"""Model folders in the public layout, of every family: config.json, weights and tokenizer, read and written.

Reading decides everything from config.json and the headers first: family, settings, heads, names, shapes. Memory is
taken only when all of that fits, and nothing is left out in silence. Some public files hold a shared table several
times, or the sinusoids that everyone computes: these must say the same, or the folder is refused.

A `TextModel` is what every verb is given; api/loaded.py adds the verbs as methods: Encoder, LanguageModel, Translator.

A folder of sentence-transformers also says how a text's vector is made of its tokens' vectors: modules.json lists the
steps (the model, a pooling, perhaps a normalization), 1_Pooling/config.json says which pooling,
sentence_bert_config.json how long a text may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import combinations, product
from pathlib import Path
from typing import Any, Self

import torch

from kinfolk.checkpoints.find import find_model
from kinfolk.checkpoints.manifest import CARD, check_manifest, write_manifest
from kinfolk.checkpoints.weights import TensorSource, divide, fill, modern_names, open_tensors, sources, write_sharded
from kinfolk.errors import ConfigError, InputError, TokenizerError, WeightsError, check_choice
from kinfolk.files import atomic_folder, inside, read_json, read_object, read_optional, write_bytes, write_json
from kinfolk.models.family import Family, Head, Model, Source
from kinfolk.models.family import family as family_of
from kinfolk.nn.embeddings import sinusoids
from kinfolk.nn.heads import VocabularyHead
from kinfolk.text.pairs import load_pair_tokenizer
from kinfolk.text.tokenizer import Tokenizer

DEVICES = ("auto", "cpu", "cuda")
PROBE, PROBE_FILE = "kinfolk.checkpoints.probe", "head.json"  # the module is loaded where there is such a file
GENERATION = "generation_config.json"
ROUNDING = 2e-3  # of sinusoids that were stored in half precision
POOLS = {"pooling_mode_cls_token": "first", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
CONFIG_FILE, LIMITS = "config_sentence_transformers.json", "sentence_bert_config.json"
PUBLIC_POOLS = {"cls": "first", "mean": "mean", "max": "max"}


@dataclass(frozen=True)
class SentenceRecipe:
    """What modules.json asks for."""

    pool: str = "mean"
    normalize: bool = False
    max_length: int | None = None
    lowercase: bool = False
    prompt: str = ""
    # All of config_sentence_transformers.json, handed on by a save; pickles know it by this name.
    told: Mapping[str, Any] = field(default_factory=dict, compare=False)


def read_recipe(folder: Path) -> SentenceRecipe | None:
    """The recipe of a folder, or None where it has no modules.json."""
    path = inside(folder, "modules.json")
    if not path.exists():
        return None
    steps = read_json(path)
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise ConfigError(f"{path}: expected a list of modules")
    kinds = [str(step.get("type", "")).rsplit(".", 1)[-1] for step in steps]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise ConfigError(f"{path}: {', '.join(kinds)[:200]} are not Transformer, Pooling and perhaps Normalize")
    if steps[0].get("path", "") not in ("", "."):
        raise ConfigError(f"{path}: the model lies in {steps[0].get('path')!r}; load that folder instead")
    limits, saved = (read_optional(inside(folder, name)) for name in (LIMITS, CONFIG_FILE))
    max_length = limits.get("max_seq_length")
    if max_length is not None and (type(max_length) is not int or max_length < 3):
        raise ConfigError(f"{folder}/{LIMITS}: max_seq_length={str(max_length)[:60]} makes no sense")
    prompts, default = saved.get("prompts"), saved.get("default_prompt_name")
    prompt: Any = ""
    if default is not None:
        prompt = prompts.get(default) if isinstance(prompts, dict) and isinstance(default, str) else None
        if not isinstance(prompt, str):
            raise ConfigError(f"{folder}/{CONFIG_FILE}: no prompt is called {str(default)[:60]!r}")
    pool = _read_pool(folder, str(steps[1].get("path", "")), prompt)
    return SentenceRecipe(pool, "Normalize" in kinds, max_length, limits.get("do_lower_case") is True, prompt, saved)


def _read_pool(folder: Path, name: str, prompt: str) -> str:
    path = inside(folder, f"{name}/config.json" if name else "config.json")
    settings = read_object(path)
    if prompt and settings.get("include_prompt") is False:
        raise ConfigError(f"{path}: leaving the prompt out of the pooling (include_prompt) is not supported")
    known, chosen = PUBLIC_POOLS, [settings.get("pooling_mode")]  # the newer layout names the mode
    if not isinstance(chosen[0], str):
        known = POOLS
        chosen = [mode for mode, on in settings.items() if mode.startswith("pooling_mode_") and on is True]
    if len(chosen) == 1 and chosen[0] in known:
        return known[chosen[0]]
    raise ConfigError(f"{path}: pooling by {', '.join(map(str, chosen))[:200] or 'nothing'} is not supported")


def write_recipe(folder: Path, recipe: SentenceRecipe, width: int) -> None:
    """The files that make a model folder one of sentence-transformers' as well."""
    kinds = {"Transformer": "", "Pooling": "1_Pooling"} | ({"Normalize": "2_Normalize"} if recipe.normalize else {})
    steps = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate(kinds.items())
    ]
    write_json(folder / "modules.json", steps)
    modes = {mode: name == recipe.pool for mode, name in POOLS.items()}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **modes})
    write_json(folder / LIMITS, {"max_seq_length": recipe.max_length, "do_lower_case": recipe.lowercase})
    prompts = {"prompts": {"default": recipe.prompt}, "default_prompt_name": "default"} if recipe.prompt else {}
    if recipe.told or prompts:
        write_json(folder / CONFIG_FILE, dict(recipe.told) or prompts)


@dataclass
class TextModel:
    """What `kinfolk.load` reads. `name` is what the user called it, for messages; a checkpoint alone has no tokenizer.

    The public settings that it came with (label names, beams and the like) are handed on by a save.
    """

    model: Model
    tokenizer: Any = None
    hf_config: dict[str, Any] = field(default_factory=dict)  # config.json as it was read
    generation_config: dict[str, Any] = field(default_factory=dict)
    recipe: SentenceRecipe | None = None  # of sentence-transformers: pooling, normalization, maximum length
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.tokenizer, Tokenizer):
            return
        config, tokenizer = self.model.config, self.tokenizer
        if tokenizer.vocabulary_size > config.vocabulary_size or tokenizer.segments > config.segments > 1:
            ids, segments = f"{tokenizer.vocabulary_size:,} ids and {tokenizer.segments} segments", config.segments
            rows = f"the embeddings {config.vocabulary_size:,} and {segments}"
            raise TokenizerError(f"the tokenizer has {ids}, {rows}: they do not belong together")

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def context(self) -> int:
        """How many tokens the model reads at once, special tokens included."""
        limit: int = self.model.config.context
        return min(limit, getattr(self.tokenizer, "max_length", None) or limit)

    def to(self, device: str) -> Self:
        """The same model on another device ("auto", "cpu", "cuda")."""
        return replace(self, model=self.model.to(pick_device(device)))

    def save(self, folder: str | Path, card: str | None = None) -> Path:
        """Write a folder that kinfolk, transformers and (with a recipe) sentence-transformers can load.

        `card` is the text of its README.md, which may be edited later.
        """
        path = Path(folder)
        with atomic_folder(path) as temporary:
            write_checkpoint(temporary, self)
            if isinstance(self.tokenizer, Tokenizer):
                self.tokenizer.save(temporary, self.model.config.context)
            else:
                self.tokenizer.save(temporary)
            if self.recipe is not None:
                write_recipe(temporary, self.recipe, self.model.config.width)
            if card is not None:
                write_bytes(temporary / CARD, card.encode("utf-8", "replace"))
            write_manifest(temporary)
        return path


def open_model(name_or_path: str | Path, device: str = "auto", allow_pickle: bool = False) -> TextModel:
    """The model and the tokenizer of a folder, or by a hub name; what differs from its manifest is refused."""
    pick_device(device)
    folder = find_model(name_or_path, allow_pickle)
    check_manifest(folder)
    return replace(read_text_model(folder, allow_pickle).to(device), name=str(name_or_path))


def open_encoder(name_or_path: str | Path, device: str = "auto", allow_pickle: bool = False) -> TextModel:
    """An encoder or a language model with its tokenizer, for verbs that are functions."""
    text_model = open_model(name_or_path, device, allow_pickle)
    if text_model.model.family.is_conditional:
        raise InputError(f"{text_model.name}: this is a translator; an encoder is needed here")
    return text_model


def read_text_model(folder: Path, allow_pickle: bool = False) -> TextModel:
    """The model, on the CPU, and the tokenizer of a folder, whatever its manifest says."""
    checkpoint = read_checkpoint(folder, allow_pickle)
    family = checkpoint.model.family
    tokenizer = load_pair_tokenizer(folder) if family.is_conditional else Tokenizer.load(folder, family.name)
    return replace(checkpoint, tokenizer=tokenizer, recipe=None if family.is_conditional else read_recipe(folder))


def pick_device(name: str) -> torch.device:
    """The device that a user means; "auto" takes CUDA where there is one."""
    check_choice("device", name, DEVICES)
    cuda = name != "cpu" and torch.cuda.is_available()
    if name == "cuda" and not cuda:
        raise InputError('device="cuda", but torch finds no CUDA device; use "cpu" or "auto"')
    return torch.device("cuda" if cuda else "cpu")


def read_checkpoint(folder: Path, allow_pickle: bool = False) -> TextModel:
    """The model of a folder, in float32 on the CPU, without a tokenizer."""
    location = inside(folder, "config.json")
    hf_config = read_object(location)
    kind, tied = hf_config.get("model_type"), hf_config.get("tie_word_embeddings")
    if not isinstance(kind, str):
        raise ConfigError(f"{location}: no model_type, so the family is unknown")
    family = family_of(kind)
    config = family.config.from_hf(hf_config, str(location))
    listed = hf_config.get("architectures") or [None]
    if not isinstance(listed, list) or not (listed[0] is None or isinstance(listed[0], str)):
        raise ConfigError(f"{location}: architectures is not a list of names")
    known = {head.architecture for head in family.heads.values()}
    known |= {name for name in (family.base_architecture, family.joint_architecture) if name}
    if listed[0] is not None and listed[0] not in known:
        supported = ", ".join(sorted(known))
        raise ConfigError(f'{location}: architecture "{listed[0][:60]}" is not one kinfolk reads ({supported})')
    tensors = modern_names(open_tensors(folder, allow_pickle))
    if not (tied is None or isinstance(tied, bool)):
        raise ConfigError(f"{location}: tie_word_embeddings={str(tied)[:60]} is neither true nor false")
    model = _build(family, config, _heads_of(family, listed[0], tensors), tied is not False, tensors)
    _fill(model, tensors)
    _, head = _tied_head(model)
    if tied is not False and head is not None and head.table is not None:
        # A table that only repeats the embedding goes; one that differs is what the scores were made with, and stays.
        head.table = None if head.table.weight.equal(model.body.token_embedding.weight) else head.table
    if inside(folder, PROBE_FILE).exists():
        model = import_module(PROBE).read_probe(folder, model)
    generation = {} if family.generation_config is None else read_optional(inside(folder, GENERATION))
    return TextModel(model.eval(), None, hf_config, generation)


def _tied_head(model: Model) -> tuple[str, VocabularyHead | None]:
    """The head that scores with the token embedding, unless its checkpoint says otherwise, by its name."""
    tied: dict[str, Any] = {name: model.heads[name] for name in model.family.tied_heads if name in model.heads}
    return next(iter(tied.items()), ("", None))


def _build(family: Family, config: Any, present_heads: list[str], tied: bool, tensors: TensorSource) -> Model:
    """An empty model with just the heads that the file carries."""
    heads, names = {}, tensors.names()
    for name in present_heads:
        weight = f"{family.heads[name].keys.get('output')}.weight"
        heads[name] = next(iter(tensors.shape(weight)), 0) if weight in names else 0
    pooler = family.has_pooler and any(name.startswith(f"{_prefix(family, tensors)}pooler.") for name in names)
    with torch.device("meta"):
        model = Model(family, config, heads, pooler)
        for name in heads.keys() & {*family.tied_heads}:
            if not tied or f"{family.heads[name].keys['table']}.weight" in names:
                model.heads[name].untie()  # type: ignore[operator]
    for name, built in model.heads.items():
        if built.reads == "pooled" and not pooler:
            raise WeightsError(f"{tensors.location}: the {name} head reads the pooler's output, but there is no pooler")
    return model


def _heads_of(family: Family, architecture: str | None, tensors: TensorSource) -> list[str]:
    """The heads that a file carries. Some share their tensors' names: then the architecture tells which one it is,
    without one it is the text classifier, and of two heads of one architecture the one that explains more tensors."""
    if family.base_architecture is None:
        return list(family.default_heads)

    def is_present(head: Head) -> bool:  # its own table may be missing, and a duplicate may stand in
        stand_ins = {part: theirs for theirs, part in head.duplicates.items()}
        needed = [(key, stand_ins.get(part, key)) for part, key in head.keys.items() if part != "table"]
        if not needed:  # it has nothing but the token embedding
            return architecture in (None, head.architecture)
        return all(any(name in keys or name.startswith(f"{keys[0]}.") for name in tensors.names()) for keys in needed)

    def fit(name: str) -> tuple[bool, bool, int]:
        return family.heads[name].architecture == architecture, name == "classify", len(family.heads[name].keys)

    present = [name for name, head in family.heads.items() if is_present(head)]
    rivals = {name: [other for other in present if _clash(family, name, other)] for name in present}
    return [name for name in present if name == max(rivals[name], key=fit)]


def _clash(family: Family, name: str, other: str) -> bool:
    """Do two heads lay claim to the same public tensors?"""
    pairs = product(family.heads[name].keys.values(), family.heads[other].keys.values())
    return any(f"{one}.".startswith(f"{two}.") or f"{two}.".startswith(f"{one}.") for one, two in pairs)


def _prefix(family: Family, tensors: TensorSource) -> str:
    prefix = f"{family.prefix}." if family.prefix else ""
    return prefix if any(name.startswith(prefix) for name in tensors.names()) else ""


def _fill(model: Model, tensors: TensorSource) -> None:
    """Check every name and shape, then read the weights into the model."""
    family, config, names, location = model.family, model.config, tensors.names(), tensors.location
    prefix, repeats = _prefix(family, tensors), family.repeats(config)
    located = sources(family, config, model.state_dict(), prefix)
    layers = range(getattr(config, "layers", 0) + 1)
    explained = {prefix + name.format(layer) for name in family.ignored for layer in layers}
    explained |= {*repeats, *family.sinusoids}
    for name in model.heads:
        head = family.heads[name]
        for theirs, part in head.duplicates.items():  # the reference library computes with the duplicate
            explained.add(str(head.keys[part]))
            if theirs in names:
                located[f"heads.{name}.{part}"] = Source((theirs,))
    # A repeat stands in for a tensor that the file holds only under that name.
    stand_ins = {theirs: repeat for repeat, theirs in repeats.items() if repeat in names and theirs not in names}
    for name, source in located.items():
        if source.names[0] in stand_ins:
            located[name] = Source((stand_ins[source.names[0]],))
    fill(model, family.title, located, tensors, explained)
    for repeat, theirs in repeats.items():
        first = stand_ins.get(theirs, theirs)
        if repeat in names and repeat != first and not tensors.read(repeat).equal(tensors.read(first)):
            raise WeightsError(f"{location}: {repeat} differs from {first}; config.json says they are one")
    for name in names & {*family.sinusoids}:
        shape = tensors.shape(name)
        if len(shape) != 2 or shape[1] != config.width:
            raise WeightsError(f"{location}: {name} has shape {shape}, config.json asks for a width of {config.width}")
        expected = sinusoids(shape[0], config.width, config.sinusoid)
        if not torch.allclose(tensors.read(name).float(), expected, rtol=0, atol=ROUNDING):
            raise WeightsError(f"{location}: {name} does not hold the sinusoids that {family.title} has")


def write_checkpoint(folder: Path, checkpoint: TextModel) -> None:
    """config.json and model.safetensors (in shards above 5 GB), as transformers writes them; a probe beside them."""
    model, saved = checkpoint.model, checkpoint.generation_config
    if any(head.reads == "layers" for head in model.heads.values()):
        model = import_module(PROBE).write_probe(folder, model)
    family, config = model.family, model.config
    for one, two in combinations(model.heads, 2):
        if _clash(family, one, two):
            raise WeightsError(f"the heads {one} and {two} share public names; save them in folders of their own")
    prefix = f"{family.prefix}." if family.prefix and model.heads else ""
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    tensors = divide(state, sources(family, config, state, prefix))
    settings = checkpoint.hf_config | config.to_hf()
    settings = {name: settings[repeated] for name, repeated in config.hf_repeats.items()} | settings
    name, head = _tied_head(model)
    if head is not None:
        settings["tie_word_embeddings"] = head.table is None
        if head.table is not None:  # the reference reads the duplicates then
            record = family.heads[name]
            tensors |= {theirs: tensors[str(record.keys[part])] for theirs, part in record.duplicates.items()}
    write_sharded(folder, tensors)
    if not model.heads:
        assert family.base_architecture is not None, f"{family.title} is never without its head"
        architecture = family.base_architecture
    elif family.joint_architecture is not None and {*family.pretraining_heads} <= {*model.heads}:
        architecture = family.joint_architecture
    else:
        architecture = family.heads[next(iter(model.heads))].architecture
    settings |= {"model_type": family.name, "architectures": [architecture]}
    settings.pop("torch_dtype", None)  # the old name; a stale one would make readers round the weights
    settings["dtype"] = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    write_json(folder / "config.json", dict(sorted(settings.items())))
    if family.generation_config is not None:
        # What a user chose (beams, length) stays; the ids are the config's.
        chosen = {name: value for name, value in saved.items() if not name.endswith("_token_id")}
        chosen.pop("_from_model_config", None)  # it would make transformers forget this file
        write_json(folder / GENERATION, dict(sorted((family.generation_config(config) | chosen).items())))
