"""Translating: order and blank texts are kept, neighbours do not matter, and long texts are reported."""

from __future__ import annotations

import copy
import dataclasses
import random
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import kinfolk
from kinfolk.api import translate
from kinfolk.api.evaluate import evaluate_bleu, translation_loss
from kinfolk.api.loaded import Translator, load_encoder, load_translator
from kinfolk.api.translation import pair_samples
from kinfolk.data.tables import to_pairs
from kinfolk.errors import InputError, MissingHeadError, TokenizerError
from kinfolk.generation.config import EARLY_STOPPING, Beam, DecodingConstraints, Request
from kinfolk.generation.search import beam
from kinfolk.nn.packed import pack
from kinfolk.text.train import train_pair_tokenizer
from small_pairs import VOCABULARY, pairs, translated
from support.tiny import our_transformer

SOURCES = [source for source, _ in pairs(60, seed=5) if len(source.split()) < 4]


@pytest.fixture(scope="module")
def model(small_translator: Path) -> Translator:
    return load_translator(small_translator, device="cpu")


@pytest.fixture(scope="module")
def untrained() -> Translator:
    """A random Transformer whose vocabulary lacks some letters."""
    sides = list(zip(*pairs(200), strict=True))
    tokenizer = train_pair_tokenizer("unigram", *sides, 30)
    network = our_transformer(vocabulary_size=30, pad_id=tokenizer.pad_id, start_id=0, end_id=2).float()
    return Translator(network, tokenizer)


def test_order_is_kept_and_blank_texts_stay_empty(model: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translate, "CHUNK_TEXTS", 7)
    monkeypatch.setattr(translate, "BATCH_TOKENS", 50)
    texts = list(SOURCES)
    for index in (0, 11, 12, 30):
        texts.insert(index, ("", " ", "\t\n", "\u200b")[index % 4])
    translations = model.translate(iter(texts))
    assert [text for text, source in zip(translations, texts, strict=True) if source.strip("\u200b \t\n") == ""] == [
        ""
    ] * 4
    right = sum(
        text == translated(source) for text, source in zip(translations, texts, strict=True) if source in SOURCES
    )
    assert right > 0.9 * len(SOURCES)
    assert model.translate([]) == []
    assert model.translate("") == ""


def test_texts_are_ranked_by_the_penalty_and_the_rule_that_are_asked_for(model: Translator) -> None:
    for kind, base in (("gnmt", lambda tokens: (5 + tokens) / 6), ("power", lambda tokens: tokens)):
        for option in model.translate("salt moon star", n_best=3, length_penalty=1.5, penalty=kind):  # type: ignore
            tokens = len(model.tokenizer.encode_target(option.text))
            assert option.score == pytest.approx(option.log_probability / base(tokens) ** 1.5)
    rules = {rule: model.translate_settings(early_stopping=rule).search.early_stopping for rule in EARLY_STOPPING}
    assert list(rules) == list(rules.values())
    for wrong in (
        {"penalty": "length"},
        {"early_stopping": "soon"},
        {"penalty": "power", "beam": 1},
        {"early_stopping": "full", "seed": 1},
    ):
        with pytest.raises(InputError):
            model.translate("salt", **wrong)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::kinfolk.api.translate.TranslationWarning")  # random texts may not end
def test_neighbours_do_not_matter(untrained: Translator) -> None:
    together = untrained.translate(SOURCES, n_best=3, max_tokens=9)
    order = random.Random(0).sample(range(len(SOURCES)), len(SOURCES))
    mixed = untrained.translate([SOURCES[index] for index in order], n_best=3, max_tokens=9)
    alone = untrained.translate(SOURCES[4], n_best=3, max_tokens=9)
    for index, options in zip(order, mixed, strict=True):
        assert [option.text for option in options] == [option.text for option in together[index]]  # type: ignore
    assert [option.text for option in alone] == [option.text for option in together[4]]  # type: ignore


