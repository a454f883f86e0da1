"""Language models of one's own: learned from lines, going on to the same bytes, measured, writing, carried on."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import kinfolk
from kinfolk.api.experiment import Callbacks, Summary
from kinfolk.api.generate import UnknownWarning, token_stream
from kinfolk.errors import ConfigError, DataError, FolderError, InputError, KinfolkError
from kinfolk.nn.packed import pack

CHAIN = ("red", "blue", "green", "gold", "grey")  # after each colour comes the next one


def lines(count: int = 300) -> list[str]:
    return [" ".join(CHAIN[(index + position) % 5] for position in range(3 + index % 4)) for index in range(count)]


def train(output: Path, **changes: Any) -> Any:
    usual: dict[str, Any] = {
        "kind": "lstm", "corpus": lines(), "dev": lines(20), "vocabulary_size": 8, "vocabulary_kind": "words",
        "changes": {"width": 32, "layers": 1}, "batch_size": 8, "bptt_length": 10, "steps": 60, "learning_rate": 2e-2,
        "evaluations": 3,
        "device": "cpu",
    }  # fmt: skip
    return kinfolk.pretrain(output=output, **usual | changes)


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("colours") / "run"
    train(folder)
    return folder


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


def test_it_learns_what_follows_and_says_so(colours: Path) -> None:
    log = [json.loads(line) for line in (colours / "log.jsonl").read_text().splitlines()]
    assert log[-1]["metrics"]["perplexity"] < math.exp(log[0]["loss"]) / 2
    model = kinfolk.load(colours, device="cpu")
    assert model.perplexity("red blue green gold") < 3 < 20 < model.perplexity("red green red green red green")
    report = (colours / "report.md").read_text()
    perplexities = {entry["step"]: entry["metrics"]["perplexity"] for entry in log if "metrics" in entry}
    assert f"| kept | step {min(perplexities, key=perplexities.__getitem__)} |" in report
    assert "| batch | 8 samples of 10 tokens |" in report
    assert "batch size" not in report
    assert "| perplexity | " in report
    assert "## Samples" in report
    assert (colours / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_perplexity_is_the_product_of_what_each_token_had_to_expect(colours: Path) -> None:
    model, total, texts = kinfolk.load(colours, device="cpu"), 0.0, ["gold grey", "", "red"]
    end = model.tokenizer.eos_id
    ids = [
        end,
        *(model.tokenizer.token_to_id(word) for word in ("gold", "grey")),
        end,
        model.tokenizer.token_to_id("red"),
        end,
    ]
    writer = model.model
    state = writer.start(pack([[]]), 1)
    for before, after in pairwise(ids):
        scores, state = writer.step(torch.tensor([before]), state)
        total -= float(scores.log_softmax(-1)[0, after])
    assert model.perplexity(texts) == pytest.approx(math.exp(total / 5), rel=1e-5)


def test_it_writes_on_alone_as_in_company(colours: Path) -> None:
    model = kinfolk.load(colours, device="cpu")
    assert model.generate("green gold grey", max_tokens=2, beam=1) == "green gold grey red blue"
    prompts = ["red", "", "gold grey red"]
    drawn = model.generate(prompts, max_tokens=4, seed=3)
    assert [text.startswith(prompt) for text, prompt in zip(drawn, prompts, strict=True)] == [True] * 3
    assert model.generate("red", max_tokens=4, seed=3) == drawn[0]
    assert drawn == model.generate(prompts, max_tokens=4, seed=3)
    for drawing in ({"temperature": 0}, {"temperature": 1.0}, {"top_k": 3}, {"top_p": 0.5}, {"seed": 3}):
        with pytest.raises(InputError, match="beam search"):
            model.generate("red", beam=3, **drawing)


def test_a_length_penalty_favours_longer_texts(colours: Path) -> None:
    model = kinfolk.load(colours, device="cpu")
    found = {alpha: model.generate("red", 12, beam=4, length_penalty=alpha) for alpha in (-3.0, 0.6, 8.0)}
    assert len(found[-3.0]) < len(found[8.0])
    assert model.generate("red", 12, beam=4) == found[0.6]
    for options in ({}, {"beam": 1}, {"temperature": 0}):
        with pytest.raises(InputError, match="length_penalty"):
            model.generate("red", length_penalty=0.6, **options)
    with pytest.raises(InputError, match="length_penalty=11"):
        model.generate("red", beam=2, length_penalty=11)


def test_a_prompt_is_read_as_training_read_and_what_follows_is_not_stuck_to_it(colours: Path) -> None:
    model = kinfolk.load(colours, device="cpu")
    end, unknown = model.tokenizer.eos_id, model.tokenizer.unk_id
    stream = token_stream(model.tokenizer, ["red </s> blue"], end)
    assert stream.tolist().count(end) == 2
    assert unknown in stream
    for prompt in ("purple", "red purple"):
        assert model.generate(prompt, max_tokens=3, beam=2).startswith(f"{prompt} ")
    assert model.generate("red blue", max_tokens=2, beam=2) == "red blue green gold"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompts": 3}, "found an int"),
        ({"prompts": ["red", 3]}, "text 1 .*int"),
        ({"max_tokens": 10**12}, "max_tokens=1000000000000"),
        ({"beam": 10**11}, "beam=100000000000"),
        ({"temperature": "1"}, "temperature=1"),
    ],
    ids=str,
)
def test_wrong_wishes_are_reported(options: dict[str, Any], message: str, colours: Path) -> None:
    with pytest.raises(InputError, match=message):
        kinfolk.load(colours, device="cpu").generate(**options)


def test_perplexity_wants_texts(colours: Path) -> None:
    with pytest.raises(InputError, match=r"text 0 .*int"):
        kinfolk.load(colours, device="cpu").perplexity([3])


def test_a_run_that_was_stopped_goes_on_to_the_same_bytes_with_what_it_remembered(tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(seed: int, progress: Any) -> None:
        if progress.step == 5:
            raise StopError

    train(tmp_path / "whole", steps=8, evaluations=4)
    with pytest.raises(StopError):
        train(tmp_path / "run", steps=8, evaluations=4, callbacks=Callbacks(step=stop))
    assert (tmp_path / "run" / "step-4" / "carried.safetensors").exists()
    for changes in ({"batch_size": 9}, {"corpus": lines(299)}, {"learning_rate": 1e-3}):
        with pytest.raises(FolderError, match="differs"):
            train(tmp_path / "run", **{"steps": 8, "evaluations": 4} | changes)
    train(tmp_path / "run", steps=8, evaluations=4)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    with pytest.raises(FolderError, match="already holds"):
        train(tmp_path / "run", steps=8, evaluations=4)


@pytest.mark.parametrize("kind", ["rnn", "gru", "gru_reset_before"])
def test_every_kind_starts_a_classifier_and_a_tagger(kind: str, tmp_path: Path) -> None:
    messages: list[Summary] = []
    train(tmp_path / "lm", kind=kind, steps=2, callbacks=Callbacks(before=lambda summary, _: messages.append(summary)))
    assert str(messages[0]).startswith("documents   300\ntokens      1,350 to train on, 90 for dev")
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "".join(f"{line}\t{line.split()[-1]}\n" for line in lines(60)))
    trained = kinfolk.finetune(
        tmp_path / "lm", rows, tmp_path / "ends", epochs=20, learning_rate=1e-2, device="cpu", report=False
    )
    assert trained.metrics["accuracy"] > 0.8
    assert kinfolk.load(tmp_path / "ends", device="cpu").classify("red blue green").label == "green"
    tags = tmp_path / "tags.txt"
    tags.write_text(
        "\n".join(f"{word} {word[0]}" if word else "" for line in lines(40) for word in [*line.split(), ""])
    )
    kinfolk.finetune(
        tmp_path / "lm", tags, tmp_path / "tagger", task="tag", epochs=15, learning_rate=1e-2, device="cpu"
    )
    assert kinfolk.load(tmp_path / "tagger", device="cpu").tag("blue gold").words[1].tag == "g"


def test_an_encoder_of_any_kind_gives_vectors_of_its_layers(colours: Path) -> None:
    model = kinfolk.load(colours, device="cpu")
    assert model.embed(["red blue", "gold"], layers=[0, 1], pool="mean").shape == (2, 64)
    assert "next_token" in model.model.heads


def test_a_stream_has_an_end_after_each_line_and_obeys_no_spelled_out_token(colours: Path) -> None:
    words = kinfolk.load(colours, device="cpu").tokenizer
    end, unknown = words.eos_id, words.unk_id
    result = token_stream(words, ["red </s> blue", " ", "mauve"], int(end or 0))
    red, blue = words.token_to_id("red"), words.token_to_id("blue")
    assert result.tolist() == [end, red, unknown, blue, end, unknown, end]
    assert result.dtype == np.int32


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"kind": "ltsm"}, InputError, 'did you mean "lstm"'),
        ({"size": "huge"}, InputError, "huge.*small, medium, large"),
        ({"changes": {"widht": 3}}, ConfigError, 'did you mean "width"'),
        ({"changes": {"end_id": 3}}, InputError, "end_id"),
        ({"changes": {"bidirectional": True}}, ConfigError, "both ends"),
        ({"vocabulary_size": 5000}, InputError, "vocabulary_size=5000"),
        ({"corpus": [" ", ""]}, DataError, "no text"),
        ({"corpus": "nowhere.txt"}, KinfolkError, "nowhere.txt"),
        ({"batch_size": 10**6}, InputError, "batch_size"),
        ({"epoch": 3}, InputError, 'did you mean "epochs"'),
    ],
)
def test_what_cannot_be_done_is_reported_at_once(changes: Any, error: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        train(tmp_path / "run", **changes)
    assert not (tmp_path / "run" / "model").exists()


def test_a_model_that_guesses_no_next_token_says_so(tiny_bert: Path) -> None:
    with pytest.raises(InputError, match=r"tiny-bert.*language model"):
        kinfolk.load_language_model(tiny_bert, device="cpu")


def test_a_batch_is_its_streams_and_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="batch_tokens"):
        train(tmp_path / "run", batch_tokens=7)


def test_without_a_size_the_vocabulary_is_what_the_corpus_supports(tmp_path: Path) -> None:
    trained = train(tmp_path / "run", vocabulary_size=None, vocabulary_kind="bpe", steps=1)
    size = kinfolk.load(tmp_path / "run", device="cpu").tokenizer.vocabulary_size
    assert f"{size} tokens" in str(trained.data)
    assert size < 100
    with pytest.raises(InputError, match=f"{size} tokens, .*vocabulary_size=8000"):
        train(tmp_path / "asked", vocabulary_size=8000, vocabulary_kind="bpe", steps=1)


@pytest.mark.parametrize("refused", [{"fsdp": True}, {"precision": "bf16"}], ids=str)
def test_what_the_machine_cannot_do_is_refused_before_a_folder_is_made(
    refused: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False)
    with pytest.raises(InputError):
        train(tmp_path / "run", **refused)
    assert not (tmp_path / "run").exists()


def test_a_text_of_unknown_words_is_reported(colours: Path) -> None:
    model = kinfolk.load(colours, device="cpu")
    with pytest.warns(UnknownWarning, match=r"50\.0%"):
        model.perplexity("pink pink pink blue blue")


def test_a_blank_at_the_end_of_a_prompt_is_not_doubled(colours: Path) -> None:
    model = kinfolk.load(colours, device="cpu")
    plain = model.generate("red blue", max_tokens=3, beam=1)
    assert plain.startswith("red blue g")
    assert model.generate("red blue ", max_tokens=3, beam=1) == plain


def test_a_run_that_stops_before_its_average_says_so(tmp_path: Path) -> None:
    trained = train(tmp_path / "run", learning_rate=1e-12, evaluations=20, patience=1, weight_averaging=0.3)
    assert [note for note in trained.notes if "before the part of the run whose weights are averaged" in note]
