"""Samples of operators in worker processes, which may end of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from bench.core_samples import core_samples
from bench.isolated import Crash, run_jobs
from bench.operator_cases import Sample, judge, operators, run_compiled, run_imported
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
    run = partial(
        run_jobs,
        partial(make_worker, device, most),
        workers=workers,
        timeout=timeout,
        most_jobs=_MOST_JOBS,
        is_spoiled=_is_spoiled,
    )
    ended = []
    for job, result in run(jobs, limit_s=limit_s):
        if isinstance(result, Crash) or _is_spoiled(result):
            ended.append(job)
        yield job, _crash("all samples", result) if isinstance(result, Crash) else result
    listed = {f"{_DRAWN} {job.partition(' ')[2]}": job for job in ended}
    names: dict[str, list[str]] = {}
    for asked, result in run(list(listed), limit_s=max(0.0, end - time.monotonic())):
        # Where PyTorch itself ends the process, there is no sample.
        names[listed[asked]] = [] if isinstance(result, Crash) else [one[0] for one in result]
    parts: dict[str, dict[int, Found]] = {job: {} for job in names}
    singles = [f"{job} {place}" for job, own in names.items() for place in range(len(own))]
    for single, result in run(singles, limit_s=max(0.0, end - time.monotonic())):
        job, _, place = single.rpartition(" ")
        name = names[job][int(place)]
        parts[job][int(place)] = _crash(name, result) if isinstance(result, Crash) else result
        if len(parts[job]) == len(names[job]):
            yield job, [found for _, one in sorted(parts[job].items()) for found in one]
    yield from ((job, []) for job, own in names.items() if not own)


def _crash(name: str, crash: Crash) -> Found:
    return [[name, "crash", str(crash), []]]


def _is_spoiled(result: Found) -> bool:
    """Whether an error is the driver's: nothing runs behind it in that process."""
    return any(status == "untyped" and "CUDA" in why for _, status, why, _ in result)
