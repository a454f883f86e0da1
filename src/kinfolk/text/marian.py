"""The tokenizer of Marian's translation models (opus-mt): two sentencepiece models and one list of ids.

source.spm and target.spm split texts into pieces; vocab.json gives the pieces their ids, for both languages or, with
target_vocab.json beside it, for the source alone. Texts end in </s>; the decoder is started with <pad>. A text may
begin with the code of the wanted language, as in ">>fra<< Good morning".

The reference runs the sentencepiece library, which trusts its file: a damaged one can stop the process. So the file is
read and validated here first, and the library gets a model that is written anew from what was read.

`as_marian` writes a shared vocabulary as Marian's files: one sentencepiece model for both languages, with Marian's ids
(</s> and <unk> first, <pad> last, where CTranslate2 looks for it; a start token is not needed). sentencepiece knows no
merges: a piece may be made of any two others, and the one with the better score wins. BPE merges in the order in which
it was trained, so a piece's score is its rank. Where a piece can be made in several ways the two might differ; in
thousands of sentences they never do (tests/text/test_marian_writing.py). Normalization differs in the zero-width
joiner, the full-width tilde and some recent characters, unknown characters beside an unknown punctuation mark are one
unknown piece with it, and a special token spelled out in a text is obeyed.
"""

from __future__ import annotations

import base64
import json
import re
import string
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import sentencepiece

from kinfolk.errors import InputError, TokenizerError, shorten_list
from kinfolk.files import inside, read_bytes, read_object, write_bytes, write_json
from kinfolk.text import sentencepiece as spiece
from kinfolk.text.encoding import Offset, clean_offsets
from kinfolk.text.families import flag, metaspace_parts, read_settings, roles_of, tokenizer_errors
from kinfolk.text.pairs import PairTokenizer, TranslationTokenizer
from kinfolk.text.tokenizer import SURROGATE, Tokenizer, guarded
from kinfolk.text.validation import check_charsmap, check_vocabulary, named

MARIAN_ROLES = {"unk": "<unk>", "eos": "</s>", "pad": "<pad>"}
MODELS = ("source.spm", "target.spm")
KEPT = ("source_lang", "target_lang", "model_max_length", "separate_vocabs", "added_tokens_decoder")
LANGUAGE = re.compile(r">>.*?<<", re.DOTALL)
BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")
LONGEST_REPLACEMENT = 256  # bytes; Unicode's longest is 33
NMT_NFKC = [{"type": "Nmt"}, {"type": "NFKC"}]  # how train.py writes sentencepiece's rule of that name
ISOLATED_PUNCTUATION = {"type": "Punctuation", "behavior": "Isolated"}
PLAIN_BPE = {"dropout": None, "byte_fallback": False, "ignore_merges": False}


