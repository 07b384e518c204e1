"""Nsight Compute: how it is called for a program, and what it prints.

It runs kernels one at a time. With ``--cache-control all`` it empties the caches before each, so
that whatever a kernel reads comes from memory; with ``none`` they keep what earlier kernels left,
as they do in real life. What a kernel wrote and the cache still holds when it ends is counted in
neither mode: the next kernel may push it out, or the next flush.
"""

from __future__ import annotations

import csv
import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CACHE_CONTROLS = ("all", "none")
_READ, _WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
_UNITS = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
_HEADER = '"ID",'


class NcuError(Exception):
    """It measured nothing; the message is the reason, for the record."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        kernel: its symbol.
        read: bytes from the GPU's memory.
        written: bytes to it.
    """

    kernel: str
    read: float
    written: float


def profile(
    ncu: str, cache_control: str, program: Sequence[str], limit_s: float
) -> tuple[Launch, ...]:
    """Launches of a program between its cudaProfilerStart and cudaProfilerStop.

    Raises:
        NcuError: it is not there, refuses, fails, saw no launch, or takes more than ``limit_s``.
    """
    try:
        process = subprocess.Popen(
            command(ncu, cache_control, program),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    except OSError as error:
        raise NcuError(f"{ncu}: {error.strerror}") from error
    try:
        printed, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)  # the program, too, which holds the GPU
        process.communicate()
        raise NcuError(f"more than {limit_s:.0f} s") from error
    if process.returncode != 0:
        raise NcuError(f"exit status {process.returncode}: {_reason(printed, errors)}")
    launches = parse(printed)
    if not launches:
        raise NcuError(f"no launch was seen: {_reason(printed, errors)}")
    return launches


def command(ncu: str, cache_control: str, program: Sequence[str]) -> tuple[str, ...]:
    """What to run; ``cache_control`` is one of :data:`CACHE_CONTROLS`."""
    # Two counters of one unit: a single pass, so no kernel runs twice.
    options = {
        "--metrics": f"{_READ},{_WRITTEN}",
        "--clock-control": "none",
        "--cache-control": cache_control,
        "--profile-from-start": "off",
        "--print-units": "base",
    }
    return (ncu, "--csv", *(word for pair in options.items() for word in pair), *program)


def parse(printed: str) -> tuple[Launch, ...]:
    """The launches in what it printed, in the order in which they ran.

    A row is one metric of one launch; what comes before the header is the program's, or says how
    profiling went.

    Raises:
        NcuError: a metric has no number, or a launch lacks one.
    """
    lines = printed.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith(_HEADER)), len(lines))
    found: dict[tuple[int, str], dict[str, float]] = {}
    for row in csv.DictReader(_table(lines[start:])):
        key = int(row["ID"]), row["Kernel Name"].partition("(")[0]
        found.setdefault(key, {})[row["Metric Name"]] = _bytes(row)
    for (_, kernel), metrics in found.items():
        if not {_READ, _WRITTEN} <= metrics.keys():
            raise NcuError(f"{kernel}: only {', '.join(metrics)}")
    return tuple(
        Launch(kernel, metrics[_READ], metrics[_WRITTEN])
        for (_, kernel), metrics in sorted(found.items(), key=lambda item: item[0][0])
    )


def _table(lines: Iterable[str]) -> Iterable[str]:
    """The header and the rows, without what is printed among or after them."""
    return (line for line in lines if line.startswith('"'))


def _bytes(row: dict[str, str]) -> float:
    value, unit = row["Metric Value"], row["Metric Unit"]
    try:
        return float(value.replace(",", "")) * _UNITS[unit]
    except (ValueError, KeyError) as error:
        raise NcuError(f"{row['Metric Name']} is {value!r} {unit!r}, no bytes") from error


def _reason(printed: str, errors: str) -> str:
    """Its own error, or else the last thing that was said."""
    lines = [line.strip() for line in (*errors.splitlines(), *printed.splitlines()) if line.strip()]
    own = [line.removeprefix("==ERROR==").strip() for line in lines if line.startswith("==ERROR==")]
    return own[0] if own else (lines[-1] if lines else "nothing was printed")
