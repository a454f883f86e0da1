"""Trains a tokenizer on a corpus: WordPiece, BPE, byte-level BPE, Unigram or whole words.

wordpiece   BERT's: words, then pieces; pieces inside a word begin with ##
bpe         pieces merged by frequency; a piece that begins a word starts with ▁, punctuation marks are isolated
byte_bpe    RoBERTa's: the same over bytes, so that nothing is ever unknown; words start with Ġ
unigram     ALBERT's and XLNet's: pieces with probabilities, the likeliest split wins; words start with ▁
words       whatever is between spaces, the commonest first: for corpora that are split already, like Penn Treebank

The same corpus gives the same vocabulary, in every process. That is why Unigram is trained by sentencepiece (the
trainer of the tokenizers library sums in an order that changes from run to run), and why WordPiece takes two passes:
its ties are broken by the ids of characters, which the library would deal out at random.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import sentencepiece
import tokenizers
from tokenizers import pre_tokenizers, trainers

from kinfolk.errors import InputError, KinfolkError, check_choice, check_collection, check_texts
from kinfolk.text import families
from kinfolk.text.families import BERT_ROLES, BERT_TEMPLATES, FAIRSEQ_ROLES, ROLES, Recipe
from kinfolk.text.preprocessing import split_long_words
from kinfolk.text.sentencepiece import parse_spiece
from kinfolk.text.tokenizer import SURROGATE, Tokenizer, guarded

DEFAULT_KIND, DEFAULT_SIZE = "bpe", 8_000  # of commands that train a tokenizer as their first step
KINDS = ("wordpiece", "bpe", "byte_bpe", "unigram", "words")
LONGEST_RUN = 100  # characters without a space; longer runs are cut, as no token should be that long
IN_ORDER = ("bos", "pad", "eos", "unk", "cls", "sep", "mask")  # gives both families their published order
SUPPORTED = re.compile(r"<= (\d+)\.")  # how sentencepiece says that a corpus supports fewer pieces
REQUIRED = re.compile(r"(\d+) vs (\d+)")  # and that characters alone need more


def train_tokenizer(
    kind: str,
    texts: Iterable[str],
    vocabulary_size: int,
    lowercase: bool | None = None,
    special_tokens: dict[str, str] | None = None,
    at_most: bool = False,
) -> Tokenizer:
    """A tokenizer with exactly `vocabulary_size` ids; with `at_most` fewer, if the texts support no more.

    `lowercase` is on by default, except for byte_bpe. `special_tokens` maps roles (cls, sep, pad, unk,
    mask, bos, eos) to tokens; BERT's are used by default, for byte_bpe RoBERTa's. They get the first ids.
    """
    check_choice("kind", kind, KINDS)
    byte_level = kind == "byte_bpe"
    roles = dict(special_tokens if special_tokens is not None else FAIRSEQ_ROLES if byte_level else BERT_ROLES)
    _check_roles(roles)
    recipe = Recipe(roles, BERT_TEMPLATES, roberta=byte_level, segments=not byte_level, lowercase=False)
    names = list(dict.fromkeys(roles[role] for role in IN_ORDER if role in roles))
    if vocabulary_size <= len(names):
        raise InputError(f"vocabulary_size={vocabulary_size} must be more than the {len(names)} special tokens")
    lower = not byte_level if lowercase is None else lowercase
    with closing(_Corpus(texts)) as corpus:
        if kind == "unigram":
            model, parts = _unigram(corpus, vocabulary_size, lower, recipe, names, at_most)
        elif kind == "words":
            model, parts = _words(corpus, vocabulary_size, lower, names, roles["unk"])
        else:
            parts = _parts(kind, lower)
            model = _merged(kind, corpus, vocabulary_size, parts, names, roles)
        if not (at_most and len(names) < len(model["vocab"]) <= vocabulary_size):
            _check_size(len(model["vocab"]), vocabulary_size, corpus.count)
    return Tokenizer(families.assemble(model, parts, recipe, {}, f"trained {kind}"))


class _Corpus:
    """The texts, ready for a trainer: counted, with long words cut, and readable twice.

    Trainers wrap or swallow what is raised while they read, so an error is kept here. A one-time iterator is written to
    a temporary file first, one JSON string a line.
    """

    def __init__(self, texts: Iterable[str]):
        self.count = 0
        self.error: KinfolkError | None = None
        self._texts = check_collection(texts, "a collection of texts")
        self._file = tempfile.TemporaryFile("w+", encoding="utf-8") if iter(texts) is texts else None  # noqa: SIM115
        try:
            if self._file is not None:
                self._file.writelines(json.dumps(text) + "\n" for text in check_texts(texts))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the temporary file, if there is one."""
        if self._file is not None:
            self._file.close()

    def _read(self) -> Iterator[str]:
        if self._file is None:
            return check_texts(self._texts)
        self._file.seek(0)
        return map(json.loads, self._file)

    def __iter__(self) -> Iterator[str]:
        try:
            for count, text in enumerate(self._read(), 1):
                self.count = count
                for _, part in split_long_words(SURROGATE.sub("\ufffd", text), LONGEST_RUN):
                    yield part
        except KinfolkError as error:
            self.error = error

    def lines(self) -> Iterator[str]:
        """Without the characters that sentencepiece refuses."""
        for text in self:
            yield from (line for line in text.replace("\0", " ").splitlines() if line)


