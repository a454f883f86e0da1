"""The held-out part is seeded, keeps the shares of classes and shares no text with the rest."""

from __future__ import annotations

from collections import Counter

import pytest

from kinfolk.data.examples import Choice, Example, Question, Sentence, fingerprint, stratified_split
from kinfolk.data.tables import read_examples, read_squad
from kinfolk.errors import DataError, InputError
from surroundings import shared_data


def examples(count: int, classes: int = 2) -> list[Example]:
    return [Example(f"text {index}", None, str(index % classes), f"a:{index}") for index in range(count)]


def test_nothing_is_lost_and_file_order_is_kept() -> None:
    every = examples(200)
    train, dev = stratified_split(every)
    assert sorted(train + dev, key=every.index) == every
    assert [train, dev] == [sorted(part, key=every.index) for part in (train, dev)]
    assert len(dev) in (20, 21)


def test_the_seed_decides() -> None:
    every = examples(200)
    assert stratified_split(every, seed=1) == stratified_split(every, seed=1)
    assert stratified_split(every, seed=1) != stratified_split(every, seed=2)


@pytest.mark.parametrize("seed", range(5))
def test_every_class_keeps_its_share(seed: int) -> None:
    every = [Example(f"text {n}", None, "rare" if n % 20 == 0 else "common", f"a:{n}") for n in range(2000)]
    _, dev = stratified_split(every, share=0.2, seed=seed)
    counts = Counter(example.label for example in dev)
    assert abs(counts["rare"] - 20) <= 1
    assert abs(counts["common"] - 380) <= 1


def test_numbers_keep_the_shares_of_their_tenths() -> None:
    every = [Example(f"text {index}", None, index / 100, f"a:{index}") for index in range(1000)]
    _, dev = stratified_split(every)
    tenths = Counter(int(example.label) for example in dev if isinstance(example.label, float))
    assert all(9 <= tenths[index] <= 11 for index in range(10))


def test_no_class_is_only_held_out() -> None:
    every = [*examples(100), Example("alone", None, "single", "a:100")]
    for seed in range(20):
        train, _ = stratified_split(every, share=0.5, seed=seed)
        assert {example.label for example in train} == {"0", "1", "single"}


def test_no_label_of_several_and_no_tag_is_only_held_out() -> None:
    rare = [Example(f"text {n}", None, ("usual", f"rare {n // 2}"), f"a:{n}") for n in range(40)]
    tagged = [Sentence((f"word{n}",), (f"B-{n // 2}",), None, f"a:{n}") for n in range(40)]
    twice = [Example("again", None, name, f"a:{name}") for name in ("0", "other")]  # one text with two classes
    for seed in range(10):
        train, dev = stratified_split(rare, share=0.4, seed=seed)
        assert len(dev) >= 14
        assert {name for each in train for name in each.label} == {name for each in rare for name in each.label}
        train_tags, _ = stratified_split(tagged, share=0.4, seed=seed)
        assert len({each.tags for each in train_tags}) == 20
        train, _ = stratified_split([*examples(10), *twice], share=0.4, seed=seed)
        assert {each.label for each in train} == {"0", "1", "other"}


def test_the_same_text_is_never_on_both_sides() -> None:
    every = [Example(text, None, str(n % 2), f"a:{n}") for n in range(100) for text in (f"Text {n}", f"text  {n} ")]
    for seed in range(5):
        train, dev = stratified_split(every, share=0.3, seed=seed)
        assert not {fingerprint(each.content) for each in train} & {fingerprint(each.content) for each in dev}
        assert 58 <= len(dev) <= 61


def test_other_kinds_are_drawn_too() -> None:
    sentences = [Sentence((f"word{index}",), ("O",), None, f"a:{index}") for index in range(50)]
    choices = [Choice(f"text {index}", ("a", "b"), 0, f"a:{index}") for index in range(50)]
    labelled = [Example(f"text {index}", None, ("a", "b")[: index % 3], f"a:{index}") for index in range(50)]
    for every in (sentences, choices, labelled):
        train, dev = stratified_split(every, share=0.2)
        assert len(train) + len(dev) == 50
        assert len(dev) in (10, 11)


def test_no_context_is_on_both_sides() -> None:
    questions = read_squad(shared_data("squad/dev-v2.0-sample.json")).examples
    train, dev = stratified_split(questions)
    assert not {each.context for each in train} & {each.context for each in dev}
    assert abs(len(dev) - 155) < 15


def test_sst_2_keeps_its_balance_without_leaks() -> None:
    every = read_examples(shared_data("sst2/train.tsv"), header=("text", "label")).examples
    train, dev = stratified_split(every)
    assert not {each.text for each in train} & {each.text for each in dev}
    assert abs(sum(each.label == "1" for each in dev) - 361) <= 1
    assert len(dev) in (691, 692, 693)


def test_at_least_one_text_is_held_out_where_that_is_possible() -> None:
    for seed in range(5):
        assert len(stratified_split(examples(4), share=0.01, seed=seed)[1]) == 1
    long = [Question(str(n), f"q{n}", f"context {n // 10}", (), f"a:{n}") for n in range(30)]
    assert len(stratified_split(long)[1]) == 10
    for few in ([], examples(1), examples(3, classes=3), examples(1) * 5):
        with pytest.raises(DataError, match="too few"):
            stratified_split(few)


def test_a_share_is_between_none_and_all() -> None:
    for share in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="share"):
            stratified_split(examples(10), share=share)


def test_labels_that_occur_once_are_reported_as_the_cause() -> None:
    numbers = [Example(f"text {index}", None, str(index / 7), f"row {index}") for index in range(60)]
    with pytest.raises(DataError, match=r"60 examples .*most labels occur once"):
        stratified_split(numbers)
