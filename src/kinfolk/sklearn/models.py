"""Models that stay in memory between fits: a search over settings loads a model once."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from kinfolk.api.loaded import Encoder, load_encoder, pick_device
from kinfolk.errors import InputError, type_name
from kinfolk.files import reading

CACHED_MODELS = 2


def loaded(model: str | Path, device: str = "auto", allow_pickle: bool = False) -> Encoder:
    """As `load_encoder`, but a model that is still in memory is used again, unless a file of its folder has changed.

    The last two models are kept; `forget_models()` lets them go.
    """
    if not isinstance(model, str | Path):
        raise InputError(f"model={str(model)[:60]!r} is {type_name(model)}; give a folder or a hub name")
    folder = Path(model).expanduser()
    with reading(folder):
        here = folder.is_dir()  # else it is "demo" or a hub name, whose files nobody edits
        name = str(folder.resolve()) if here else str(model)
        return _load_once(name, pick_device(device).type, bool(allow_pickle), _stamp(folder) if here else ())


@lru_cache(maxsize=CACHED_MODELS)
def _load_once(name: str, device: str, allow_pickle: bool, stamp: tuple[object, ...]) -> Encoder:
    return load_encoder(name, device, allow_pickle)


forget_models = _load_once.cache_clear


def _stamp(folder: Path) -> tuple[object, ...]:
    """Name, size and time of change of the files that a model may be read from."""
    files = sorted(path for path in (*folder.glob("*"), *folder.glob("*/config.json")) if path.is_file())
    return tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files)
