"""Trains a tokenizer on a corpus: WordPiece, BPE, byte-level BPE, Unigram, characters or whole words.

wordpiece   BERT's: words, then pieces; pieces inside a word begin with ##
bpe         pieces merged by frequency; a piece that begins a word starts with ▁, punctuation marks are isolated
byte_bpe    RoBERTa's: the same over bytes, so that nothing is ever unknown; words start with Ġ
unigram     ALBERT's and XLNet's: pieces with probabilities, the likeliest split wins; words start with ▁
characters  nothing is merged or changed: for short texts whose letters matter, like dates, names or pronunciations
words       whatever is between spaces, the commonest first: for corpora that are split already, like Penn Treebank

Unless `whole_numbers` are asked for, no piece has two digits, so that 1995 is read as it is written. No reader needs to
know that: merges that join no digits leave them apart, as does a WordPiece vocabulary without pieces of several.

The same corpus gives the same vocabulary, in every process. That is why Unigram is trained by sentencepiece (the
trainer of the tokenizers library sums in an order that changes from run to run), and why WordPiece takes two passes:
its ties are broken by the ids of characters, which the library would deal out at random.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import IO, Any

import sentencepiece
import tokenizers
from tokenizers import pre_tokenizers, trainers

from kinfolk.errors import InputError, KinfolkError, check_choice, check_collection, check_texts
from kinfolk.text import families
from kinfolk.text.encoding import split_long_words
from kinfolk.text.families import ROLES, Json, Recipe
from kinfolk.text.pairs import PairTokenizer
from kinfolk.text.sentencepiece import parse_spiece, spiece_model, spiece_parts
from kinfolk.text.tokenizer import SURROGATE, Tokenizer, guarded

DEFAULT_KIND, DEFAULT_SIZE = "bpe", 8_000  # of commands that train a tokenizer as their first step
KINDS = ("wordpiece", "bpe", "byte_bpe", "unigram", "characters", "words")
LONGEST_RUN = 100  # characters without a space; longer runs are cut, as no token should be that long
PAIR_ROLES = {"bos": "<s>", "cls": "<s>", "pad": "<pad>", "eos": "</s>", "sep": "</s>", "unk": "<unk>"}
IN_ORDER = ("bos", "pad", "eos", "unk", "cls", "sep", "mask")  # gives both families their published order
# how sentencepiece says that a corpus supports fewer pieces, or that characters alone need more
POSSIBLE = re.compile(r"<= (\d+)\.|\d+ vs (\d+)")


def train_tokenizer(
    kind: str,
    texts: Iterable[str],
    vocabulary_size: int,
    lowercase: bool | None = None,
    special_tokens: dict[str, str] | None = None,
    at_most: bool = False,
    whole_numbers: bool = False,
) -> Tokenizer:
    """A tokenizer with exactly `vocabulary_size` ids; with `at_most` fewer, if the texts support no more.

    `lowercase` is on by default, except for byte_bpe and characters. Each digit is a piece, unless `whole_numbers` may
    be one (words are whole anyway). `special_tokens` maps roles (cls, sep, pad, unk,
    mask, bos, eos) to tokens; BERT's are used by default, for byte_bpe RoBERTa's. They get the first ids.
    Without cls and sep, as in GPT-2's, nothing is put around a text.
    """
    check_choice("kind", kind, KINDS)
    byte_level = kind == "byte_bpe"
    roles = families.FAIRSEQ_ROLES if byte_level else families.BERT_ROLES
    if special_tokens is not None:
        roles = dict(special_tokens)
        for role, token in roles.items():
            check_choice("role", role, ROLES)
            if not token.strip() or "," in token:
                raise InputError(f"the special token for {role} is not a token: {token!r}")
        missing = [role for role in ("cls", "sep", "unk") if role not in roles]
        if missing not in ([], ["cls", "sep"]):  # without both of these, texts have no special tokens around them
            raise InputError(f"special_tokens lacks the roles {', '.join(missing)}")
    framed = {"cls", "sep"} <= roles.keys()  # texts stand between special tokens
    templates = families.BERT_TEMPLATES if framed else families.PLAIN_TEMPLATES
    recipe = Recipe(roles, templates, roberta=byte_level and framed, segments=not byte_level, lowercase=False)
    names = list(dict.fromkeys(roles[role] for role in IN_ORDER if role in roles))
    if vocabulary_size <= len(names):
        raise InputError(f"vocabulary_size={vocabulary_size} must be more than the {len(names)} special tokens")
    lower = kind not in ("byte_bpe", "characters") if lowercase is None else lowercase
    with _reading(texts) as corpus:
        if kind == "unigram":
            model, parts = _unigram(corpus, vocabulary_size, lower, recipe, names, at_most, whole_numbers)
        elif kind in ("words", "characters"):
            model, parts = _counted(kind, corpus, vocabulary_size, lower, names, roles["unk"])
        else:
            model, parts = _merged(kind, corpus, vocabulary_size, lower, names, roles["unk"], whole_numbers)
        size = len(model["vocab"])
        if size != vocabulary_size and not (at_most and len(names) < size < vocabulary_size):
            raise _size_error(size, vocabulary_size, corpus.count)
    return Tokenizer(families.assemble(model, parts, recipe, {}, f"trained {kind}"))


def train_pair_tokenizer(
    kind: str,
    source_texts: Iterable[str],
    target_texts: Iterable[str],
    vocabulary_size: int,
    joint: bool = True,
    lowercase: bool = False,
    at_most: bool = False,
    whole_numbers: bool = False,
) -> PairTokenizer:
    """Train one tokenizer on both languages together, or with joint=False one of that size for each.

    `kind`, `at_most` and `whole_numbers` are as in `train_tokenizer`.
    """
    corpora = [itertools.chain(source_texts, target_texts)] if joint else [source_texts, target_texts]
    own = (vocabulary_size, lowercase, PAIR_ROLES, at_most, whole_numbers)
    return PairTokenizer(*(train_tokenizer(kind, texts, *own) for texts in corpora))


class _Corpus:
    """The texts, ready for a trainer: counted, with long words cut, and readable twice."""

    def __init__(self, texts: Iterable[str], file: IO[str] | None):
        self._texts, self._file = texts, file
        self.count = 0
        self.error: KinfolkError | None = None

    def __iter__(self) -> Iterator[str]:
        texts = check_texts(self._texts)
        if self._file is not None:
            self._file.seek(0)
            texts = map(json.loads, self._file)
        try:
            for count, text in enumerate(texts, 1):
                self.count = count
                for _, part in split_long_words(SURROGATE.sub("\ufffd", text), LONGEST_RUN):
                    yield part
        except KinfolkError as error:
            self.error = error


@contextmanager
def _reading(texts: Iterable[str]) -> Iterator[_Corpus]:
    """A corpus; a one-time iterator is written to a temporary file first, one JSON string a line.

    Trainers wrap or swallow what is raised while they read, so the corpus keeps an error, which is raised here.
    """
    check_collection(texts, "a collection of texts")
    with tempfile.TemporaryFile("w+", encoding="utf-8") if iter(texts) is texts else nullcontext() as file:
        if file is not None:
            file.writelines(json.dumps(text) + "\n" for text in check_texts(texts))
        corpus = _Corpus(texts, file)
        try:
            yield corpus
        except KinfolkError as error:
            raise corpus.error or error from None
        if corpus.error:
            raise corpus.error


def _size_error(size: int, wanted: int, texts: int) -> InputError:
    if size > wanted:
        return InputError(f"vocabulary_size={wanted} is too small: characters and special tokens alone are {size}")
    advice = "ask for fewer or bring more text"
    return InputError(f"the corpus ({texts} texts) supports {size} tokens, not vocabulary_size={wanted}; {advice}")


def _merged(
    kind: str, corpus: _Corpus, size: int, lowercase: bool, names: list[str], unknown: str, whole_numbers: bool
) -> tuple[Json, Json]:
    """A model of merged pieces, trained by the tokenizers library."""
    empty, lower = {name: id for id, name in enumerate(names)}, [{"type": "Lowercase"}] if lowercase else []
    if kind == "wordpiece":
        parts, model = families.bert_parts(lowercase, {}), families.wordpiece_model(empty, unknown)
    elif kind == "byte_bpe":
        parts = families.byte_level_parts(prefix=False) | {"normalizer": lower[0] if lower else None}
        model = families.bpe_model(empty, [])
    else:
        parts = families.metaspace_parts([{"type": "Nmt"}, {"type": "NFKC"}, *lower])
        # "street." and "street" must share a piece: marks are isolated, as in vocabularies that sentencepiece trains.
        parts["pre_tokenizer"]["pretokenizers"].append({"type": "Punctuation", "behavior": "Isolated"})
        model = families.bpe_model(empty, [], unknown, fuse=True)
    library = tokenizers.Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], **parts, "model": model}))
    options: dict[str, Any] = {"show_progress": False, "special_tokens": names}
    trainer: Any
    if kind == "wordpiece":
        # a vocabulary of nothing but characters; naming those inside words beforehand fixes their ids
        trainer = trainers.WordPieceTrainer(vocab_size=1, **options)
        guarded(lambda: library.train_from_iterator(corpus, trainer))
        inner = sorted(token for token in library.get_vocab() if token.startswith("##") and len(token) == 3)
        options["special_tokens"] = names + inner
        trainer = trainers.WordPieceTrainer(vocab_size=size, **options)
    else:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if kind == "byte_bpe" else []
        trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, **options)
    if not whole_numbers:
        apart = pre_tokenizers.Digits(individual_digits=True)
        library.pre_tokenizer = pre_tokenizers.Sequence([library.pre_tokenizer, apart])
    guarded(lambda: library.train_from_iterator(corpus, trainer))
    return json.loads(library.to_str())["model"], parts


def _counted(
    kind: str, corpus: _Corpus, size: int, lowercase: bool, names: list[str], unknown: str
) -> tuple[Json, Json]:
    """A model of whole words or of characters, the commonest first, equals in the order of the alphabet.

    Among characters a space is a ▁, which always has a place.
    """
    counts, lower = Counter({} if kind == "words" else {"▁": 0}), {"type": "Lowercase"} if lowercase else None
    for text in corpus:
        text = text.lower() if lowercase else text
        counts.update(text.split() if kind == "words" else text.replace(" ", "▁"))
    ordered = sorted(counts.keys() - set(names), key=lambda token: (-counts[token], token))
    tokens = {token: id for id, token in enumerate([*names, *ordered[: size - len(names)]])}
    if kind == "words":
        parts = {"normalizer": lower, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": None}
        return {"type": "WordLevel", "vocab": tokens, "unk_token": unknown}, parts
    parts = families.metaspace_parts([lower] if lower else [], prepend=False, squeeze=False)
    return families.bpe_model(tokens, [], unknown), parts


def _unigram(
    corpus: _Corpus,
    size: int,
    lowercase: bool,
    recipe: Recipe,
    names: list[str],
    at_most: bool,
    whole_numbers: bool,
) -> tuple[Json, Json]:
    """A model of likely pieces, trained by sentencepiece."""
    unknown, written = recipe.roles["unk"], io.BytesIO()
    # without the character that sentencepiece refuses
    lines = (line for text in corpus for line in text.replace("\0", " ").splitlines() if line)
    options: Json = {
        "vocab_size": size,
        "hard_vocab_limit": not at_most,
        "character_coverage": 0.9999,
        "split_digits": not whole_numbers,
        "normalization_rule_name": "nmt_nfkc_cf" if lowercase else "nmt_nfkc",
        "unk_id": names.index(unknown),
        "unk_piece": unknown,
        **dict.fromkeys(("bos_id", "eos_id", "pad_id"), -1),
        "control_symbols": [name for name in names if name != unknown],
        "max_sentence_length": 2**30,  # longer ones would be dropped
        "num_threads": 4,  # fixed: sums depend on it
        "minloglevel": 3,
    }
    try:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=written, **options)
    except (RuntimeError, OSError, ValueError) as error:
        if match := POSSIBLE.search(str(error)):
            raise _size_error(int(match[match.lastindex or 0]), size, corpus.count) from None
        raise InputError(f"the corpus ({corpus.count} texts) holds nothing to train on") from None
    model_file = parse_spiece(written.getvalue(), "trained unigram")
    return spiece_model(model_file, model_file.vocabulary("trained unigram")), spiece_parts(model_file, recipe, {})
