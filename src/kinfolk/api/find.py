"""The folder of a model: `"demo"`, a path, or a hub name. Light: a tokenizer alone is found without loading torch."""

from __future__ import annotations

from pathlib import Path

from kinfolk.api.demo import demo_model
from kinfolk.checkpoints.hub import locate
from kinfolk.errors import HubError, nearest

DEMO = "demo"
G2P = "g2p-en"  # no folder but a package: `load` alone knows it


def find_model(name_or_path: str | Path, allow_pickle: bool = False) -> Path:
    """What exists as a folder is a path, `"demo"` too; other names go to the hub."""
    if str(name_or_path) == DEMO and not Path(DEMO).is_dir():
        return demo_model()
    try:
        return locate(name_or_path, allow_pickle)
    except HubError as error:
        raise HubError(f"{error}{nearest(str(name_or_path), [DEMO])}") from None
