"""From what the user wrote to a folder: a path stays a path, a name goes through huggingface_hub.

What exists as a folder is a path and never touches the network. Anything that cannot be a hub name is a wrong path.
Only files that kinfolk reads are fetched, never code; offline mode (HF_HUB_OFFLINE=1) is obeyed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from kinfolk.errors import FolderError, HubError

NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
READ = (
    "*.json",
    "*.safetensors",
    "vocab.txt",
    "merges.txt",
    "*.model",
    "1_Pooling/config.json",
)
PICKLES = ("pytorch_model*.bin",)
NEVER = ("onnx/*", "openvino/*", "*.onnx.json")


def locate(name_or_path: str | Path, allow_pickle: bool = False) -> Path:
    """The folder that holds the model."""
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        return path
    name = str(name_or_path)
    if path.exists():
        raise FolderError(f"{path} is a file; give the folder that holds config.json")
    if not NAME.fullmatch(name):
        raise FolderError(f"{path}: no such folder")
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
