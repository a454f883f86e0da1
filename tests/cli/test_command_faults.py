"""A model folder with a fault ends a command in one line on stderr, exit code 2 and no output file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from kinfolk.api.loaded import Encoder
from kinfolk.demo import passages
from kinfolk.models.family import Model, family
from kinfolk.text.train import train_tokenizer
from support.tiny import change_config, change_weights, randomise, write_folder
from surroundings import Command

KEY = "bert.encoder.layer.1.attention.self.key.weight"
QUERY = "bert.encoder.layer.1.attention.self.query.weight"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("models") / "good", num_hidden_layers=2)


def truncate(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def lead_out(folder: Path) -> None:
    shutil.move(folder / "model.safetensors", folder.parent / "outside")
    (folder / "model.safetensors").symlink_to(folder.parent / "outside")


def pickle(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (truncate, "model.safetensors"),
    "another architecture": (
        lambda folder: change_config(folder, architectures=["BertLMHeadModel"]),
        'architecture "BertLMHeadModel" is not one kinfolk reads',
    ),
    "missing tensor": (lambda folder: change_weights(folder, {QUERY: None}), f"missing 1 tensors: {QUERY}"),
    "extra tensor": (
        lambda folder: change_weights(folder, {"bert.extra": torch.ones(2)}),
        "1 tensors that BERT lacks: bert.extra",
    ),
    "NaN": (
        lambda folder: change_weights(folder, {QUERY: torch.full((16, 16), torch.nan)}),
        f"{QUERY} holds NaN or infinite numbers",
    ),
    "NaN in the second of three joined tensors": (
        lambda folder: change_weights(folder, {KEY: torch.full((16, 16), torch.nan)}),
        f"{KEY} holds NaN or infinite numbers",
    ),
    "whole numbers": (
        lambda folder: change_weights(folder, {KEY: torch.ones(16, 16, dtype=torch.int32)}),
        f"{KEY} holds torch.int32, not floating-point numbers",
    ),
    "a tie that is neither": (
        lambda folder: change_config(folder, tie_word_embeddings="maybe"),
        "tie_word_embeddings=maybe is neither true nor false",
    ),
    "another vocabulary": (
        lambda folder: train_tokenizer("wordpiece", passages(), 330).save(folder),
        "330 ids",
    ),
    "hostile size": (lambda folder: change_config(folder, hidden_size=10**12), "is not a whole number between 0 and"),
    "path that leads out": (lead_out, "leaves the folder; refused"),
    "pickle": (pickle, "pass allow_pickle=True (--allow-pickle)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_folder_is_one_line_and_no_output(
    command: Command, good: Path, tmp_path: Path, fault: str
) -> None:
    damage, message = FAULTS[fault]
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    damage(folder)
    (tmp_path / "lines.txt").write_text("A cat.\n")
    ended = command("embed", "--model", folder, "--input", tmp_path / "lines.txt", "--output", tmp_path / "vectors.npy")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("kinfolk: ")
    assert ended.err.count("\n") == 1
    assert message in ended.err
    assert list(tmp_path.glob("*vectors*")) == []


@pytest.mark.parametrize("arguments", [("info",), ("embed", "--model", "demo", "--output", "v.npy", "--input")])
def test_a_name_too_long_for_the_system_is_one_line(command: Command, arguments: tuple[str, ...]) -> None:
    ended = command(*arguments, "a" * 300)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


def test_the_input_is_not_written_over(command: Command, good: Path, tmp_path: Path) -> None:
    lines = tmp_path / "own.jsonl"
    lines.write_text('{"text": "A cat."}\n')
    ended = command("embed", "--model", good, "--input", lines, "--output", lines, "--pool", "none")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert ended.err.startswith(f"kinfolk: {lines} is the input")
    assert lines.read_text() == '{"text": "A cat."}\n'


def test_the_folder_without_a_fault_is_embedded(command: Command, good: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("A cat.\n")
    ended = command("embed", "--model", good, "--input", tmp_path / "lines.txt", "--output", tmp_path / "vectors.npy")
    assert ended.code == 0
    assert (tmp_path / "vectors.npy").exists()


def test_a_task_that_a_family_has_no_head_for_is_one_line(command: Command, tmp_path: Path) -> None:
    relative = family("kinfolk-recurrent-lm")
    config = relative.config.make(vocabulary_size=320, width=8, layers=1, positions=60)
    model = Model(relative, config, {"next_token": 0}, pooler=False)
    Encoder(randomise(model).eval(), train_tokenizer("wordpiece", passages(), 320)).save(tmp_path / "lm")
    answer = {"text": "a hive", "answer_start": 13}
    asked = {"id": "1", "question": "Where do bees live?", "answers": [answer]}
    paragraph = {"context": "Bees live in a hive.", "qas": [asked]}
    (tmp_path / "questions.json").write_text(json.dumps({"data": [{"title": "", "paragraphs": [paragraph]}]}))
    files = ("--train", tmp_path / "questions.json", "--dev", tmp_path / "questions.json", "--output", tmp_path / "run")
    ended = command("finetune", "--model", tmp_path / "lm", "--task", "answer", *files)
    assert ended.code == 2
    assert ended.err.splitlines()[-1].startswith("kinfolk: Recurrent LM has no span head")
    assert "Traceback" not in ended.err
