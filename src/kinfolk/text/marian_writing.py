"""A vocabulary that was learned here as the files of a Marian tokenizer.

Both languages share its pieces, so both sentencepiece models are the same. The ids become Marian's: </s> and <unk>
first, <pad> last, where CTranslate2 looks for it; a token of its own for the start is not needed. What changes for a
text that spells out a special token: Marian's tokenizers obey it.
"""

from __future__ import annotations

from dataclasses import replace

from kinfolk.errors import TokenizerError
from kinfolk.text.marian import MODELS, MarianTokenizer
from kinfolk.text.marian import ROLES as NAMES
from kinfolk.text.pairs import PairTokenizer
from kinfolk.text.spiece import NORMAL
from kinfolk.text.spiece_writing import spiece_of, write_spiece


def as_marian(tokenizer: PairTokenizer, longest: int) -> tuple[MarianTokenizer, list[int]]:
    """The tokenizer, and for each of its ids the one that the piece had before (the start's for <pad>).

    `longest` is how many tokens a text may have.
    """
    if not tokenizer.joint:
        raise TokenizerError("CTranslate2 wants one vocabulary for both languages, and this translator has two")
    found = spiece_of(tokenizer.source)
    named = {tokenizer.end_id: NAMES["eos"], found.unknown: NAMES["unk"]}
    before = [*named, *(number for number, piece in enumerate(found.pieces) if piece.kind == NORMAL)]
    pieces = tuple(
        replace(found.pieces[number], text=named.get(number, found.pieces[number].text)) for number in before
    )
    content = write_spiece(replace(found, pieces=pieces, unknown=1))
    ids = {piece.text: number for number, piece in enumerate(pieces)} | {NAMES["pad"]: len(pieces)}
    made = MarianTokenizer(dict.fromkeys(MODELS, content), [ids], {"model_max_length": longest}, "Marian's layout")
    return made, [*before, tokenizer.begin_id]