class MarianTokenizer(TranslationTokenizer):
    """Texts of two languages to ids and back. Make one with `MarianTokenizer.load(folder)`."""

    def __init__(
        self, files: dict[str, bytes], vocabularies: list[dict[str, int]], settings: dict[str, Any], location: str
    ):
        """`files` are the two sentencepiece models by name, `vocabularies` the source's and the target's (or one)."""
        self._files, self._settings = files, settings
        self._vocabularies = {"source": vocabularies[0], "target": vocabularies[-1]}
        ids, target_ids = vocabularies[0], vocabularies[-1]
        self.roles = MARIAN_ROLES | {role: token for role, token in roles_of(settings).items() if role in MARIAN_ROLES}
        special = set(self.roles.values())
        for token in sorted(special):
            if token not in ids or target_ids.get(token) != ids[token]:
                raise TokenizerError(f"{location}: the vocabulary lacks {token[:40]!r}, or two give it different ids")
        special |= _added_tokens(settings, ids, location)
        self._splitter = re.compile("|".join(map(re.escape, sorted(special, key=len, reverse=True))))
        self._tokens = {id: token for token, id in target_ids.items()}
        self._special_ids = {ids[token] for token in special}
        self.source_end_id = self.end_id = ids[self.roles["eos"]]
        self.pad_id = self.begin_id = ids[self.roles["pad"]]
        self.unknown_id = self.source_unknown_id = self._unknown = ids[self.roles["unk"]]
        self.source_size, self.target_size = 1 + max(ids.values()), 1 + max(target_ids.values())
        paths = {name: f"{location}/{name}" for name in MODELS}
        source, target = (Engine(spiece.parse_spiece(files[name], path), path) for name, path in paths.items())
        self._engines = {"source": source, "target": target}

    @classmethod
    def load(cls, path: str | Path) -> MarianTokenizer:
        """Read source.spm, target.spm, vocab.json and the settings beside them."""
        folder, vocabularies = Path(path), []
        with tokenizer_errors(path):
            settings = read_settings(folder)
            files = {name: read_bytes(inside(folder, name), spiece.MAX_MODEL_BYTES) for name in MODELS}
            separate = flag(settings, "separate_vocabs", False)
            for name in ("vocab.json", "target_vocab.json") if separate else ("vocab.json",):
                with named(str(folder / name)):
                    vocabularies.append(check_vocabulary(read_object(inside(folder, name))))
            return cls(files, vocabularies, settings, str(folder))

    def save(self, folder: str | Path) -> None:
        """Write a folder that `load` and transformers' MarianTokenizer read with equal ids."""
        folder = Path(folder)
        for name, content in self._files.items():
            write_bytes(folder / name, content)
        write_json(folder / "vocab.json", self._vocabularies["source"])
        if self._vocabularies["target"] is not self._vocabularies["source"]:
            write_json(folder / "target_vocab.json", self._vocabularies["target"])
        settings = {name: self._settings[name] for name in KEPT if name in self._settings}
        roles = {f"{role}_token": token for role, token in self.roles.items()}
        write_json(folder / "tokenizer_config.json", {"tokenizer_class": "MarianTokenizer", **roles, **settings})

    def decode(self, ids: Iterable[int], unknown: str = "") -> str:
        skipped = self._special_ids - {self.unknown_id} if unknown else self._special_ids
        pieces = []
        for id in map(int, ids):
            if not 0 <= id < self.target_size:
                raise InputError(f"id {id} is outside the vocabulary (0 to {self.target_size - 1})")
            piece = unknown if id == self.unknown_id else self._tokens.get(id, "")
            pieces += [piece] if piece and id not in skipped else []
        return self._engines["target"].join(pieces).replace("▁", " ").strip()

    def _ids(self, text: str, side: str) -> list[int]:
        engine, ids, unknown = self._engines[side], self._vocabularies[side], self._unknown
        parts = ([part] if whole else engine.pieces(part) for _, part, whole in self._parts(text))
        return [ids.get(piece, unknown) for pieces in parts for piece in pieces]

    def _offsets(self, text: str, side: str) -> list[Offset]:
        offsets: list[Offset] = []
        for start, part, whole in self._parts(text):
            spans = [(0, len(part))] if whole else self._engines[side].offsets(part)
            offsets += [(start + first, start + last) for first, last in spans]
        return offsets

    def _parts(self, text: str) -> Iterator[tuple[int, str, bool]]:
        """A text cut at special tokens and behind a language's code, as the reference does: start, text, one token?"""
        text, start = SURROGATE.sub("\ufffd", text), 0
        for match in (*self._splitter.finditer(text), None):
            end = match.start() if match else len(text)
            if language := LANGUAGE.match(text, start, end):
                yield start, language[0], True
                start = language.end()
            if start < end:
                yield start, text[start:end], False
            if match:
                yield end, match[0], True
                start = match.end()


def _added_tokens(settings: dict[str, Any], ids: dict[str, int], location: str) -> set[str]:
    """Tokens that the settings add to the roles'; they must be in the vocabulary."""
    listed = settings.get("added_tokens_decoder", {})
    if not isinstance(listed, dict) or not all(isinstance(entry, dict) for entry in listed.values()):
        raise TokenizerError(f"{location}: added_tokens_decoder is not a list of id -> token")
    added = [(entry.get("content"), id) for id, entry in listed.items()]
    added += [(token, str(id)) for token, id in settings.get("added_tokens", {}).items()]
    for token, id in added:
        if not isinstance(token, str) or not token or token not in ids or str(ids[token]) != id:
            raise TokenizerError(f"{location}: the added token {str(token)[:40]!r} is not in vocab.json with that id")
    return {token for token, _ in added}


