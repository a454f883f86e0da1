"""The toy relative of gated.py is registered as long as these tests run, its pre-training too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kinfolk.models import family
from kinfolk.objectives import kinds, masked_lm


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    record = replace(masked_lm.PRETRAINING["bert"], family="kinfolk-gated", preset="gated", size="tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(family.FILES, "kinfolk-gated", "gated")
        patch.setitem(kinds.FILES, "gated", masked_lm.__name__)
        patch.setitem(masked_lm.PRETRAINING, "gated", record)
        yield