@pytest.mark.filterwarnings("ignore::kinfolk.api.translate.TranslationWarning")  # random texts may not end
def test_the_best_texts_are_those_of_beam_search(untrained: Translator) -> None:
    config, tokenizer = untrained.model.config, untrained.tokenizer
    source = tokenizer.encode_source(SOURCES[3])
    rules = DecodingConstraints(config.end_id, tuple(sorted({config.pad_id, config.start_id})))
    (expected,) = beam(untrained.model, Request(pack([source]), config.start_id, [8], rules), Beam(4, 4))
    translations: Any = untrained.translate(SOURCES[3], n_best=4, max_tokens=8)
    assert [(option.text, option.score) for option in translations] == [
        (tokenizer.decode(option.ids), option.score) for option in expected
    ]
    greedy = untrained.translate(SOURCES[3], beam=1, max_tokens=8)
    assert greedy == untrained.translate([SOURCES[3]], beam=1, max_tokens=8)[0]


@pytest.mark.filterwarnings("ignore::kinfolk.api.translate.TranslationWarning")  # random texts may not end
def test_a_drawn_text_hangs_on_seed_and_source_alone(untrained: Translator, monkeypatch: Any) -> None:
    options: dict[str, Any] = {"seed": 3, "temperature": 2.0, "top_k": 20, "max_tokens": 12}
    translations = untrained.translate(SOURCES, **options)
    monkeypatch.setattr(translate, "CHUNK_TEXTS", 6)
    assert untrained.translate(SOURCES, **options) == translations
    assert untrained.translate(SOURCES[::-1], **options) == translations[::-1]
    assert untrained.translate(SOURCES, **options | {"seed": 4}) != translations
    with pytest.raises(InputError, match=r"n-best .*seed"):
        untrained.translate(SOURCES, seed=1, n_best=2)


def test_long_and_endless_texts_are_reported_and_not_refused(
    model: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(translate.TranslationWarning, match=r"2 texts .*\b7 tokens .*\b31\b"):
        translations = model.translate(["salt " * 30, "moon", "star " * 8])
    assert (len(translations), translations[1]) == (3, "lun")
    with pytest.warns(translate.TranslationWarning, match="1 translations"):
        cut = str(model.translate("salt moon star", max_tokens=2))
    assert cut != "ast lun sel"
    assert "ast lun sel".startswith(cut)


def test_what_is_cut_is_reported_whatever_length_the_model_knows(
    model: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translate, "MAX_SOURCE_TOKENS", 20)
    knows_all = dataclasses.replace(model, hf_config={"trained_length": [500, 500]})
    with pytest.warns(translate.TranslationWarning) as warned:
        knows_all.translate("salt " * 30, max_tokens=60)
    assert [str(warning.message).partition(" ")[0] for warning in warned] == ["11"]
    with pytest.warns(translate.TranslationWarning) as warned:
        model.translate("salt " * 30)
    assert [str(warning.message).partition(" ")[0] for warning in warned] == ["1", "11"]


@pytest.mark.filterwarnings("ignore::kinfolk.api.translate.TranslationWarning")  # random texts may not end
def test_copying_needs_attention_and_changes_nothing_else(model: Translator, untrained: Translator) -> None:
    assert model.translate(SOURCES, copy_unknown=True) == model.translate(SOURCES)
    drawn: dict[str, Any] = {"seed": 1, "temperature": 9.0, "max_tokens": 9}
    translations, plain = (
        untrained.translate(SOURCES, copy_unknown=True, **drawn),
        untrained.translate(SOURCES, **drawn),
    )
    words = set(" ".join(SOURCES).split())
    assert translations != plain
    changed = [(new, old) for new, old in zip(translations, plain, strict=True) if new != old]
    assert 5 < len(changed) < len(SOURCES)
    assert all(words & set(new.split()) for new, _ in changed)


def test_two_threads_get_the_right_answers(model: Translator) -> None:
    expected, results = model.translate(SOURCES[:10]), {}

    def work(number: int) -> None:
        results[number] = model.translate(SOURCES[:10])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: expected, 1: expected}


def test_a_saved_model_writes_the_same_and_keeps_its_manifest(model: Translator, tmp_path: Path) -> None:
    again = kinfolk.load(model.save(tmp_path / "copy", card="# A card"), device="cpu")
    assert again.translate(SOURCES) == model.translate(SOURCES)
    assert again.to("cpu").trained_length == model.trained_length == 7
    (tmp_path / "copy" / "source.spm").write_bytes(b"")
    with pytest.raises(kinfolk.KinfolkError, match=r"source\.spm"):
        kinfolk.load(tmp_path / "copy")


