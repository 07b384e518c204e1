"""Jobs in worker processes: which process does which."""

from __future__ import annotations

import os
from collections.abc import Callable

from bench.isolated import run_jobs


def make_worker() -> Callable[[str], tuple[str, int]]:
    return lambda job: (job, os.getpid())


def test_a_spoiled_process_does_no_other_job() -> None:
    spoils = ["bad", "worse"]
    found = dict(
        run_jobs(
            make_worker,
            ["good", "bad", "fine", "worse", "last"],
            workers=1,
            timeout=900,
            is_spoiled=lambda result: result[0] in spoils,
        )
    )
    processes = {job: process for job, (_, process) in found.items()}
    assert processes["good"] == processes["bad"] != processes["fine"]
    assert processes["fine"] == processes["worse"] != processes["last"]
