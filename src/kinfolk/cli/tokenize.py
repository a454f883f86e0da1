"""`kinfolk tokenize`: what the model sees of a text. Needs the tokenizer only, so it answers without loading torch."""

from __future__ import annotations

from typing import Annotated

import typer

from kinfolk.cli.options import Json, Model
from kinfolk.cli.output import print_json, print_table

EXAMPLE = """\
Example:
  kinfolk tokenize --model demo "Unbelievable news." "Really?"
"""
COLUMNS = ("token", "id", "segment", "word", "start", "end", "text")


def tokenize(
    text: Annotated[str, typer.Argument(help="A text.")],
    model: Model,
    second: Annotated[str | None, typer.Argument(help="The second text of a pair.")] = None,
    json: Json = False,
) -> None:
    """Show the tokens of a text or pair. Each has its id, segment, word and the characters it stands for."""
    from kinfolk.api.find import find_model
    from kinfolk.text.tokenizer import Tokenizer

    encoding = Tokenizer.load(find_model(model)).encode(text if second is None else (text, second))
    texts = (text, second or "")
    rows = [
        (token, number, segment, word, *offset, "" if sequence is None else texts[sequence][slice(*offset)])
        for token, number, segment, word, offset, sequence in zip(
            encoding.tokens,
            encoding.ids,
            encoding.segments,
            encoding.word_ids,
            encoding.offsets,
            encoding.sequence_ids,
            strict=True,
        )
    ]
    if json:
        print_json([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    else:
        print_table(COLUMNS, rows)
