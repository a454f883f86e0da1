"""Tiny random models: as the reference library builds them, as we do, in folders; and ragged batches for them.

Every weight is random, biases and norms included: a tensor in the wrong place cannot hide behind a zero or a one.
Weights are float32 numbers; the comparisons are made in float64.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from kinfolk.api.loaded import Encoder
from kinfolk.checkpoints.folder import SentenceRecipe, read_checkpoint
from kinfolk.demo import passages, sentences
from kinfolk.models.family import Family, Model, family, init_normal
from kinfolk.nn.packed import Tokens, pack
from kinfolk.nn.recurrent import RecurrentStack, stored_names
from kinfolk.text.train import train_tokenizer

LENGTHS = (1, 7, 3, 12, 12, 30)
LABELS = 3
SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 34,
    "layer_norm_eps": 0.01,
    "num_labels": LABELS,
}
DISTIL = {"vocab_size": 40, "dim": 16, "n_layers": 3, "n_heads": 4, "hidden_dim": 24, "num_labels": LABELS}
GPT = {"vocab_size": 40, "n_embd": 16, "n_layer": 3, "n_head": 4, "n_positions": 34, "layer_norm_epsilon": 0.01}
GPT |= {"num_labels": LABELS, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}
CASES: dict[str, tuple[str, dict[str, Any]]] = {  # case: the classes' prefix and their settings
    "bert": ("Bert", SIZES),
    "roberta": ("Roberta", SIZES),
    "albert": ("Albert", SIZES | {"embedding_size": 6}),
    "albert, two groups": ("Albert", SIZES | {"embedding_size": 6, "num_hidden_groups": 2}),
    "distilbert": ("DistilBert", DISTIL | {"max_position_embeddings": 34}),
    "mpnet": ("MPNet", SIZES),
    "openai-gpt": ("OpenAIGPT", GPT),
    "gpt2": ("GPT2", GPT | {"n_inner": 24}),
}
ENCODERS = [case for case in CASES if "gpt" not in case]  # that read in both directions
HEADS = {  # suffix of the reference's class: our heads
    "ForMaskedLM": ["masked_lm"],
    "ForSequenceClassification": ["classify"],
    "ForTokenClassification": ["tag"],
    "ForQuestionAnswering": ["span"],
    "ForMultipleChoice": ["choose"],
}
PAIR_HEADS = {
    "bert": {"ForPreTraining": ["masked_lm", "next_sentence"], "ForNextSentencePrediction": ["next_sentence"]},
    "albert": {"ForPreTraining": ["masked_lm", "sentence_order"]},
}
GPT_HEADS = {"LMHeadModel": ["next_token"], "ForSequenceClassification": ["classify"]}
WITH_HEADS = [
    (case, suffix, names)
    for case in CASES
    for suffix, names in ((HEADS if case in ENCODERS else GPT_HEADS) | PAIR_HEADS.get(case.split(",")[0], {})).items()
] + [("gpt2", "ForTokenClassification", ["tag"])]


def is_public(family: Family) -> bool:
    """Does the reference library know it? What only we have is called kinfolk-<name>."""
    return not family.name.startswith("kinfolk")


def their_model(case: str, suffix: str = "Model", seed: int = 0, **changes: Any) -> Any:
    """A random model of the reference library, in float32."""
    prefix, settings = CASES[case]
    if suffix == "ForQuestionAnswering":
        settings = settings | {"num_labels": 2}
    config = getattr(transformers, f"{prefix}Config")(**(settings | changes))
    config._attn_implementation = "eager"  # the kernel that shows its weights
    return randomise(getattr(transformers, prefix + suffix)(config), seed).eval()


def randomise(model: Any, seed: int = 0) -> Any:
    """Every weight a random number; norms stay near one, so that no layer drowns the next."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            for name, weight in module.named_parameters(recurse=False):
                middle = 1.0 if isinstance(module, nn.LayerNorm) and name == "weight" else 0.0
                weight.copy_(middle + 0.3 * torch.randn(weight.shape, generator=generator))
    return model


def our_model(folder: Path, **options: Any) -> Model:
    """What we read from a folder, in float64."""
    return read_checkpoint(folder, **options).model.double()


def both(case: str, suffix: str, folder: Path, **changes: Any) -> tuple[Any, Model]:
    """The reference's model and ours, read from the folder that the reference wrote."""
    theirs = their_model(case, suffix, **changes)
    theirs.save_pretrained(folder)
    return theirs.double(), our_model(folder)


