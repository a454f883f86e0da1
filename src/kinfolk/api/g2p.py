"""`kinfolk.load("g2p-en")`: English words in, a phoneme for each sound out, by the GRUs of the package g2p-en."""

from __future__ import annotations

import torch

from kinfolk.api.translator import Translator
from kinfolk.checkpoints.g2p import G2P, LONGEST, read_g2p


def g2p_translator(device: torch.device) -> Translator:
    """It writes as the package does: the likeliest phoneme each time, at most 20."""
    model, tokenizer = read_g2p(G2P.path())
    manner = {"num_beams": 1, "max_length": LONGEST + 1}  # the start token counts
    return Translator(model.to(device), tokenizer, manner, name=G2P.package)
