"""Vets sentencepiece's normalisation table: a double-array trie over UTF-8 bytes and the strings it points to.

The library that walks the trie does not check its indices, so a damaged table would stop the program. A walk goes from
unit i to (i xor its offset) xor the next byte; it stays inside when the whole block of 256 units that a unit points to
does. A leaf's value is where the replacement starts in the list of strings.
Layout: 4 bytes length of the trie in bytes, the trie (little-endian 32-bit units), strings that end in NUL.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np

from kinfolk.errors import TokenizerError

MOST_BYTES = 16 * 2**20  # sentencepiece's own tables have 0.2 to 0.4 MB
HAS_LEAF, IS_LEAF = 1 << 8, 1 << 31


def check_charsmap(encoded: Any, where: str) -> None:
    """Refuse a base64 table that a walk could leave."""
    if not isinstance(encoded, str) or len(encoded) > MOST_BYTES:
        raise TokenizerError(f"{where}: the precompiled_charsmap is not text of reasonable length")
    try:
        table = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise TokenizerError(f"{where}: the precompiled_charsmap is not base64") from None
    size = int.from_bytes(table[:4], "little")
    if size % 4 or not 1024 <= size <= len(table) - 4:
        raise TokenizerError(f"{where}: the precompiled_charsmap has an impossible length")
    units, strings = np.frombuffer(table, "<u4", size // 4, 4).astype(np.int64), table[4 + size :]
    try:
        strings.decode()
    except UnicodeDecodeError:
        raise TokenizerError(f"{where}: the precompiled_charsmap does not hold UTF-8") from None
    if not _stays_inside(units, strings):
        raise TokenizerError(f"{where}: the precompiled_charsmap points outside itself; the file is damaged")


def _stays_inside(units: np.ndarray[Any, np.dtype[np.int64]], strings: bytes) -> bool:
    inner = (units & IS_LEAF) == 0
    offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
    targets = np.arange(len(units)) ^ offsets
    # only units that carry a byte as label can be entered; the root is unit 0
    blocks = targets[inner] | 255
    if len(blocks) and blocks.max() >= len(units):
        return False
    leaves = units[targets[inner & ((units & HAS_LEAF) != 0)]]
    values = leaves & (IS_LEAF - 1)
    if not len(values):
        return True
    if values.max() > len(strings):
        return False
    # a replacement must start at the first byte of a character
    text = np.frombuffer(strings + b"\0", np.uint8)
    return bool(((text[values] & 0xC0) != 0x80).all())