class Engine:
    """Splits texts into pieces and joins pieces to texts, with the sentencepiece library."""

    def __init__(self, model: spiece.SentencePieceModel, location: str):
        strange = [token for token in model.vocabulary(location) if "\0" in token]
        spelled = (piece.text for piece in model.pieces if piece.kind == spiece.BYTE)
        strange += [token for token in spelled if not BYTE_PIECE.fullmatch(token)]
        if strange:
            raise TokenizerError(f"{location}: invalid piece {shorten_list(map(repr, strange))}; the file is damaged")
        if model.charsmap:
            with named(location):
                check_charsmap(base64.b64encode(model.charsmap).decode())
            replacements = model.charsmap[4 + int.from_bytes(model.charsmap[:4], "little") :].split(b"\0")
            if max(map(len, replacements)) > LONGEST_REPLACEMENT:
                raise TokenizerError(f"{location}: the normalization table has very long replacements; refused")
        self._message = f"{location}: sentencepiece refuses it"
        self._processor = sentencepiece.SentencePieceProcessor()
        guarded(lambda: self._processor.LoadFromSerializedProto(spiece.write_spiece(model)), self._message)

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text; unknown ones appear as they are in the text."""
        return guarded(lambda: self._processor.encode(text, out_type=str), self._message)

    def offsets(self, text: str) -> list[Offset]:
        """Characters (start, end) of each piece in the text, without spaces at their ends."""
        raw: bytes = guarded(lambda: self._processor.encode(text, out_type="serialized_proto"), self._message)
        # for each index of the UTF-8 bytes, the end included, the index of its character
        characters = [*(index for index, char in enumerate(text) for _ in char.encode()), len(text)]
        pieces = [dict(spiece.parse_fields(value)) for field, value in spiece.parse_fields(raw) if field == 2]
        ends = [[characters[spiece.get_field(piece, field, 0)] for field in (4, 5)] for piece in pieces]
        return clean_offsets([(start, end) for start, end in ends], [0] * len(ends), (text,))

    def join(self, pieces: list[str]) -> str:
        return guarded(lambda: self._processor.decode_pieces(pieces), self._message)  # type: ignore[no-any-return]


def as_marian(tokenizer: PairTokenizer, max_length: int) -> tuple[MarianTokenizer, list[int]]:
    """Marian's tokenizer, and for each of its ids the one that the piece had before (the start's for <pad>).

    `max_length` is the number of tokens that a text may have.
    """
    if not tokenizer.joint:
        raise TokenizerError("CTranslate2 wants one vocabulary for both languages, and this translator has two")
    model = _sentencepiece_model(tokenizer.source)
    renamed = {tokenizer.end_id: MARIAN_ROLES["eos"], model.unknown: MARIAN_ROLES["unk"]}
    before = [*renamed, *(id for id, piece in enumerate(model.pieces) if piece.kind == spiece.NORMAL)]
    pieces = tuple(model.pieces[id]._replace(text=renamed.get(id, model.pieces[id].text)) for id in before)
    content = spiece.write_spiece(replace(model, pieces=pieces, unknown=1))
    ids = {piece.text: id for id, piece in enumerate(pieces)} | {MARIAN_ROLES["pad"]: len(pieces)}
    settings = {"model_max_length": max_length}
    marian = MarianTokenizer(dict.fromkeys(MODELS, content), [ids], settings, "the converted tokenizer")
    return marian, [*before, tokenizer.begin_id]


def _sentencepiece_model(tokenizer: Tokenizer) -> spiece.SentencePieceModel:
    """The vocabulary of a tokenizer as a sentencepiece model, in the order of ids; or a TokenizerError."""
    document = json.loads(tokenizer.to_json())["tokenizer"]
    model, added, unknown = document["model"], document["added_tokens"], tokenizer.unk_id
    complete = all(entry["special"] for entry in added) and len(model["vocab"]) == tokenizer.vocabulary_size
    if not complete or unknown is None or not _is_expressible(document, {entry["content"] for entry in added}):
        advice = "train one of kind bpe or unigram without lowercase"
        raise TokenizerError(f"this vocabulary cannot be written for sentencepiece; {advice}")
    kind, scored = spiece.UNIGRAM, model["vocab"]
    if model["type"] == "BPE":
        kind = spiece.BPE
        scored = [(text, -float(id)) for text, id in sorted(scored.items(), key=lambda item: item[1])]
    kinds = dict.fromkeys(tokenizer.special_ids, spiece.CONTROL) | {unknown: spiece.UNKNOWN}
    pieces = (spiece.Piece(text, score, kinds.get(id, spiece.NORMAL)) for id, (text, score) in enumerate(scored))
    steps = (document["normalizer"] or {}).get("normalizers", [])  # and the table that does what they do:
    table = base64.b64decode(steps[0]["precompiled_charsmap"]) if steps and steps != NMT_NFKC else b""
    if steps == NMT_NFKC:
        rule = sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc").serialized_model_proto()
        normalizer = dict(spiece.parse_fields(rule))[spiece.NORMALIZER]
        table = spiece.get_field(dict(spiece.parse_fields(normalizer)), 2, b"")
    return spiece.SentencePieceModel(tuple(pieces), kind, unknown, table)


def _is_expressible(document: dict[str, Any], special_tokens: set[str]) -> bool:
    """Does it split text into words and pieces as sentencepiece does?"""
    model, normalizer = document["model"], document["normalizer"] or {"type": "Sequence", "normalizers": []}
    spaces = metaspace_parts([])["pre_tokenizer"]
    isolated = {**spaces, "pretokenizers": [*spaces["pretokenizers"], ISOLATED_PUNCTUATION]}
    if document["pre_tokenizer"] not in (spaces, isolated) or normalizer["type"] != "Sequence":
        return False
    steps = normalizer["normalizers"]
    if steps and steps != NMT_NFKC and [step["type"] for step in steps] != ["Precompiled"]:
        return False
    if model["type"] == "BPE":
        affixes = (model["continuing_subword_prefix"], model["end_of_word_suffix"])
        if any(affixes) or any(model.get(name) != value for name, value in PLAIN_BPE.items()):
            return False
        # sentencepiece cannot isolate punctuation, and need not where no piece joins a mark to a letter
        tokens = model["vocab"].keys() - special_tokens
        joined = (char for token in tokens if len(token) > 1 for char in token)
        marks = (char in string.punctuation or unicodedata.category(char).startswith("P") for char in joined)
        return document["pre_tokenizer"] == spaces or not any(marks)
    return model["type"] == "Unigram" and not model.get("byte_fallback") and document["pre_tokenizer"] == spaces
