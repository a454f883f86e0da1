"""`kinfolk.load("g2p-en")`: the letters-to-phonemes model of a package as a translator that writes what it writes."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import NoReturn

import pytest

import kinfolk
from kinfolk.api.loaded import Translator, load_translator
from kinfolk.api.translate import TranslationWarning
from kinfolk.checkpoints.g2p import G2P, LONGEST
from kinfolk.errors import FolderError
from surroundings import Command

SPOKEN = {"transformer": "T R AE0 N S F AO1 R M ER0", "Attention": "AH0 T EH1 N SH AH0 N", "": "", " ": ""}
LONG = "pneumonoultramicroscopicsilicovolcanoconiosis"


@pytest.fixture(scope="module")
def model() -> Translator:
    try:
        metadata.distribution(G2P.package)
    except metadata.PackageNotFoundError:
        pytest.skip(f"no letters-to-phonemes model: pip install --no-deps {G2P.package}")
    return load_translator("g2p-en", device="cpu")


def test_words_become_phonemes_with_blanks_between_them(model: Translator) -> None:
    assert model.translate(list(SPOKEN)) == list(SPOKEN.values())
    assert (model.name, model.family.title) == ("g2p-en", "Seq2Seq")


def test_it_is_greedy_and_stops_after_twenty_wherever_it_goes(model: Translator, tmp_path: Path) -> None:
    saved = load_translator(model.save(tmp_path / "copy"), device="cpu")
    for result in (model, model.to("cpu"), saved):
        settings = result.translate_settings()
        assert (settings.search.beams, settings.max_length) == (1, LONGEST)
        with pytest.warns(TranslationWarning, match="1 translations"):
            assert len(str(result.translate(LONG)).split()) == LONGEST
    assert len(str(model.translate(LONG, max_length=40)).split()) > LONGEST


@pytest.mark.usefixtures("model")
def test_the_command_speaks_too(command: Command) -> None:
    ended = command("translate", "--model", "g2p-en", "transformer", "--device", "cpu")
    assert (ended.code, ended.out, ended.err) == (0, f"{SPOKEN['transformer']}\n", "")
    info = command("info", "g2p-en")
    assert (info.code, "834,890" in info.out) == (0, True)
    assert command("embed", "--model", "g2p-en", "--input", "x", "--output", "y").code == 2


def test_a_folder_of_that_name_is_a_folder(small_translator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g2p-en").symlink_to(small_translator)
    assert kinfolk.load("g2p-en", device="cpu").family.title == "Attention Seq2Seq"


def test_an_absent_package_is_named_with_the_command_that_installs_it(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> NoReturn:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("kinfolk.checkpoints.find.metadata.distribution", absent)
    with pytest.raises(FolderError, match="pip install --no-deps g2p-en"):
        kinfolk.load("g2p-en")
    ended = command("translate", "--model", "g2p-en", "transformer")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
