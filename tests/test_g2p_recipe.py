"""Letters to phonemes (recipes/g2p.py): the published GRUs in our Seq2Seq write what the package itself writes."""

from __future__ import annotations

import importlib
import importlib.util
import io
import random
import re
import runpy
import sys
import types
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch

from kinfolk.api.loaded import load_translator
from kinfolk.api.translate import TranslationWarning
from kinfolk.errors import FolderError, KinfolkError, WeightsError
from kinfolk.generation.config import DecodingConstraints, Request
from kinfolk.generation.search import greedy
from kinfolk.nn.packed import pack
from surroundings import Command, shared_data

RECIPE = Path(__file__).resolve().parents[1] / "recipes" / "g2p.py"
WORDS = ["transformer", "attention", "kinfolk", "a", "zzzz", "it's", "naïve"]
SPOKEN = {"transformer": "T R AE0 N S F AO1 R M ER0", "Attention": "AH0 T EH1 N SH AH0 N", "": "", " ": ""}
LONG = "pneumonoultramicroscopicsilicovolcanoconiosis"


@pytest.fixture(autouse=True)
def g2p(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(RECIPE.parent))
    return importlib.import_module("g2p")


@pytest.fixture
def weights(g2p: Any) -> Path:
    try:
        metadata.distribution(g2p.PACKAGE)
    except metadata.PackageNotFoundError:
        pytest.skip(f"no letters-to-phonemes model: pip install --no-deps {g2p.PACKAGE}")
    path: Path = g2p.package_weights()
    return path