def test_measures_are_those_of_the_texts(model: Translator) -> None:
    import sacrebleu

    dev = to_pairs(pairs(30, seed=9))
    evaluation = evaluate_bleu(model, dev, model.translate_settings(beam=1))
    references = [pair.target for pair in dev]
    assert list(evaluation.texts) == model.translate([pair.source for pair in dev], beam=1)
    assert evaluation.metrics["bleu"] == sacrebleu.corpus_bleu(list(evaluation.texts), [references]).score
    items = pair_samples(dev, model.tokenizer, 100).items  # type: ignore[arg-type]
    alone = [translation_loss(model.model, [item]) * len(item.target) for item in items]
    total = sum(len(item.target) for item in items)
    assert translation_loss(model.model, items) == pytest.approx(sum(alone) / total, rel=1e-5)


def test_wrong_arguments_are_reported(
    model: Translator, untrained: Translator, tiny_bert: Path, tmp_path: Path
) -> None:
    for options, message in (
        ({"n_best": 5, "beam": 4}, "n_best=5"),
        ({"beam": 0}, "beam=0"),
        ({"beam": 1_001}, "beam=1001"),
        ({"n_best": 10**11}, "n_best=100000000000"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"temperature": -1.0}, "temperature=-1"),
        ({"length_penalty": 11}, "length_penalty=11"),
        ({"length_penalty": 1.0, "beam": 1}, "length_penalty is"),
        ({"length_penalty": 1.0, "seed": 1}, "length_penalty is"),
    ):
        with pytest.raises(InputError, match=message):
            model.translate("salt", **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"text 1 .*int"):
        model.translate(["salt", 3])  # type: ignore[list-item]
    with pytest.raises(InputError, match="encoder is needed"):
        load_encoder(model.save(tmp_path / "one"), device="cpu")
    with pytest.raises(InputError, match="is an encoder"):
        load_translator(tiny_bert, device="cpu")
    with pytest.raises(TokenizerError, match="do not belong together"):
        dataclasses.replace(model, tokenizer=untrained.tokenizer, model=untrained.model.__class__(untrained.family,
            dataclasses.replace(untrained.model.config, vocabulary_size=20, pad_id=1)))  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*did not end:kinfolk.api.translate.TranslationWarning")
def test_unknown_tokens_are_counted_and_reported(untrained: Translator) -> None:
    words = untrained.tokenizer
    unread = words.encode_source("salt ÿÿ ÿ").count(words.source_unknown_id)
    assert unread >= 2
    with pytest.warns(translate.TranslationWarning, match=f"{unread} source tokens"):
        untrained.translate(["salt ÿÿ ÿ", "salt"], max_tokens=6)
    stuck = copy.deepcopy(untrained)
    bias = torch.zeros(30)
    bias[words.unknown_id] = 50.0
    stuck.model.heads["next_token"].bias = torch.nn.Parameter(bias)
    with pytest.warns(translate.TranslationWarning, match="6 unknown tokens"):
        assert stuck.translate("salt", max_tokens=6) == ""


def test_a_model_without_attention_says_so(tmp_path: Path) -> None:
    from kinfolk.models.family import init_model
    from kinfolk.models.family import preset as preset_of

    sides = list(zip(*pairs(200), strict=True))
    tokenizer = train_pair_tokenizer("bpe", *sides, VOCABULARY)
    family, preset = preset_of("seq2seq-small")
    config = dataclasses.replace(preset.config, vocabulary_size=VOCABULARY, width=8, hidden=8, layers=1,
                                 pad_id=tokenizer.pad_id, start_id=0, end_id=2)  # fmt: skip
    translator = Translator(init_model(family, config).eval(), tokenizer)
    with pytest.raises(MissingHeadError, match="attention"):
        translator.align("salt", "sel")
    with pytest.raises(MissingHeadError, match="attention"):
        translator.translate_settings(copy_unknown=True)
