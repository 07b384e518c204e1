"""Compile models side by side, and run each under Nsight Compute as soon as it is there."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.inputs import Placed, draw
from bench.isolated import Crash, Job, run_jobs
from bench.machine import Machine
from bench.runner import Plan, Say
from bench.suites import load_suite
from bench.systems import load_system
from bench.systems.system import Session
from bench.systems.tvm_tile import TvmTile
from bench.traffic.ncu import NcuError, profile
from bench.traffic.record import FILE, FunctionTraffic, Traffic, by_function, store
from bench.workload import Workload

if TYPE_CHECKING:
    from tvm_tile.report.compiled import KernelReport

_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Measurement:
    """What to measure, and on what.

    Attributes:
        plan: as for the benchmark; its systems are ours.
        machine: what is recorded of it.
        ncu: the program to call.
        cache_controls: a run for each; see :mod:`bench.traffic.ncu`.
    """

    plan: Plan
    machine: Machine
    ncu: str
    cache_controls: tuple[str, ...]

    def run(self, say: Say, start: float) -> None:
        """Measure and store what can be measured within the plan's time, which began at ``start``.

        Each record is on disk at once; what is not done when time is up leaves none.
        """
        end = start + self.plan.limit_s
        total, done = len(_jobs(self.plan)) * len(self.cache_controls), 0
        # Who still compiles when time is up writes there, too.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            for record in self._records(Path(folder), end):
                store(self.plan.results / FILE, record)
                done += 1
                say(f"[{done}/{total} {time.monotonic() - start:4.0f} s] {_line(record)}")
        if done < total:
            say(f"out of time: {total - done} runs are left")

    def _records(self, folder: Path, end: float) -> Iterator[Traffic]:
        plan, jobs = self.plan, _jobs(self.plan)
        compiled = run_jobs(
            partial(make_compiler, plan, folder),
            list(jobs),
            workers=min(plan.jobs, len(jobs)),
            timeout=plan.phase_limit_s,
            limit_s=end - time.monotonic(),
        )
        for job, kernels in compiled:
            if isinstance(kernels, Crash):
                kernels = f"crashed while compiling: {kernels}"
            for cache_control in self.cache_controls:
                left = end - time.monotonic()
                if left <= 0:
                    return
                if isinstance(kernels, str):
                    found: tuple[FunctionTraffic, ...] | str = kernels
                else:
                    limit_s = min(left, plan.phase_limit_s)
                    found = self._profiled(folder / job, kernels, cache_control, limit_s)
                if isinstance(found, str) and time.monotonic() >= end:
                    return  # it was not its fault
                yield self._record(*jobs[job], cache_control, found)

    def _profiled(
        self, stem: Path, kernels: tuple[KernelReport, ...], cache_control: str, limit_s: float
    ) -> tuple[FunctionTraffic, ...] | str:
        """What was measured in one run, or why nothing was."""
        files = (str(stem.with_suffix(ending)) for ending in (".tvmtile", ".pt"))
        program = (sys.executable, "-m", "bench.traffic.one_run", *files)
        try:
            launches = profile(self.ncu, cache_control, program, limit_s)
        except NcuError as reason:
            return f"failed: {reason}"
        return by_function(launches, kernels)

    def _record(
        self,
        workload: Workload,
        name: str,
        cache_control: str,
        found: tuple[FunctionTraffic, ...] | str,
    ) -> Traffic:
        status, functions = (found, ()) if isinstance(found, str) else ("ok", found)
        system, variant = dict(self.plan.systems)[name]
        return Traffic(
            suite=workload.suite,
            workload=workload.name,
            family=workload.family,
            dtype=workload.dtype,
            batch=workload.batch,
            system=system,
            variant=variant,
            cache_control=cache_control,
            status=" ".join(status.split())[:_LONGEST_REASON],
            functions=functions,
            gpu=self.machine.gpu,
            driver=self.machine.driver,
            versions=self.machine.versions,
            commit=self.plan.commit,
            command=self.plan.command,
            date=self.machine.date,
        )


def make_compiler(plan: Plan, folder: Path) -> Callable[[Job], tuple[KernelReport, ...] | str]:
    """What each compiling process does with a job: its kernels, or why there are none.

    The model is then in the folder as ``JOB.tvmtile``, and inputs as ``JOB.pt``.
    """
    import torch

    jobs = _jobs(plan)
    TvmTile().warm_up()

    def compile_one(job: Job) -> tuple[KernelReport, ...] | str:
        workload, name = jobs[job]
        system = load_system(name)
        assert isinstance(system, TvmTile)
        try:
            case = load_suite(workload.suite).case(workload)
            session = Session(
                plan.device, nullcontext(), lambda: draw(case, "cpu", plan.seed), Placed("cpu")
            )
            model = system.compile(case, session, cuda_graph=False)
            model.save(folder / f"{job}.tvmtile")
            torch.save(session.draw(), folder / f"{job}.pt")
        except Exception as error:
            traceback.print_exc()
            return f"failed: {type(error).__name__}: {error}"
        return model.report.kernels

    return compile_one


def _jobs(plan: Plan) -> dict[Job, tuple[Workload, str]]:
    """Every workload with every system."""
    every = [(workload, name) for workload in plan.workloads for name, _ in plan.systems]
    return {str(number): job for number, job in enumerate(every)}


def _line(record: Traffic) -> str:
    batch = "" if record.batch is None else f" b{record.batch}"
    run = f"{record.workload} {record.dtype}{batch} {record.system}, caches {record.cache_control}"
    if record.status != "ok":
        return f"{run}: {record.status}"
    moved = f"{record.read / 1e6:.1f} MB read, {record.written / 1e6:.1f} MB written"
    return f"{run}: {record.launches} launches, {moved}"
