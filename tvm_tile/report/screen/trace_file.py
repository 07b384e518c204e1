"""A run of a model as a file for viewers of traces: Chrome's trace event format, as JSON.

Two processes are below each other: what the device did, a track for each of its queues, and the
same launches with the times that were predicted, one after another. Times are in microseconds from
when the host began the run. Below are the vEUs of persistent kernels, if these were watched, each
on its track, from when the kernel began. https://ui.perfetto.dev and chrome://tracing open such
files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tvm_tile.report.activities import Activity, ActivityKind
from tvm_tile.report.compiled import KernelReport
from tvm_tile.report.profile import ModelProfile
from tvm_tile.report.screen.short_names import short
from tvm_tile.report.symbols import function_of
from tvm_tile.report.veu_times import VeuTimes

_MEASURED, _PREDICTED, _VEUS = 1, 2, 3  # processes; those of persistent kernels come last
_LABEL = 80  # characters
_US = 1e6
"""Microseconds of a second."""


def trace_text(profile: ModelProfile) -> str:
    """The text of the file, of the profile's typical run."""
    run = sorted(profile.typical, key=lambda one: one.begin)
    known = {kernel.name: kernel for kernel in profile.report.kernels}
    events = [
        *_heading(profile, run),
        *_measured(run, known),
        *_predicted(run, known),
        *(event for own in enumerate(profile.veus, _VEUS) for event in _veus(*own)),
    ]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events})


def _heading(profile: ModelProfile, run: Sequence[Activity]) -> Iterator[dict[str, Any]]:
    """Names of the trace's tracks: those measured, and the predicted one."""
    yield _named("process_name", _MEASURED, 0, f"measured by {profile.source}")
    for stream in sorted({one.stream for one in run}):
        yield _named("thread_name", _MEASURED, stream, f"stream {stream}")
    yield _named("process_name", _PREDICTED, 0, profile.report.how)
    yield _named("thread_name", _PREDICTED, 0, "kernels one after another")


def _measured(
    run: Sequence[Activity], known: Mapping[str, KernelReport]
) -> Iterator[dict[str, Any]]:
    """Events of the measured activities."""
    for one in run:
        kernel = known.get(function_of(one.name, known))
        yield _event(one, kernel, _MEASURED, one.stream, one.begin, one.seconds)


def _predicted(
    run: Sequence[Activity], known: Mapping[str, KernelReport]
) -> Iterator[dict[str, Any]]:
    """Events of the predicted kernels, one after another."""
    begin = run[0].begin if run else 0.0
    for one in run:
        kernel = known.get(function_of(one.name, known))
        if kernel is not None and not kernel.fallback and one.kind is ActivityKind.KERNEL:
            seconds = kernel.run_seconds / (kernel.calls * kernel.launches)
            yield _event(one, kernel, _PREDICTED, 0, begin, seconds)
            begin += seconds


def _veus(process: int, times: VeuTimes) -> Iterator[dict[str, Any]]:
    """A track for each vEU of a persistent kernel, from the begin of its first record."""
    yield _named("process_name", process, 0, f"vEUs of {times.kernel}")
    for veu in range(times.num_veus):
        yield _named("thread_name", process, veu, f"vEU {veu}")
    for task in times.tasks:
        yield {
            "ph": "X",
            "name": times.operators[task.operator],
            "cat": "rTask",
            "pid": process,
            "tid": task.veu,
            "ts": task.begin * _US,
            "dur": (task.end - task.begin) * _US,
            "args": {"task": task.task},
        }


def _event(
    one: Activity,
    kernel: KernelReport | None,
    process: int,
    thread: int,
    begin: float,
    seconds: float,
) -> dict[str, Any]:
    """An event of the trace."""
    label = short(kernel.names[0], _LABEL) if kernel and kernel.names else one.name
    return {
        "ph": "X",
        "name": label,
        "cat": one.kind.value,
        "pid": process,
        "tid": thread,
        "ts": begin * _US,
        "dur": seconds * _US,
        "args": {"kernel": one.name} | (_details(kernel) if kernel else {}),
    }


def _details(kernel: KernelReport) -> dict[str, Any]:
    """Details of a kernel, which viewers show on request."""
    return {
        "computes": [list(names) for names in kernel.names],
        "rule": kernel.rule,
        "tile": kernel.tile,
        "grid": kernel.grid,
        "block": kernel.block,
        "bytes": kernel.traffic,
        "flops": kernel.flops,
    }


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    """An entry that names a track."""
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}
