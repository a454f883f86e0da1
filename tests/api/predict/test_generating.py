"""Generating with a model that has a context: ragged prompts, windows, pieces as they come, and the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import kinfolk
from kinfolk.api.loaded import LanguageModel
from kinfolk.demo import sentences
from kinfolk.errors import InputError
from kinfolk.nn.packed import pack
from kinfolk.text.train import train_tokenizer
from support.tiny import randomise

PROMPTS = ["The winter", "", "A long dark evening by the sea, and", "Snow"]
END = "<|endoftext|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random GPT-2, written by the reference library, with a byte-level vocabulary."""
    path = tmp_path_factory.mktemp("gpt2")
    roles = dict.fromkeys(("unk", "bos", "eos"), END)
    tokenizer = train_tokenizer("byte_bpe", sentences()[0], 300, special_tokens=roles)
    tokenizer.save(path)
    config = transformers.GPT2Config(
        vocab_size=300, n_embd=32, n_layer=2, n_head=4, n_positions=48, eos_token_id=0, bos_token_id=0
    )
    randomise(transformers.GPT2LMHeadModel(config), 3).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return kinfolk.load_language_model(folder, device="cpu")


@pytest.mark.parametrize("options", [{"temperature": 0}, {"seed": 5, "top_k": 20}, {"beam": 3}], ids=str)
def test_a_batch_of_ragged_prompts_equals_one_by_one(model: LanguageModel, options: dict[str, float]) -> None:
    together = model.generate(PROMPTS, max_tokens=12, **options)  # type: ignore[arg-type]
    assert len(set(together)) == len(PROMPTS)
    alone = [model.generate(prompt, max_tokens=12, **options) for prompt in PROMPTS]  # type: ignore[arg-type]
    assert together == alone
    assert all(text.startswith(prompt) for text, prompt in zip(together, PROMPTS, strict=True))


def test_what_is_drawn_hangs_on_the_prompt_not_on_its_place(model: LanguageModel) -> None:
    five = model.generate(["Snow"] * 5, max_tokens=12, seed=3)
    assert len(set(five)) == 5
    assert model.generate(["A", "Snow", "", "Snow"], max_tokens=12, seed=3)[1::2] == five[:2]
    assert model.generate(["A"] * 70 + ["Snow"], max_tokens=2, seed=3)[-1] == model.generate("Snow", 2, seed=3)
    assert model.generate(["Snow", "A"], 90, seed=3, slide=True)[0] == model.generate("Snow", 90, seed=3, slide=True)


def test_greedy_texts_are_those_of_the_reference(model: LanguageModel, folder: Path) -> None:
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for prompt in PROMPTS:
        ids = tokenizer(prompt or END, return_tensors="pt").input_ids
        new = theirs.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)[0, ids.shape[1] :]
        expected = prompt + tokenizer.decode(new, skip_special_tokens=True)
        assert model.generate(prompt, max_tokens=12, temperature=0) == expected


@pytest.mark.parametrize(
    "options",
    [{"temperature": 0, "max_tokens": 30}, {"seed": 5, "max_tokens": 30}, {"seed": 2, "max_tokens": 90, "slide": True}],
    ids=str,
)
def test_the_pieces_of_a_stream_make_up_the_text(model: LanguageModel, options: dict[str, float]) -> None:
    for prompt in PROMPTS:
        pieces = list(model.stream(prompt, **options))  # type: ignore[arg-type]
        assert pieces[0] == prompt
        assert len(pieces) > 2
        assert "".join(pieces) == model.generate(prompt, **options)  # type: ignore[arg-type]


def test_a_text_beyond_the_context_slides_only_when_asked(model: LanguageModel) -> None:
    long = "The winter evening is long and dark by the sea. " * 8
    for prompt, tokens in ((long, 1), ("Snow", 60)):
        with pytest.raises(InputError, match="context of 48"):
            model.generate(prompt, max_tokens=tokens)
        with pytest.raises(InputError, match="slide"):
            model.generate(prompt, max_tokens=tokens, beam=2, slide=True)
    texts = model.generate([long, "Snow", "A"], max_tokens=60, temperature=0, slide=True)
    assert texts == [model.generate(prompt, 60, temperature=0, slide=True) for prompt in (long, "Snow", "A")]
    # the definition: whenever the context is full, its last half is read anew
    ids = model.tokenizer.encode("Snow", add_special_tokens=False).ids
    window = list(ids)
    for _ in range(60):
        window = window if len(window) <= 48 else window[-24:]
        with torch.inference_mode():
            scores = model.model.vocabulary_scores(model.model(pack([window])))[-1]
        token = int(scores.argmax())
        if token == 0:
            break
        window.append(token)
        ids.append(token)
    assert texts[1] == model.tokenizer.decode(ids, unknown="\ufffd")


def test_without_a_number_of_tokens_as_many_come_as_fit(model: LanguageModel) -> None:
    prompts = ["Snow", "The winter evening is long"]
    room = [48 - len(model.tokenizer.encode(prompt)) + 1 for prompt in prompts]
    assert max(room) < 50
    named = [model.generate(prompt, tokens, seed=1) for prompt, tokens in zip(prompts, room, strict=True)]
    assert model.generate(prompts, seed=1) == named
    assert "".join(model.stream("Snow", seed=1)) == named[0]
    assert model.generate("Snow", seed=1, slide=True) == model.generate("Snow", 50, seed=1, slide=True)
    with pytest.raises(InputError, match="context of 48"):
        model.generate("The winter evening is long and dark by the sea. " * 8)


def test_an_encoder_without_the_head_does_not_generate(folder: Path, tmp_path: Path) -> None:
    transformers.GPT2Model.from_pretrained(folder).save_pretrained(tmp_path)
    kinfolk.load(folder).tokenizer.save(tmp_path)
    encoder = kinfolk.load_encoder(tmp_path)
    assert encoder.embed("Snow").shape == (32,)
    with pytest.raises(InputError, match="language model"):
        kinfolk.load_language_model(tmp_path)


def test_an_empty_text_has_the_vector_of_the_end(model: LanguageModel, folder: Path) -> None:
    texts = ["Snow", "", "The winter"]
    found = model.embed(texts)
    np.testing.assert_allclose(found, [model.embed(text) for text in texts], rtol=0, atol=1e-5)
    with torch.no_grad():
        end = transformers.GPT2Model.from_pretrained(folder)(torch.tensor([[0]])).last_hidden_state[0, 0]
    np.testing.assert_allclose(found[1], end, rtol=0, atol=2e-5)
    tokens = model.embed("", pool="none")
    assert (tokens.tokens, tokens.offsets, tokens.words, tokens.sequences) == ([END], [(0, 0)], [None], [None])


def test_the_last_token_stands_for_a_text(model: LanguageModel) -> None:
    texts = ["Snow", "", "The winter evening"]
    rows = model.embed(texts, pool="none")
    np.testing.assert_allclose(model.embed(texts, pool="last"), [row.vectors[-1] for row in rows], rtol=0, atol=1e-5)