def predictor(weights: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package's own object; what it would fetch from the network (dictionaries, a tagger) is left empty."""
    empty = {name: types.ModuleType(name) for name in ("nltk", "nltk.corpus", "nltk.tokenize", "inflect")}
    stands_for: dict[str, Any] = {
        "pos_tag": None, "cmudict": types.SimpleNamespace(dict=dict), "engine": lambda: None,
        "TweetTokenizer": lambda: types.SimpleNamespace(tokenize=None),
        "data": types.SimpleNamespace(find=lambda name: None),
    }  # fmt: skip
    for name, module in empty.items():
        vars(module).update(stands_for)
        monkeypatch.setitem(sys.modules, name, module)
    made = importlib.util.spec_from_file_location(
        "g2p_en", weights.with_name("__init__.py"), submodule_search_locations=[str(weights.parent)]
    )
    assert made is not None
    assert made.loader is not None
    package = importlib.util.module_from_spec(made)
    monkeypatch.setitem(sys.modules, "g2p_en", package)
    made.loader.exec_module(package)
    theirs = package.G2p()
    monkeypatch.delitem(sys.modules, "g2p_en.g2p")
    monkeypatch.delitem(sys.modules, "g2p_en.expand")
    return theirs


def spoken(model: Any, tokenizer: Any, words: list[str]) -> list[str]:
    source = pack([tokenizer.encode_source(word) for word in words])
    request = Request(source, tokenizer.begin_id, [20] * len(words), DecodingConstraints(tokenizer.end_id))
    return [tokenizer.decode(text.ids) for text in greedy(model, request)]


def test_known_words_are_spoken_as_published(g2p: Any, weights: Path) -> None:
    model, tokenizer = g2p.read_g2p(weights)
    assert spoken(model, tokenizer, WORDS[:2]) == ["T R AE0 N S F AO1 R M ER0", "AH0 T EH1 N SH AH0 N"]
    assert spoken(model, tokenizer, ["ÀTTENTION"]) == spoken(model, tokenizer, ["attention"])


@pytest.mark.parametrize("count", [100, pytest.param(2_000, marks=pytest.mark.slow)])
def test_words_are_spoken_as_by_the_package_s_own_routine(
    g2p: Any, weights: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shared_data("wikipedia/plain.txt").read_text(encoding="utf-8")[:3_000_000]
    known = sorted(set(re.findall(r"\b[a-z]{2,20}\b", text.lower())))
    words = [*WORDS[:5], *random.Random(0).sample(known, count - 5)]
    theirs, (model, tokenizer) = predictor(weights, monkeypatch), g2p.read_g2p(weights)
    assert spoken(model, tokenizer, words) == [" ".join(theirs.predict(word)) for word in words]


def test_the_scores_of_the_first_phoneme_are_the_package_s(
    g2p: Any, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, (model, tokenizer) = predictor(weights, monkeypatch), g2p.read_g2p(weights)
    for word in WORDS[:5]:
        steps = (len(word) + 1, theirs.enc_w_ih, theirs.enc_w_hh, theirs.enc_b_ih, theirs.enc_b_hh)
        last = theirs.gru(theirs.encode(word), *steps)[:, -1]
        gates = (theirs.dec_w_ih, theirs.dec_w_hh, theirs.dec_b_ih, theirs.dec_b_hh)
        expected = theirs.grucell(theirs.dec_emb[[2]], last, *gates) @ theirs.fc_w.T + theirs.fc_b
        scores, _ = model.step(torch.tensor([2]), model.start(pack([tokenizer.encode_source(word)]), 1))
        np.testing.assert_allclose(scores.numpy(), expected, rtol=0, atol=1e-4)


@pytest.mark.usefixtures("weights")
def test_the_folder_speaks_as_the_package_and_stops_after_twenty(
    g2p: Any, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "g2p"
    monkeypatch.setattr(sys, "argv", [str(RECIPE), str(folder)])
    runpy.run_path(str(RECIPE), run_name="__main__")
    assert capsys.readouterr().out == f"wrote {folder}\n"
    for model in (g2p.translator(), load_translator(folder, device="cpu")):
        assert model.translate(list(SPOKEN)) == list(SPOKEN.values())
        settings = model.translate_settings()
        assert (settings.search.beams, settings.max_tokens) == (1, g2p.LONGEST)
        with pytest.warns(TranslationWarning):
            assert len(model.translate(LONG).split()) == g2p.LONGEST
        assert len(model.translate(LONG, max_tokens=40).split()) > g2p.LONGEST
    ended = command("translate", "--model", folder, "transformer", "--device", "cpu")
    assert (ended.code, ended.out, ended.err) == (0, f"{SPOKEN['transformer']}\n", "")
    assert "834,890" in command("info", folder).out


def test_an_absent_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> NoReturn:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("kinfolk.checkpoints.find.metadata.distribution", absent)
    monkeypatch.setattr(sys, "argv", [str(RECIPE), str(tmp_path / "g2p")])
    with pytest.raises(SystemExit, match="pip install --no-deps g2p-en"):
        runpy.run_path(str(RECIPE), run_name="__main__")


def test_letters_and_phonemes_have_the_published_ids(g2p: Any) -> None:
    tokenizer = g2p.g2p_tokenizer()
    assert (tokenizer.source_size, tokenizer.target_size) == (29, 74)
    assert tokenizer.encode_source("ab'Z") == [3, 4, 1, 28, 2]
    assert tokenizer.encode_target("AA0 ER0 UW UW0 ZH") == [4, 29, 65, 66, 73, 3]
    assert tokenizer.decode([4, 29, 65, 66, 73]) == "AA0 ER0 UW UW0 ZH"
    assert tokenizer.encode_source("") == []


def small_arrays() -> dict[str, Any]:
    """A model of width 2 and hidden 3 under the published names."""
    shapes = {"emb": (29, 2), "w_ih": (9, 2), "w_hh": (9, 3), "b_ih": (9,), "b_hh": (9,)}
    arrays = {f"{side}_{name}": np.ones(shape, "<f4") for side in ("enc", "dec") for name, shape in shapes.items()}
    return arrays | {"dec_emb": np.ones((74, 2), "<f4"), "fc_w": np.ones((74, 3), "<f4"), "fc_b": np.ones(74, "<f4")}


def written(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("enc_emb", np.ones((28, 2), "<f4"), r"enc_emb .*\(28, 2\), .*\(29, 2\)"),
        ("fc_b", np.ones(74, "<i4"), "fc_b .*int32"),
        ("fc_b", np.full(74, np.nan, "<f4"), "fc_b .*NaN"),
        ("dec_w_hh", np.array([{}] * 9), ".npz"),
        ("more", np.ones(1, "<f4"), ": more"),
        ("enc_w_hh", np.ones((0, 5000), "<f4"), "2 and 5,000 "),
        ("enc_w_hh", np.float32(1), "2 and 0 "),
    ],
)
def test_an_array_that_does_not_fit_is_named(g2p: Any, tmp_path: Path, name: str, array: Any, message: str) -> None:
    path = written(tmp_path / "small.npz", small_arrays())
    model, _ = g2p.read_g2p(path)
    assert model.config.hidden == 3
    assert set(model.state_dict()) == set(g2p.KEYS)
    with pytest.raises(WeightsError, match=message):
        g2p.read_g2p(written(tmp_path / "other.npz", small_arrays() | {name: array}))


def test_a_header_that_promises_more_than_the_file_holds_is_refused(g2p: Any, tmp_path: Path) -> None:
    path, header = tmp_path / "small.npz", io.BytesIO()
    written(path, {name: array for name, array in small_arrays().items() if name != "fc_b"})
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**15,)})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("fc_b.npy", header.getvalue())
    with pytest.raises(WeightsError, match=r"not a whole \.npz file"):
        g2p.read_g2p(path)


def test_a_damaged_file_is_refused_in_one_line(g2p: Any, tmp_path: Path) -> None:
    whole = written(tmp_path / "small.npz", small_arrays()).read_bytes()
    rng, path, messages = random.Random(0), tmp_path / "damaged.npz", []
    for _ in range(150):
        damaged = bytearray(whole[: rng.randrange(1, len(whole))] if rng.random() < 0.3 else whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            g2p.read_g2p(path)
        except KinfolkError as error:
            messages.append(str(error))
    assert len(messages) > 100
    assert all("\n" not in message for message in messages)
    with pytest.raises(FolderError, match="no such file"):
        g2p.read_g2p(tmp_path / Path(g2p.WEIGHTS).name)
