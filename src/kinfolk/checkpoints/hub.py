"""From what the user wrote to a folder: a path stays a path, a name goes through huggingface_hub.

What exists as a folder is a path and never touches the network. Anything that cannot be a hub name is a wrong path.
Only files that kinfolk reads are fetched, never code; offline mode (HF_HUB_OFFLINE=1) is obeyed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from kinfolk.errors import FolderError, HubError, InputError

NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
READ = (
    "*.json",
    "*.safetensors",
    "vocab.txt",
    "merges.txt",
    "*.model",
    "*.spm",
    "1_Pooling/config.json",
)
PICKLES = ("pytorch_model*.bin",)
NEVER = ("onnx/*", "openvino/*", "*.onnx.json")


def locate(name_or_path: str | Path, allow_pickle: bool = False) -> Path:
    """The folder that holds the model."""
    if not isinstance(name_or_path, str | Path):
        raise InputError(f"expected a folder or a hub name, found a {type(name_or_path).__name__}")
    name = str(name_or_path)
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            trained = path / "model" / "config.json"  # a training run keeps its model in there
            return path / "model" if trained.exists() and not (path / "config.json").exists() else path
        is_file = path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # a name too long for the system, or nobody's home
        raise FolderError(f"{name[:80]!r}: no such folder ({str(error)[:80]!r})") from None
    if is_file:
        raise FolderError(f"{path} is a file; give the folder that holds config.json")
    if not NAME.fullmatch(name):
        raise FolderError(f"{name[:200]!r}: no such folder")
    return _fetch(name, allow_pickle)


def _fetch(name: str, allow_pickle: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    patterns = list(READ + PICKLES if allow_pickle else READ)
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    try:
        found = snapshot_download(
            name, allow_patterns=patterns, ignore_patterns=list(NEVER), local_files_only=offline, tqdm_class=None
        )
    except (LocalEntryNotFoundError, OfflineModeIsEnabled):
        reason = "offline mode is on (HF_HUB_OFFLINE)" if offline else "the hub cannot be reached"
        raise HubError(
            f'"{name}" is no folder here, so it was taken for a hub name; {reason} and no copy is in the cache'
        ) from None
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise HubError(f'"{name}" cannot be fetched from the hub: {str(error).splitlines()[0][:200]}') from None
    return Path(found)
