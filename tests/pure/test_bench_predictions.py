"""Candidates of searches: the same each time, and what is asked of their predicted times."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest

from bench.record import Record
from bench.report.data import suite
from bench.report.predictions import (
    Guess,
    accuracy,
    front,
    fronts,
    longer,
    rank_correlation,
    section,
)
from bench.suites import predictions
from bench.suites.spaces import AUTOFORMERS, LEFT_OUT, MOBILENET_V3, PROXYLESS, Space

SPACES = (MOBILENET_V3, PROXYLESS, *AUTOFORMERS)
every_space = pytest.mark.parametrize("space", SPACES)


def test_a_hundred_networks_the_same_each_time() -> None:
    found = predictions.workloads()
    assert found == predictions.workloads()
    assert Counter(w.family for w in found) == {
        "mobilenet_v3": 34,
        "proxyless": 33,
        "autoformer": 33,
    }
    assert len({w.name for w in found}) == len({w.sizes for w in found}) == len(found)
    assert 40 <= sum(w.batch == 8 for w in found) <= 60
    assert {w.dtype for w in found} == {"float16"}


@every_space
def test_candidates_choose_one_option_for_each_place(space: Space) -> None:
    for candidate in islice(space.walk(random.Random(3), 4), 40):
        assert tuple(sorted(candidate)) == candidate
        assert [place for place, _ in candidate] == sorted(c.place for c in space.choices)
        options = {choice.place: choice.options for choice in space.choices}
        assert all(option in options[place] for place, option in candidate)


@every_space
def test_a_mutation_changes_one_place(space: Space) -> None:
    rng = random.Random(5)
    candidate, places = space.drawn(rng), set()
    for _ in range(400):
        other = space.mutated(candidate, rng)
        changed = [a[0] for a, b in zip(candidate, other, strict=True) if a != b]
        assert len(changed) == 1
        places |= set(changed)
        candidate = other
    assert places == {c.place for c in space.choices if len(set(c.options)) > 1}


def test_the_last_of_four_is_the_one_before_with_a_change() -> None:
    found = list(islice(PROXYLESS.walk(random.Random(2), 4), 12))
    apart = [sum(a != b for a, b in zip(*pair, strict=True)) for pair in pairwise(found)]
    assert [apart[place] for place in (2, 6, 10)] == [1, 1, 1]
    assert min(apart[:2] + apart[3:6] + apart[7:10]) > 1


def test_spaces_have_the_papers_sizes() -> None:
    kept = [sum(LEFT_OUT not in c.options for c in s.choices if "." in c.place) for s in SPACES[:2]]
    assert kept == [10, 6]  # two, and one, block of each stage are always there
    kinds = {len(set(c.options) - {LEFT_OUT}) for c in MOBILENET_V3.choices if "." in c.place}
    assert kinds == {9}
    depths = [
        (sum(LEFT_OUT not in c.options for c in s.choices[2:]), len(s.choices) - 2)
        for s in AUTOFORMERS
    ]
    assert depths == [(12, 14), (12, 14), (14, 16)]


def test_rank_correlation_is_pearsons_of_ranks() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # 1 - 6 (1 + 1) / (4 * 15)
    assert rank_correlation([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    # Ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3.
    expected = np.corrcoef([0, 1.5, 1.5, 3], [0, 1, 2, 3])[0, 1]
    assert rank_correlation([5, 7, 7, 9], [1, 2, 3, 4]) == pytest.approx(expected)
    assert np.isnan(rank_correlation([1, 1], [1, 2]))


def test_rank_correlation_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng()
    one, other = rng.integers(0, 12, 40), rng.normal(size=40)
    found = rank_correlation(list(one), list(other))
    assert found == pytest.approx(stats.spearmanr(one, other).statistic)


def test_accuracy_by_hand() -> None:
    found = accuracy([Guess(p, 1.0, 0.0) for p in (1.05, 0.88, 1.18, 2.0)])
    assert found.within == (0.25, 0.5, 0.75)
    assert found.median == pytest.approx(0.15)


def guess(predicted: float, measured: float, flops: float) -> Guess:
    return Guess(predicted, measured, flops)


def test_a_front_is_what_nothing_beats_in_time_and_flops() -> None:
    points = [guess(1, 1, 10), guess(2, 2, 10), guess(3, 3, 30), guess(3, 3, 20), guess(9, 9, 40)]
    kept = front(points, lambda g: g.measured)
    assert [(g.measured, g.flops) for g in kept] == [(9, 40), (3, 30), (1, 10)]


def test_fronts_are_apart_by_what_trusting_costs() -> None:
    # As measured a, b and c are the front; b is predicted to be slower than d, which has as many
    # FLOPs and takes a tenth longer.
    a, b, c = guess(1.0, 1.0, 10), guess(2.5, 2.0, 20), guess(3.0, 3.0, 30)
    d = guess(2.4, 2.2, 20)
    assert longer([a, b, c, d]) == [0, pytest.approx(0.1), 0]
    assert longer([a, b, c]) == [0, 0, 0]
    # The scale of predictions does not matter, nor does the unit of FLOPs.
    scaled = [guess(g.predicted * 7, g.measured, g.flops * 1e9) for g in (a, b, c, d)]
    assert longer(scaled) == [0, pytest.approx(0.1), 0]


def record(name: str, predicted: float | None, measured: float, flops: float) -> Record:
    return Record(
        "predictions", name, "proxyless", "float16", 1, "tvm_tile", "top1", "ok",
        median_ms=measured, predicted_ms=predicted, flops=flops, gpu="NVIDIA H200",
    )  # fmt: skip


def test_tables_count_what_is_right_and_predicted() -> None:
    times = ((1.0, 1.0), (2.1, 2.0), (3.0, 4.0), (4.0, 5.0))
    records = [record(f"n{i}", *pair, 10.0 + i) for i, pair in enumerate(times)]
    wrong = replace(record("wrong", 50.0, 1.0, 1e9), status="wrong: error")
    unknown = record("unknown", None, 1.0, 1e9)
    other = replace(record("n0", 50.0, 1.0, 1e9), system="tvm_tile_unfused")
    found = suite("predictions", [*records, wrong, unknown, other])
    assert (
        "| predictions | float16 | NVIDIA H200 | 4 | 1.000 | 50 % | 50 % | 75 % | 12.5 % |"
    ) in section([found])
    lines = fronts(found).splitlines()
    row = "| 4 | 1.000 | 50 % | 50 % | 75 % | 12.5 % | 4 | 0.0 % | 0.0 % |"
    assert lines[-2:] == [f"| proxyless | 1 {row}", f"| **all** |  {row}"]


def test_only_searches_have_fronts() -> None:
    records = [replace(record(f"n{i}", 1.0, 1.0 + i, 1.0), suite="models") for i in range(5)]
    assert fronts(suite("models", records)) == ""
    assert fronts(suite("elsewhere", records)) == ""
    assert section([suite("models", records[:3])]) == ""  # three have no order worth a number