def ragged(lengths: Sequence[int] = LENGTHS, pairs: bool = False, seed: int = 0) -> tuple[list[Any], list[Any]]:
    """Random ids (above all special ones) and segments; with `pairs`, a second segment begins somewhere."""
    rng = random.Random(seed)
    ids = [[rng.randrange(5, SIZES["vocab_size"]) for _ in range(length)] for length in lengths]
    borders = [rng.randrange(1, length + 1) if pairs else length for length in lengths]
    segments = [[int(index >= border) for index in range(len(row))] for row, border in zip(ids, borders, strict=True)]
    return ids, segments


def has_segments(case: str) -> bool:
    """BERT and ALBERT tell the texts of a pair apart."""
    return case.startswith(("bert", "albert"))


def batch_for(case: str, ids: list[Any], segments: list[Any]) -> Tokens:
    """The packed batch as our models take it."""
    return pack(ids, segments if has_segments(case) else None)


def one_by_one(model: Any, case: str, ids: list[Any], segments: list[Any], **options: Any) -> list[Any]:
    """The reference's outputs for each sequence alone: no padding, no mask; to choose from, it is the only option."""
    outputs = []
    lone = (1, 1, -1) if type(model).__name__.endswith("ForMultipleChoice") else (1, -1)
    with torch.no_grad():
        for row, kinds in zip(ids, segments, strict=True):
            inputs = {"input_ids": torch.tensor(row).view(lone)}
            if has_segments(case):
                inputs["token_type_ids"] = torch.tensor(kinds).view(lone)
            outputs.append(model(**inputs, **options))
    return outputs


def close(actual: Tensor | Sequence[Tensor], expected: Tensor | Sequence[Tensor]) -> None:
    """Equal within 1e-9, in float64."""
    assert (actual[0] if not isinstance(actual, Tensor) else actual).dtype == torch.float64
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-9)


TRANSFORMER_SIZES: dict[str, Any] = {
    "vocabulary_size": 30,
    "width": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "heads": 4,
    "inner_width": 24,
    "positions": 80,
}
SOURCES, TARGETS = (1, 7, 3, 12, 12, 30), (4, 1, 9, 2, 12, 6)
TRANSFORMERS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "two tables, bias, silu": {
        "shared_tables": False, "target_vocabulary_size": 23, "output_bias": True, "activation": "silu",
        "scale_embedding": False, "sinusoid": "halves",
    },
}  # fmt: skip
MARIAN: dict[str, Any] = {
    "vocab_size": 30,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 80,
    "activation_function": "swish",
    "scale_embedding": True,
    "pad_token_id": 29,
    "decoder_start_token_id": 29,
}
MARIANS: dict[str, dict[str, Any]] = {
    "shared": {},
    "two tables": {
        "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23, "pad_token_id": 22,
        "decoder_start_token_id": 22,
    },
    "relu, not scaled": {"activation_function": "relu", "scale_embedding": False},
}  # fmt: skip


def our_transformer(seed: int = 0, **changes: Any) -> Model:
    """A random model of ours, in float64."""
    kin = family("kinfolk-transformer")
    return randomise(Model(kin, kin.config.make(**TRANSFORMER_SIZES | changes)), seed).double().eval()  # type: ignore[no-any-return]


def their_marian(seed: int = 0, **changes: Any) -> Any:
    """A random model of the reference library, in float32; its sinusoids stay what they are."""
    config = transformers.MarianConfig(**MARIAN | changes)
    config._attn_implementation = "eager"  # the kernel that shows its weights
    model = transformers.MarianMTModel(config)
    tables = [module.embed_positions.weight.clone() for module in (model.model.encoder, model.model.decoder)]
    randomise(model, seed)
    with torch.no_grad():
        model.model.encoder.embed_positions.weight.copy_(tables[0])
        model.model.decoder.embed_positions.weight.copy_(tables[1])
        model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape, generator=_generator(seed)))
    return model.eval()


def both_marians(folder: Path, **changes: Any) -> tuple[Any, Model]:
    """The reference's model and ours, read from the folder that the reference wrote; both in float64."""
    theirs = their_marian(**changes)
    theirs.save_pretrained(folder)
    return theirs.double(), read_checkpoint(folder).model.double()


def rows(lengths: Sequence[int], seed: int = 0, vocabulary: int = 20) -> list[list[int]]:
    """Random ids above the special ones."""
    rng = random.Random(seed)
    return [[rng.randrange(3, vocabulary) for _ in range(length)] for length in lengths]


