"""Random graphs, always the same: each is right, or refused by an error of ours."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from bench.fuzz.generate import generate
from bench.fuzz.judge import dtype_of, settings_of
from bench.fuzz.worker import make_worker
from bench.isolated import Crash, run_jobs

pytestmark = pytest.mark.bank(8)

DEVICE = "emulated"
SEEDS = range(48)  # `python -m bench fuzz` goes on
OPEN_SEEDS = range(8)  # a graph takes eight seconds; so does `python -m bench fuzz --open`
PARTS = 4  # so that two cores share them


@pytest.mark.parametrize("part", range(PARTS))
def test_random_graphs_are_right_or_refused(part: int) -> None:
    check(SEEDS[part::PARTS], is_open=False)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_graphs_of_open_extents_are_right_or_refused(part: int) -> None:
    check(OPEN_SEEDS[part::PARTS], is_open=True)


def check(seeds: range, *, is_open: bool) -> None:
    jobs = {}
    for seed in seeds:
        settings = asdict(settings_of(seed, DEVICE, run=True, is_open=is_open))
        job = {"seed": seed, "dtype": dtype_of(seed, DEVICE), "settings": settings}
        jobs[json.dumps(job)] = seed
    failed = []
    # In a process of their own, which may die of them.
    for job, result in run_jobs(make_worker, list(jobs), workers=1, timeout=900.0):
        if isinstance(result, Crash):
            failed.append(f"seed {jobs[job]}: {result}")
        elif result["status"] not in ("right", "refused", "invalid"):
            failed.append(f"seed {jobs[job]}: {result['reason']}: {result['detail']}")
    assert not failed, "\n".join([*failed, "python -m bench fuzz --seed SEED --count 1 tells more"])


def test_a_seed_is_a_graph() -> None:
    assert generate(7, "float32") == generate(7, "float32")
    assert generate(7, "float32") != generate(8, "float32")
