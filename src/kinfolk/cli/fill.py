"""`kinfolk fill-mask`: guesses for a hidden word."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from kinfolk.cli.options import AllowPickle, Device, Json, Model, Top, open_encoder
from kinfolk.cli.output import print_json, print_table
from kinfolk.errors import InputError

EXAMPLE = """\
Example:
  kinfolk fill-mask --model bert-base-uncased "Paris is the capital of [MASK]."
"""


def fill_mask(
    text: Annotated[str, typer.Argument(help="A text with one mask or more, as the model writes it.")],
    model: Model,
    top: Top = 5,
    pieces: Annotated[int, typer.Option("--pieces", help="Also whole words of up to so many pieces.")] = 1,
    words: Annotated[str | None, typer.Option("--words", help="Rank these words only: Rome,Paris.")] = None,
    json: Json = False,
    device: Device = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Guess what a mask hides. Several masks are guessed one by one.

    Words are ranked by score, the geometric mean of their pieces' probabilities.
    """
    wanted = None if words is None else [word.strip() for word in words.split(",") if word.strip()]
    if wanted == []:
        raise InputError("--words has no word; give some with commas between them: --words Rome,Paris")
    from kinfolk.api.fill import fill_masks

    encoder = open_encoder(model, device, allow_pickle)
    masks = fill_masks(encoder.model, encoder.tokenizer, text, top, pieces, wanted, encoder.context)
    if json:
        print_json([[asdict(guess) for guess in guesses] for guesses in masks])
        return
    for number, guesses in enumerate(masks):
        if number:
            print()
        rows = [(guess.word, guess.score, guess.probability, guess.text) for guess in guesses]
        print_table(("word", "score", "probability", "text"), rows)