def pairs(sources: Sequence[int] = SOURCES, targets: Sequence[int] = TARGETS) -> tuple[Tokens, Tokens]:
    """Packed sources and targets."""
    return pack(rows(sources)), pack(rows(targets, seed=1))


def stepped(model: Model, source: Tokens, written: Tensor, beams: int = 1) -> Tensor:
    """Scores (rows, steps, vocabulary) of a model that is fed `written` (rows, steps), a token at a time."""
    state = model.start(source, beams)
    scores = []
    for ids in written.unbind(1):
        logits, state = model.step(ids, state)
        scores.append(logits)
    return torch.stack(scores, 1)


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed + 99)


RECURRENT_SIZES: dict[str, Any] = {
    "vocabulary_size": 30,
    "width": 8,
    "hidden": 8,
    "layers": 2,
    "dropout": 0.2,
    "tied": True,
}
PLAIN: dict[str, dict[str, Any]] = {
    "rnn, one way": {"kind": "rnn", "bidirectional": False},
    "gru, a narrow encoder": {"kind": "gru", "bidirectional": False, "encoder_hidden": 5},
    "lstm, both ways": {"kind": "lstm"},
    "gru, both ways, own tables": {
        "kind": "gru", "shared_tables": False, "tied": False, "target_vocabulary_size": 23, "hidden": 6,
    },
    "gru reset before, both ways": {"kind": "gru_reset_before"},
}  # fmt: skip
LOOKING: dict[str, dict[str, Any]] = {
    "dot, lstm, one way": {"score": "dot", "bidirectional": False},
    "dot, lstm, both ways": {"score": "dot"},
    "bilinear, gru": {"score": "bilinear", "kind": "gru"},
    "additive, lstm, own tables": {
        "score": "additive", "score_width": 5, "shared_tables": False, "tied": False, "hidden": 6,
    },
}  # fmt: skip
RECURRENTS = PLAIN | LOOKING


def our_seq2seq(seed: int = 0, **changes: Any) -> Model:
    """A random model; with a `score` it looks back."""
    settings = RECURRENT_SIZES | changes
    return _random("kinfolk-attention" if "score" in settings else "kinfolk-seq2seq", seed, settings)


def our_lm(seed: int = 0, **changes: Any) -> Model:
    """A random language model."""
    settings = {name: value for name, value in RECURRENT_SIZES.items() if name != "hidden"} | changes
    return _random("kinfolk-recurrent-lm", seed, settings)


def _random(name: str, seed: int, settings: dict[str, Any]) -> Model:
    model = Model(family(name), family(name).config.make(**settings))
    return randomise(model, seed).double().eval()  # type: ignore[no-any-return]


def torch_weights(stack: RecurrentStack) -> dict[str, Tensor]:
    """The weights of a stack as torch's one module for all layers calls them."""
    names = stored_names("", stack.kind, stack.layers, stack.directions == 2)
    return {names[name].removeprefix("cells."): weight for name, weight in stack.state_dict().items()}


def write_folder(
    folder: Path, case: str = "bert", suffix: str = "ForPreTraining", kind: str = "wordpiece", **changes: Any
) -> Path:
    """A random model of five layers that reads 60 tokens, with a vocabulary of 320 pieces."""
    settings = {"vocab_size": 320, "num_hidden_layers": 5, "max_position_embeddings": 60} | changes
    their_model(case, suffix, **settings).save_pretrained(folder)
    train_tokenizer(kind, passages(), 320).save(folder)
    return folder


def write_sentence_encoder(folder: Path, relative: str = "bert", seed: int = 0) -> Path:
    """A random model of ours with a head, whose pooling configuration is not the default one."""
    byte_level = relative in ("roberta", "mpnet")
    tokenizer = train_tokenizer("byte_bpe" if byte_level else "wordpiece", sentences()[0][:24], 300)
    settings = {"vocabulary_size": 300, "width": 16, "layers": 5, "heads": 2, "inner_width": 32, "positions": 64}
    made = family(relative)
    model = Model(made, made.config.make(**settings), {"masked_lm": 0}, pooler=relative == "bert")
    init_normal(model, seed, std=0.5)
    return Encoder(model.eval(), tokenizer, recipe=SentenceRecipe("max", normalize=True, max_length=32)).save(folder)


def change_config(folder: Path, **settings: Any) -> None:
    """Set some of the public settings."""
    config = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(config))


def change_weights(folder: Path, changes: dict[str, Any]) -> None:
    """Add or replace tensors; None removes one."""
    tensors = load_file(folder / "model.safetensors") | changes
    kept = {name: tensor.clone() for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, folder / "model.safetensors")
