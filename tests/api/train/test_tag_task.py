"""Tagging as a task: labels, weights, first pieces of words, windows."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from kinfolk.data.examples import Sentence
from kinfolk.demo import passages
from kinfolk.errors import InputError
from kinfolk.nn.packed import Layout
from kinfolk.objectives.supervised import IGNORED
from kinfolk.tasks.tag import TagDataset, TagTask
from kinfolk.tasks.task import TaskOptions
from kinfolk.text.encoding import word_starts
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.train import train_tokenizer
from kinfolk.text.windows import Windows
from small_tags import LABELS, random_tagger, sentences

KINDS = {"wordpiece": 320, "byte_bpe": 400, "unigram": 150}
ODD = ["café", "Müller", "👩\u200d👧", "U.S.", "été", "don't", "3,251", "中文", "🇩🇪", "Fluß", "\x10ab", "unfathomably"]
SILENT = ("\x01", "", "\x02\x03")  # WordPiece makes nothing of them


@cache
def small(kind: str) -> Tokenizer:
    return train_tokenizer(kind, [*passages(), *ODD] * 2, KINDS[kind])


def sentence(tags: str, where: str = "file:1") -> Sentence:
    return Sentence(tuple(f"word{index}" for index in range(len(tags.split()))), tuple(tags.split()), None, where)


def untagged(task: TagTask, tokenizer: Tokenizer, texts: list[list[str]]) -> TagDataset:
    return task.dataset(tokenizer, [Sentence(tuple(words), None, None, "") for words in texts], 60)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "stride"), [(400, None), (12, None), (12, 0), (9, 5)])
def test_every_word_is_read_once_at_the_first_token_that_starts_in_it(kind: str, size: int, stride: int | None) -> None:
    tokenizer, words = small(kind), ODD * 3
    starts = word_starts(words)
    whole = tokenizer.encode(" ".join(words), add_special_tokens=False)
    first = [
        next(row for row, (at, _) in enumerate(whole.offsets) if start <= at < start + len(word))
        for start, word in zip(starts, words, strict=True)
    ]
    tags = tuple(f"tag{index}" for index in range(len(words)))
    dataset = TagTask(tags, Windows(size, stride)).dataset(tokenizer, [Sentence(tuple(words), tags, None, "")], size)
    assert [word for own in dataset.words for word in own] == list(range(len(words)))
    spoken = [item.ids[row] for item, rows in zip(dataset.samples, dataset.rows, strict=True) for row in rows]
    assert spoken == [whole.ids[row] for row in first]
    targets = [number for item in dataset.samples for number in item.target if number != IGNORED]
    assert targets == list(range(len(words)))


def test_a_word_is_read_where_it_is_most_central() -> None:
    result = untagged(TagTask(LABELS, Windows(12, 4)), small("wordpiece"), [["a"] * 30])
    # Ten words in a window, four of them in the next one too: windows begin at 0, 6, 12, 18 and 24.
    assert [own[0] for own in result.words] == [0, 8, 14, 20, 26]


def test_words_without_a_piece_have_no_target_and_are_outside(tiny_bert: Path) -> None:
    encoder, words = random_tagger(tiny_bert), ("water", *SILENT, "stone")
    tagged = [Sentence(tuple(own), (LABELS[1],) * len(own), None, "") for own in (words, SILENT, ())]
    result = TagTask(LABELS).dataset(encoder.tokenizer, tagged, 40)
    assert result.words == [[0, 4]]
    assert [number for number in result.samples[0].target if number != IGNORED] == [1, 1]
    task = TagTask(LABELS)
    guesses = task.tags(encoder.model, result)
    assert guesses[0].tags[1:4] == ["O"] * 3
    assert guesses[0].probabilities[1:4] == [0.0] * 3
    assert [len(result.tags) for result in guesses] == [5, 3, 0]
    tables = task.probabilities(encoder.model, result)
    assert [table.shape for table in tables] == [(5, 5), (3, 5), (0, 5)]
    assert [tables[1][0].tolist(), tables[0][2].tolist()] == [[1, 0, 0, 0, 0]] * 2
    plain = TagTask(("A", "B", "C", "D", "E")).probabilities(encoder.model, result)
    assert plain[1].tolist() == [[0.2] * 5] * 3


def test_paths_run_through_all_windows_of_a_sentence(tiny_bert: Path) -> None:
    encoder = random_tagger(tiny_bert, "tag_crf")
    task = TagTask(LABELS, Windows(16, 4), crf=True)
    words = [["river", "stone", "salt"] * 9, ["water"]]
    actual = untagged(task, encoder.tokenizer, words)
    assert len(actual.samples) > 3
    scores = task.word_scores(encoder.model, actual)
    crf: Any = encoder.model.heads["tag_crf"].crf
    for own, guessed in zip(scores, task.tags(encoder.model, actual), strict=True):
        with torch.no_grad():
            emissions, layout = torch.from_numpy(own.scores).double(), Layout((len(own.words),))
            path, chances = crf.decode(emissions, layout), crf.marginals(emissions, layout)
        assert guessed.tags == [LABELS[number] for number in path.tolist()]
        expected = chances.gather(1, path.unsqueeze(1)).squeeze(1).tolist()
        assert guessed.probabilities == pytest.approx(expected)


def test_labels_are_the_tags_that_occur_outside_first() -> None:
    task = TagTask.of("tag", [sentence("B-PER I-PER O"), sentence("O B-LOC")], TaskOptions())
    assert (task.labels, task.head, task.kind) == (("O", "B-LOC", "B-PER", "I-PER"), "tag", "tag")
    assert TagTask.of("tag", [sentence("NN VB")], TaskOptions(crf=True)).head == "tag_crf"


def test_class_weights_change_the_loss_as_by_hand(tiny_bert: Path) -> None:
    encoder, examples = random_tagger(tiny_bert), sentences(6)
    balanced = TagTask.of("tag", examples, TaskOptions("balanced"))
    tags = [tag for example in examples for tag in example.tags or ()]
    assert balanced.weights == tuple(len(tags) / (len(LABELS) * tags.count(label)) for label in LABELS)
    named = TagTask.of("tag", examples, TaskOptions({"B-TUNE": 5.0}))
    assert named.weights == (1.0, 1.0, 5.0, 1.0, 1.0)
    for task in (balanced, named):
        dataset = task.dataset(encoder.tokenizer, examples, encoder.context)
        objective = task.objective(encoder.model)
        batch = objective.prepare(dataset.samples, torch.device("cpu"))
        with torch.no_grad():
            loss = float(objective.loss(encoder.model, batch))
            logs = objective.scores(encoder.model, batch).log_softmax(1)
        weights = dict(enumerate(task.weights or ()))
        rows = [(row, tag) for row, tag in enumerate(batch.targets.tolist()) if tag != IGNORED]
        assert loss == pytest.approx(-math.fsum(weights[tag] * float(logs[row, tag]) for row, tag in rows), rel=1e-4)
        assert batch.counts["tag"] == pytest.approx(math.fsum(weights[tag] for _, tag in rows))


@pytest.mark.parametrize(
    ("examples", "options", "reason"),
    [
        ([sentence("O O")], TaskOptions(), "only one tag"),
        ([sentence("O B-X")], TaskOptions("balanced", crf=True), "class_weights .*crf"),
        ([sentence("O B-X")], TaskOptions({"B-Y": 2.0}), "B-Y"),
        ([Sentence(("a", "b"), ("O",), None, "file:3")], TaskOptions(), "file:3: 2 words, 1 tags"),
        ([Sentence(("a", "b"), None, None, "file:4")], TaskOptions(), "file:4: 2 words, 0 tags"),
    ],
)
def test_what_cannot_be_learned_is_one_line(examples: list[Sentence], options: TaskOptions, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        TagTask.of("tag", examples, options)


def test_words_that_leave_nothing_to_read_are_refused(tiny_bert: Path) -> None:
    silent = Sentence(SILENT, ("O", "B-X", "O"), None, "file:7")
    with pytest.raises(InputError, match=r"^file:7: "):
        TagTask(LABELS).dataset(random_tagger(tiny_bert).tokenizer, [silent], 40)


def test_the_task_is_read_back_from_what_was_saved(tiny_bert: Path) -> None:
    task, model = TagTask(LABELS, Windows(32, 8), crf=True), random_tagger(tiny_bert, "tag_crf")
    assert TagTask.saved(replace(model, hf_config=task.to_hf())) == task
    nameless = replace(random_tagger(tiny_bert, labels=LABELS[:2]), hf_config={})
    assert TagTask.saved(nameless).labels == ("LABEL_0", "LABEL_1")