def _check_roles(roles: dict[str, str]) -> None:
    for role, token in roles.items():
        check_choice("role", role, ROLES)
        if not token.strip() or "," in token:
            raise InputError(f"the special token for {role} is not a token: {token!r}")
    missing = [role for role in ("cls", "sep", "unk") if role not in roles]
    if missing:
        raise InputError(f"special_tokens lacks the roles {', '.join(missing)}")


def _check_size(size: int, wanted: int, texts: int) -> None:
    if size < wanted:
        advice = "ask for fewer or bring more text"
        raise InputError(f"the corpus ({texts} texts) supports {size} tokens, not vocabulary_size={wanted}; {advice}")
    if size > wanted:
        raise InputError(f"vocabulary_size={wanted} is too small: characters and special tokens alone are {size}")


def _parts(kind: str, lowercase: bool) -> dict[str, Any]:
    """How text becomes words."""
    lower = [{"type": "Lowercase"}] if lowercase else []
    if kind == "wordpiece":
        return families.bert_parts(lowercase, {})
    if kind == "byte_bpe":
        return {**families.byte_level_parts(prefix=False), "normalizer": lower[0] if lower else None}
    parts = families.metaspace_parts([{"type": "Nmt"}, {"type": "NFKC"}, *lower])
    # "street." and "street" must share a piece: marks are isolated, as in vocabularies that sentencepiece trains.
    parts["pre_tokenizer"]["pretokenizers"].append({"type": "Punctuation", "behavior": "Isolated"})
    return parts


def _merged(
    kind: str, corpus: _Corpus, size: int, parts: dict[str, Any], names: list[str], roles: dict[str, str]
) -> dict[str, Any]:
    """A model of merged pieces, trained by the tokenizers library."""
    empty = {name: id for id, name in enumerate(names)}
    model = families.bpe_model(empty, [], None if kind == "byte_bpe" else roles["unk"], fuse=kind == "bpe")
    model = families.wordpiece_model(empty, roles["unk"]) if kind == "wordpiece" else model
    library = tokenizers.Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], **parts, "model": model}))
    common: dict[str, Any] = {"show_progress": False}
    trainer: Any
    if kind == "wordpiece":
        # a vocabulary of nothing but characters; naming those inside words beforehand fixes their ids
        _train(library, corpus, trainers.WordPieceTrainer(vocab_size=1, special_tokens=names, **common))
        characters = sorted(token for token in library.get_vocab() if token.startswith("##") and len(token) == 3)
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=[*names, *characters], **common)
    else:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if kind == "byte_bpe" else []
        trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=names, initial_alphabet=alphabet, **common)
    _train(library, corpus, trainer)
    trained: dict[str, Any] = json.loads(library.to_str())["model"]
    return trained


def _train(library: Any, corpus: _Corpus, trainer: Any) -> None:
    try:
        guarded(lambda: library.train_from_iterator(corpus, trainer))
    except KinfolkError as error:
        raise corpus.error or error from None
    if corpus.error:
        raise corpus.error


def _words(
    corpus: _Corpus, size: int, lowercase: bool, names: list[str], unknown: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A model of whole words, by how often they occur; equals in the order of the alphabet."""
    counts = Counter(word for text in corpus for word in (text.lower() if lowercase else text).split())
    if corpus.error:
        raise corpus.error
    ordered = sorted(counts.keys() - set(names), key=lambda word: (-counts[word], word))
    tokens = {word: id for id, word in enumerate([*names, *ordered[: size - len(names)]])}
    normalizer = {"type": "Lowercase"} if lowercase else None
    parts = {"normalizer": normalizer, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": None}
    return {"type": "WordLevel", "vocab": tokens, "unk_token": unknown}, parts


def _unigram(
    corpus: _Corpus, size: int, lowercase: bool, recipe: Recipe, names: list[str], at_most: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A model of likely pieces, trained by sentencepiece."""
    unknown = recipe.roles["unk"]
    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=corpus.lines(),
            model_writer=written,
            vocab_size=size,
            hard_vocab_limit=not at_most,
            character_coverage=0.9999,
            normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
            unk_id=names.index(unknown),
            unk_piece=unknown,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            control_symbols=[name for name in names if name != unknown],
            max_sentence_length=2**30,  # longer ones would be dropped
            num_threads=4,  # fixed: sums depend on it
            minloglevel=3,
        )
    except (RuntimeError, OSError, ValueError) as error:
        raise corpus.error or _unigram_error(str(error), size, corpus.count) from None
    if corpus.error:
        raise corpus.error
    model_file = parse_spiece(written.getvalue(), "trained unigram")
    tokens = {piece.text: id for id, piece in enumerate(model_file.pieces)}
    return families.spiece_model(model_file, tokens), families.spiece_parts(model_file, recipe, {})


def _unigram_error(message: str, size: int, texts: int) -> InputError:
    supported, required = SUPPORTED.search(message), REQUIRED.search(message)
    try:
        if supported:
            _check_size(int(supported[1]), size, texts)
        if required:
            _check_size(int(required[2]), size, texts)
    except InputError as error:
        return error
    return InputError(f"the corpus ({texts} texts) holds nothing to train on")
