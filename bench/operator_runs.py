"""Samples of operators in worker processes, which may end of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from bench.core_samples import core_samples
from bench.isolated import Crash, run_jobs
from bench.operator_cases import (
    FAILED_CALL,
    Sample,
    judge,
    operators,
    run_compiled,
    run_imported,
)
from bench.operator_samples import drawn
from bench.operator_table import DIRECT

GPU = "nvidia/h100"  # that is compiled for what the emulator cannot run
_DRAWN = "drawn"  # in the place of a backend: the samples, and nothing is run
_MOST_JOBS = 100  # a process: what models leave behind in memory grows

# Of each sample: its name, status, why, operators of the program.
Found = list[list[Any]]


def make_worker(device: str, most: int) -> Callable[[str], Found]:
    """In a worker process: a function from ``"backend operator dtype [place]"`` to verdicts."""
    torch.set_num_threads(1)
    known = operators()
    runs = {"import": run_imported, device: run_compiled(device)}
    made: dict[tuple[str, str], list[Sample]] = {}

    def work(job: str) -> Found:
        backend, name, dtype, *place = job.split(" ")
        if (name, dtype) not in made:
            made.clear()
            direct = dtype == DIRECT
            made[name, dtype] = (
                core_samples(name) if direct else drawn(known[name], getattr(torch, dtype), most)
            )
        chosen = made[name, dtype]
        if place:
            chosen = chosen[int(place[0]) : int(place[0]) + 1]
        if backend == _DRAWN:
            return [[sample.name, _DRAWN, "", []] for sample in chosen]
        run = runs[backend]
        if backend == "emulated" and dtype == "float16":
            run = run_compiled(GPU, only_compile=True)
        verdicts = judge(chosen, run) if chosen else []
        return [
            [sample.name, verdict.status, verdict.detail, sorted(verdict.used)]
            for sample, verdict in zip(chosen, verdicts, strict=True)
        ]

    return work


def judged(
    device: str,
    jobs: Sequence[str],
    *,
    most: int,
    workers: int,
    timeout: float,
    limit_s: float,
) -> Iterator[tuple[str, Found]]:
    """Jobs and their verdicts, as they come.

    A job that ends its process, or leaves a GPU's driver with an error, is a crash at first. When
    all others are done it is run again, each sample in a process that nothing has harmed.

    Args:
        device: as in ``tvm_tile.compile``.
        jobs: each ``"backend operator dtype"``.
        most: as for :func:`bench.operator_samples.drawn`.
        workers: processes at once.
        timeout: seconds that one job may take.
        limit_s: seconds for all of them.
    """
    end = time.monotonic() + limit_s

    def run(some: Sequence[str]) -> Iterator[tuple[str, Any]]:
        left = end - time.monotonic()
        if not some or left <= 0:
            return iter(())
        return run_jobs(
            partial(make_worker, device, most),
            some,
            workers=min(workers, len(some)),
            timeout=timeout,
            limit_s=left,
            most_jobs=_MOST_JOBS,
            is_spoiled=_is_spoiled,
        )

    ended = []
    for job, result in run(jobs):
        if isinstance(result, Crash) or _is_spoiled(result):
            ended.append(job)
        yield job, _crash("all samples", result) if isinstance(result, Crash) else result
    names: dict[str, list[str]] = {}
    for drawing, result in run(sorted({f"{_DRAWN} {job.partition(' ')[2]}" for job in ended})):
        of = drawing.removeprefix(_DRAWN)
        # Where PyTorch itself ends the process, there is no sample.
        own = [] if isinstance(result, Crash) else [sample[0] for sample in result]
        names |= {job: own for job in ended if job.endswith(of)}
    yield from ((job, []) for job, own in names.items() if not own)
    parts: dict[str, dict[int, Found]] = {job: {} for job in names}
    singles = [f"{job} {at}" for job, own in names.items() for at in range(len(own))]
    for single, result in run(singles):
        job, _, place = single.rpartition(" ")
        name = names[job][int(place)]
        parts[job][int(place)] = _crash(name, result) if isinstance(result, Crash) else result
        if len(parts[job]) == len(names[job]):
            yield job, [found for _, one in sorted(parts[job].items()) for found in one]


def _crash(name: str, crash: Crash) -> Found:
    return [[name, "crash", str(crash), []]]


def _is_spoiled(result: Found) -> bool:
    """Whether an error may be the driver's: nothing runs behind it in that process."""
    return any(
        status == "untyped" and ("CUDA" in why or FAILED_CALL in why)
        for _, status, why, _ in result
    )
