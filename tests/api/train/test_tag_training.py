"""A tagger from tagged sentences: it learns, is stopped and goes on, and is read by transformers and by us."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch
import transformers

import kinfolk
from kinfolk.api.evaluate import UnseenWarning, evaluate
from kinfolk.api.experiment import Callbacks, Trained
from kinfolk.checkpoints.weights import open_safetensors
from kinfolk.data.examples import Sentence
from kinfolk.errors import StopSignalError
from kinfolk.tasks.tag import TagTask
from kinfolk.tasks.task import MAX_MISTAKES
from kinfolk.training.metrics import tagging
from small_tags import LABELS, random_tagger, sentences, train_tagger


def test_it_learns_and_says_where_it_errs(taggers: Trained) -> None:
    assert list(taggers.metrics) == ["f1", "precision", "recall", "accuracy"]
    assert taggers.metrics["f1"] > 0.9
    wrong = round((1 - taggers.metrics["accuracy"]) * sum(len(example.words) for example in sentences(40, seed=1)))
    assert len(taggers.result.mistakes) == min(wrong, MAX_MISTAKES)
    for mistake in taggers.result.mistakes:
        assert mistake.truth != mistake.guess
        assert mistake.location.startswith("made:")
        assert "[" in mistake.text


def test_transformers_reads_the_same_emissions_and_names(taggers: Trained) -> None:
    folder = taggers.folder / "model"
    theirs, report = transformers.AutoModelForTokenClassification.from_pretrained(folder, output_loading_info=True)
    crf = "tag_crf" in kinfolk.load(folder, device="cpu").model.heads
    names = {f"crf.{name}_bias" for name in ("start", "transition", "end")}
    assert set(report["unexpected_keys"]) == (names if crf else set())
    assert not report["missing_keys"]
    assert theirs.config.id2label == dict(enumerate(LABELS))
    ours = kinfolk.load(folder, device="cpu")
    task, words = TagTask.saved(ours), [["water", "quartz", "kettle"], ["violin"]]
    examples = [Sentence(tuple(own), None, None, "") for own in words]
    scores = task.word_scores(ours.model, task.dataset(ours.tokenizer, examples, ours.context))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for own, sentence in zip(scores, words, strict=True):
        encoded = tokenizer(sentence, is_split_into_words=True, return_tensors="pt")
        word_ids = encoded.word_ids()
        first = [word_ids.index(word) for word in range(len(sentence))]
        with torch.no_grad():
            expected = theirs.eval()(**encoded).logits[0, first]
        assert (torch.from_numpy(own.scores) - expected).abs().max() < 1e-5


@pytest.mark.parametrize("head", ["tag", "tag_crf"])
def test_saving_and_loading_gives_the_same_tagger(tiny_bert: Path, tmp_path: Path, head: str) -> None:
    before = random_tagger(tiny_bert, head)
    after = kinfolk.load(before.save(tmp_path / "model"), device="cpu")
    assert list(after.model.heads) == [head]
    states = before.model.state_dict(), after.model.state_dict()
    assert all(tensor.equal(states[1][name]) for name, tensor in states[0].items())
    text = "water and stone, a river"
    assert before.tag(text) == after.tag(text)


def test_a_stopped_run_goes_on_to_the_same_weights(tiny_bert: Path, tmp_path: Path) -> None:
    def stop(seed: int, progress: object) -> None:
        if progress.step == 5:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGTERM)

    options = {"count": 40, "epochs": 2.0, "crf": True, "window": 20, "stride": 4}
    train_tagger(tiny_bert, tmp_path / "whole", **options)
    with pytest.raises(StopSignalError):
        train_tagger(tiny_bert, tmp_path / "stopped", callbacks=Callbacks(step=stop), **options)
    train_tagger(tiny_bert, tmp_path / "stopped", **options)
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "stopped")]
    assert weights[0] == weights[1]
    result = kinfolk.load(tmp_path / "stopped", device="cpu")
    assert (TagTask.saved(result).windows.window, TagTask.saved(result).windows.stride) == (20, 4)
    stored = open_safetensors(tmp_path / "stopped" / "model" / "model.safetensors")
    assert stored.read("crf.transition_bias").abs().max() > 0


def test_weighted_tags_train_and_reload(tiny_bert: Path, tmp_path: Path) -> None:
    train_tagger(tiny_bert, tmp_path / "run", count=16, epochs=1.0, class_weights="balanced")
    assert TagTask.saved(kinfolk.load(tmp_path / "run", device="cpu")).labels == LABELS


def test_evaluation_reads_a_conll_file_tells_unseen_tags_and_counts_them_as_misses(
    taggers: Trained, tmp_path: Path
) -> None:
    model, file = kinfolk.load(taggers.folder, device="cpu"), tmp_path / "test.conll"
    examples = [*sentences(20, seed=7), Sentence(("water", "stone"), ("B-UNSEEN", "O"), None, "")]
    blocks = [zip(example.words, example.tags or (), strict=True) for example in examples]
    file.write_text("\n\n".join("\n".join(f"{word} {tag}" for word, tag in block) for block in blocks))
    with pytest.warns(UnseenWarning, match="B-UNSEEN"):
        evaluation = evaluate(model, file)
    guessed = [[word.tag for word in tagged.words] for tagged in model.tag([e.words for e in examples], words=True)]
    assert evaluation.examples == 21
    assert evaluation.metrics == tagging([example.tags or () for example in examples], guessed)
    assert evaluation.metrics["recall"] < 1
    assert "B-UNSEEN" in [mistake.truth for mistake in evaluation.mistakes]
