"""Damaged tokenizer files end in a TokenizerError of one line, or load and work; never in anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
import sentencepiece
from mutations import Damage, damage_bytes, damage_json, is_refused_or_works
from small_tokenizers import SENTENCES, small

from kinfolk.errors import TokenizerError
from kinfolk.text.tokenizer import Tokenizer
from surroundings import faults

MUTATIONS = faults("KINFOLK_MUTATIONS", 150)  # of each file
PROBES = ("The wörld [MASK] 猫 \x10 a  b", "", "x" * 300, "<mask> ▁ Ġ ##", ("the boat", "a mill"))


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


FILES: dict[str, Damage] = {
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
    use(Tokenizer.load(tmp_path))
    is_refused_or_works(file, FILES[name], MUTATIONS, name, lambda: use(Tokenizer.load(tmp_path)))


@pytest.mark.parametrize(
    "content", [b"", b"[" * 100_000, b"null", b'{"model": 3}', b'{"a": 1, "a": 2}', b"\xff", b"NaN"]
)
def test_what_is_no_tokenizer_json_is_refused(content: bytes, tmp_path: Path):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError):
        Tokenizer.load(tmp_path)
