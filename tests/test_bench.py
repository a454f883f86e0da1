"""What the benchmarks say of their figures is computed from them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def benches_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1]))


def test_a_figure_is_checked_by_its_floor_and_its_aim() -> None:
    from bench.harness import goal_cells

    assert goal_cells(1.4, 1.35, 1.5) == ["1.400", "1.35", "yes", "1.5", "no"]
    assert goal_cells(1.35, 1.35) == ["1.350", "1.35", "yes", "", ""]
    assert goal_cells(0.3, 0.333, at_most=True)[:3] == ["0.300", "0.333", "yes"]
    assert goal_cells(float("nan"), 5, at_most=True)[2] == "no"


def test_every_goal_of_embedding_is_reported() -> None:
    from bench.embed import CONTESTANTS, FAST, PEER, TASKS, goals_table

    best = {(task, name): 2.0 for task in TASKS for name in CONTESTANTS} | {("sst2", FAST): 1.2, ("single", PEER): 1.9}
    best |= {(task, "kinfolk"): 1.0 for task in TASKS}
    rows = [[cell.strip() for cell in line.strip("|").split("|")][1:] for line in goals_table(best).splitlines()[2:]]
    assert rows == [
        [PEER, "2.000", "1.35", "yes", "1.5", "yes"],
        [FAST, "1.200", "1.1", "yes", "1.25", "no"],
        [PEER, "2.000", "1.35", "yes", "1.5", "yes"],
        [FAST, "2.000", "1.1", "yes", "1.25", "yes"],
        [PEER, "1.900", "2", "no", "", ""],
    ]


@pytest.mark.parametrize("apart", [2e-5, float("nan")])
def test_other_vectors_end_the_benchmark(apart: float) -> None:
    from bench.embed import require_same

    require_same({("sst2", "a peer"): 1e-5})
    with pytest.raises(SystemExit, match="peer"):
        require_same({("sst2", "a peer"): apart})


def test_the_first_vector_may_take_a_third_of_the_peers_time() -> None:
    from bench.start import goal_table

    for seconds, reached in ((1.9, "yes"), (2.1, "no")):
        best = {"first vector, kinfolk": seconds, "first vector, sentence-transformers": 6.0}
        assert goal_table(best).splitlines()[-1].endswith(f"| {seconds / 6:.3f} | 0.333 | {reached} |")


def test_memory_may_grow_by_a_twentieth_over_a_file_and_by_20_mb_over_many_calls() -> None:
    from bench.memory import rows_of, within_share, within_size

    sizes = 102_400, 107_008
    assert rows_of("resident at {:,} lines", (10_000, 100_000), sizes, within_share(sizes)) == [
        ["resident at 10,000 lines", "100", "", "", ""],
        ["resident at 100,000 lines", "104", "4.500 %", "5 %", "yes"],
    ]
    assert within_share((1000, 1060)) == ["6.000 %", "5 %", "no"]
    assert within_size(sizes) == ["4.500 MB", "20 MB", "yes"]
    assert within_size((0, 21 * 1024))[2] == "no"
