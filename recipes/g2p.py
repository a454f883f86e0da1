"""Letters to phonemes: the model of the package g2p-en as an ordinary folder of kinfolk.

`python recipes/g2p.py FOLDER` writes it; then `kinfolk translate --model FOLDER transformer` says T R AE0 N S F AO1 R M
ER0. It is a Seq2Seq: GRUs of one layer, 256 wide, 0.8 M weights. The package (`pip install --no-deps g2p-en`) carries
them as arrays in torch's layout (checkpoint20.npz), for GRUs in torch's form: the reset gate acts on what the matrix
gave. Its vocabularies are the letters and the phonemes of the CMU dictionary with their stress.
Source: Park and Kim 2019, g2p-en 2.1.0, Apache-2.0.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kinfolk.api.loaded import Translator
from kinfolk.checkpoints.find import packaged_file
from kinfolk.checkpoints.weights import TensorSource, fill
from kinfolk.errors import KinfolkError, WeightsError
from kinfolk.files import read_bytes
from kinfolk.models.family import Model, Source, family
from kinfolk.text.families import TokenizerSource, added_token, bpe_model
from kinfolk.text.pairs import PairTokenizer
from kinfolk.text.tokenizer import Tokenizer

MODEL = "the letters-to-phonemes model"
PACKAGE, VERSION, WEIGHTS = "g2p-en", "2.1.0", "g2p_en/checkpoint20.npz"
SHA256 = "b8af35e4596d8dd5836dfd3fe9b2ba4f97b9c311efe8879544cbcfcbd566d8c6"
LARGEST_FILE = 64 * 2**20
LARGEST_WIDTH = 4096

LETTERS = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH"
VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW"
STRESSED = [vowel + stress for vowel in VOWELS.split() for stress in "012"]
PHONEMES = ["<pad>", "<unk>", "<s>", "</s>", *sorted([*CONSONANTS.split(), *STRESSED, "UW"])]  # UW also unmarked
ROLES = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}
LONGEST = 20  # phonemes that the package writes for a word

KEYS = {  # ours: theirs
    "body.source_table.weight": "enc_emb",
    "body.decoder.table.weight": "dec_emb",
    "heads.next_token.table.weight": "fc_w",
    "heads.next_token.bias": "fc_b",
    **{
        f"body.{stack}.cells.0.{ours}_{part}_l0": f"{side}_{theirs}_{part}"
        for stack, side in (("encoder", "enc"), ("decoder.stack", "dec"))
        for ours, theirs in (("weight", "w"), ("bias", "b"))
        for part in ("ih", "hh")
    },
}


def package_weights() -> Path:
    """Of the installed package."""
    return packaged_file(MODEL, PACKAGE, VERSION, WEIGHTS, SHA256)


def translator() -> Translator:
    """The package's model on the CPU, asked as the package does: greedily, for so many phonemes."""
    settings = {"num_beams": 1, "max_length": LONGEST + 1}  # the start token counts
    return Translator(*read_g2p(package_weights()), settings, name=PACKAGE)


def read_g2p(path: Path) -> tuple[Model, PairTokenizer]:
    """The model, in float32 on the CPU, and the tokenizer of its letters and phonemes."""
    content = read_bytes(path, LARGEST_FILE)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            tensors = TensorSource.of({name: torch.from_numpy(array) for name, array in arrays.items()}, str(path))
    except Exception as error:  # a damaged archive can fail in any way at all
        raise WeightsError(f"{path}: not a whole .npz file of plain arrays ({str(error)[:120]})") from None
    shapes = (tensors.shape(name) if name in tensors.names() else () for name in ("enc_emb", "enc_w_hh"))
    width, hidden = (shape[-1] if shape else 0 for shape in shapes)
    if not (1 <= width <= LARGEST_WIDTH and 1 <= hidden <= LARGEST_WIDTH):
        raise WeightsError(f"{path}: widths of {width:,} and {hidden:,} are not between 1 and {LARGEST_WIDTH:,}")
    sizes = {"vocabulary_size": len(LETTERS), "target_vocabulary_size": len(PHONEMES), "width": width, "hidden": hidden}
    ids = {"start_id": PHONEMES.index("<s>"), "end_id": PHONEMES.index("</s>")}
    off = dict.fromkeys(("bidirectional", "shared_tables", "tied"), False)
    seq2seq = family("kinfolk-seq2seq")
    with torch.device("meta"):
        model = Model(seq2seq, seq2seq.config.make(**sizes, **ids, **off, kind="gru", layers=1, dropout=0.0))
    fill(model, MODEL, {ours: Source((theirs,)) for ours, theirs in KEYS.items()}, tensors)
    return model.eval(), g2p_tokenizer()


def g2p_tokenizer() -> PairTokenizer:
    """Words letter by letter, in lower case and without accents; phonemes with blanks between them."""
    plain = {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]}
    letters, phonemes = ({token: index for index, token in enumerate(tokens)} for tokens in (LETTERS, PHONEMES))
    words = {"type": "WordLevel", "vocab": phonemes, "unk_token": "<unk>"}
    return PairTokenizer(
        _tokenizer(letters, {"normalizer": plain, "model": bpe_model(letters, [], "<unk>")}),
        _tokenizer(phonemes, {"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": words}),
    )


def _tokenizer(tokens: dict[str, int], parts: dict[str, Any]) -> Tokenizer:
    roles = {role: token for role, token in ROLES.items() if token in tokens}
    added = [added_token(id, token, special=True) for token, id in tokens.items() if token in roles.values()]
    return Tokenizer(TokenizerSource({"version": "1.0", "added_tokens": added, **parts}, roles, {}, "g2p-en"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the model of the package g2p-en as a folder of kinfolk.")
    parser.add_argument("folder", help="a folder that does not exist yet")
    try:
        print(f"wrote {translator().save(parser.parse_args().folder)}")
    except KinfolkError as error:
        raise SystemExit(f"error: {error}") from None
