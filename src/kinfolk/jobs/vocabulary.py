"""Vocabularies that a job learns on its way, and faults of theirs in the words of the job's own options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kinfolk.errors import InputError

SIZE, KIND = 8_000, "bpe"


@contextmanager
def in_the_users_words() -> Iterator[None]:
    """The learner tells of its argument `vocabulary_size`; the user of a job gave the option `vocabulary`."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace("vocabulary_size=", "vocabulary=")) from None
