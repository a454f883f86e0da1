"""Damaged tokenizer files end in a TokenizerError of one line, or load and work; never in anything else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from small_tokenizers import SENTENCES, small

from kinfolk.errors import TokenizerError
from kinfolk.text.tokenizer import Tokenizer
from surroundings import RAN, faults

MUTATIONS = faults("KINFOLK_MUTATIONS", 150)  # of each file
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**31,
    10**30,
    1.5,
    "",
    "a",
    "\ud800",
    "(",
    "(a+)+$",
    "\0",
    [],
    {},
    ["a"],
    [1, 2],
]
VALUES += ["x" * 5000, {"Regex": "("}, {"String": ""}, {"type": "Sequence", "normalizers": []}, "Isolated", "▁▁"]
PROBES = ("The wörld [MASK] 猫 \x10 a  b", "", "x" * 300, "<mask> ▁ Ġ ##", ("the boat", "a mill"))


def spots(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to values in a JSON document, a few of each long list."""
    found = [path] if path else []
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, inner in list(items)[:12]:
        found += spots(inner, (*path, name))
    return found


def damage_json(raw: bytes, generator: random.Random) -> bytes:
    content = json.loads(raw)
    for _ in range(generator.choice((1, 1, 2))):
        path = generator.choice(spots(content))
        inner = content
        for step in path[:-1]:
            inner = inner[step]
        if generator.random() < 0.2:
            del inner[path[-1]]
        else:
            inner[path[-1]] = generator.choice(VALUES)
        if not spots(content):
            break
    return json.dumps(content).encode()


def damage_bytes(raw: bytes, generator: random.Random) -> bytes:
    content = bytearray(raw)
    for _ in range(generator.choice((1, 1, 2, 5, 20))):
        place, kind = generator.randrange(len(content) + 1), generator.random()
        if kind < 0.5:
            content[place : place + 1] = generator.randbytes(1)
        elif kind < 0.7:
            del content[place : place + generator.randrange(1, 20)]
        elif kind < 0.8:
            del content[place:]
        else:
            start = generator.randrange(len(content) + 1)
            content[place:place] = content[start : start + generator.randrange(1, 200)]
    return bytes(content)


def folder_of(name: str, folder: Path) -> Path:
    """A folder whose tokenizer is read from the file `name`; returns the file."""
    if name == "spiece.model":
        options = {"vocab_size": 100, "minloglevel": 3, "model_prefix": str(folder / "spiece")}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(SENTENCES), **options)
        (folder / "spiece.vocab").unlink()
        return folder / name
    kind, _, file = name.partition("/")
    small(kind).save(folder)
    if file != "tokenizer.json":
        (folder / "tokenizer.json").unlink()
    return folder / file


def use(tokenizer: Tokenizer) -> None:
    for probe in PROBES:
        encoding = tokenizer.encode(probe)
        assert all(0 <= number < tokenizer.vocabulary_size for number in encoding.ids)
        assert len(encoding.offsets) == len(encoding.word_ids) == len(encoding)
        tokenizer.decode(encoding.ids)


FILES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    **{f"{kind}/tokenizer.json": damage_json for kind in ("wordpiece", "bpe", "byte_bpe", "unigram")},
    "wordpiece/vocab.txt": damage_bytes,
    "wordpiece/tokenizer_config.json": damage_json,
    "byte_bpe/vocab.json": damage_json,
    "byte_bpe/merges.txt": damage_bytes,
    "spiece.model": damage_bytes,
}


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_refused_in_one_line_or_works(name: str, tmp_path: Path):
    file = folder_of(name, tmp_path)
    whole, generator = file.read_bytes(), random.Random(name)
    refused: list[str] = []
    use(Tokenizer.load(tmp_path))
    for _ in range(MUTATIONS):
        file.write_bytes(FILES[name](whole, generator))
        try:
            use(Tokenizer.load(tmp_path))
        except TokenizerError as error:
            refused.append(str(error))
    RAN["mutated files"] += MUTATIONS
    assert 0 < len(refused) < MUTATIONS
    assert [message for message in refused if "\n" in message] == []


@pytest.mark.parametrize(
    "content", [b"", b"[" * 100_000, b"null", b'{"model": 3}', b'{"a": 1, "a": 2}', b"\xff", b"NaN"]
)
def test_what_is_no_tokenizer_json_is_refused(content: bytes, tmp_path: Path):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError):
        Tokenizer.load(tmp_path)
