"""The letters-to-phonemes model of the package g2p-en as a Seq2Seq of ours: GRUs of one layer, 256 wide, 0.8 M weights.

    transformer  ──>  T R AE0 N S F AO1 R M ER0

The package carries its weights as arrays in torch's layout (checkpoint20.npz), for GRUs in torch's form: the reset gate
acts on what the matrix gave. Its vocabularies are the letters and the phonemes of the CMU dictionary with their stress.
Source: Park and Kim 2019, g2p-en 2.1.0, Apache-2.0.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kinfolk.checkpoints.packaged import Packaged
from kinfolk.errors import WeightsError, shorten_list
from kinfolk.files import read_bytes
from kinfolk.models.family import Model
from kinfolk.models.seq2seq import FAMILY, Seq2SeqConfig
from kinfolk.text.families import TokenizerSource, added_token, bpe_model
from kinfolk.text.pairs import PairTokenizer
from kinfolk.text.tokenizer import Tokenizer

G2P = Packaged(
    "the letters-to-phonemes model",
    "g2p-en",
    "2.1.0",
    "g2p_en/checkpoint20.npz",
    "b8af35e4596d8dd5836dfd3fe9b2ba4f97b9c311efe8879544cbcfcbd566d8c6",
)
LARGEST_FILE = 64 * 2**20
LARGEST_WIDTH = 4096
DAMAGE = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, KeyError, SyntaxError, RuntimeError)

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


def read_g2p(path: Path) -> tuple[Model, PairTokenizer]:
    """The model, in float32 on the CPU, and the tokenizer of its letters and phonemes."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path, LARGEST_FILE))) as archive:
            shapes = _shapes(archive, path)
            model = _empty(shapes, path)
            model.load_state_dict({ours: _tensor(archive, theirs, path) for ours, theirs in KEYS.items()}, assign=True)
    except DAMAGE as error:
        raise WeightsError(f"{path}: not a whole .npz file of plain arrays ({str(error)[:120]})") from None
    return model.eval(), g2p_tokenizer()


def _shapes(archive: zipfile.ZipFile, path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each array, from the headers alone: no array is larger than what the file holds of it."""
    sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()}
    wanted = set(KEYS.values())
    for fault, names in (("missing", wanted - set(sizes)), ("not expected", set(sizes) - wanted)):
        if names:
            raise WeightsError(f"{path}: {len(names)} arrays are {fault}: {shorten_list(sorted(names))}")
    shapes = {}
    for name, size in sizes.items():
        with archive.open(f"{name}.npy") as stream:
            version = np.lib.format.read_magic(stream)
            if version != (1, 0):
                raise WeightsError(f"{path}: {name} is written in version {version} of the format, not (1, 0)")
            shape, _, kind = np.lib.format.read_array_header_1_0(stream)
            stored = size - stream.tell()
        if kind != np.dtype("<f4") or 4 * int(np.prod(shape, dtype=object)) != stored:
            raise WeightsError(f"{path}: {name} says {kind} {str(shape)[:60]}, and holds {stored:,} bytes")
        shapes[name] = shape
    return shapes


def _empty(shapes: dict[str, tuple[int, ...]], path: Path) -> Model:
    """A model without weights, of the sizes that the file has, and every shape compared."""
    width, hidden = (shapes[name][-1] if shapes[name] else 0 for name in ("enc_emb", "enc_w_hh"))
    if not (1 <= width <= LARGEST_WIDTH and 1 <= hidden <= LARGEST_WIDTH):
        raise WeightsError(f"{path}: widths of {width:,} and {hidden:,} are not between 1 and {LARGEST_WIDTH:,}")
    settings: dict[str, Any] = {
        "vocabulary_size": len(LETTERS), "target_vocabulary_size": len(PHONEMES),
        "start_id": PHONEMES.index("<s>"), "end_id": PHONEMES.index("</s>"),
        "kind": "gru", "width": width, "hidden": hidden, "layers": 1, "bidirectional": False,
        "dropout": 0.0, "shared_tables": False, "tied": False,
    }  # fmt: skip
    with torch.device("meta"):
        model = Model(FAMILY, Seq2SeqConfig.make(**settings))
    for ours, tensor in model.state_dict().items():
        if shapes[KEYS[ours]] != tuple(tensor.shape):
            raise WeightsError(f"{path}: {KEYS[ours]} has shape {shapes[KEYS[ours]]}, not {tuple(tensor.shape)}")
    return model


def _tensor(archive: zipfile.ZipFile, name: str, path: Path) -> torch.Tensor:
    with archive.open(f"{name}.npy") as stream:
        array = np.lib.format.read_array(stream, allow_pickle=False)
    if not np.isfinite(array).all():
        raise WeightsError(f"{path}: {name} holds NaN or infinite numbers")
    return torch.from_numpy(np.ascontiguousarray(array))


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
    added = [
        added_token(tokens[token], token, special=True) for token in sorted(roles.values(), key=tokens.__getitem__)
    ]
    document = {"version": "1.0", "added_tokens": added, **parts}
    return Tokenizer(TokenizerSource(document, roles, {}, "letters and phonemes"))
