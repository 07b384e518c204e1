"""Each kernel of a decode step, beside what memory allows: ``python -m bench.decode_kernels``.

The models of the suite ``decode`` that ``--families`` names take a step in bfloat16 with one
sequence and ``--context`` tokens in the cache. A kernel's time is what it adds to the step: from
the end of the kernel before it to its own end, as CUPTI tells, the median of its calls and of
``--runs`` steps. Kernels that start early overlap, so that their own durations say little. The
floor of a kernel is its traffic, as the report counts it, over the bandwidth of reading; the table
goes to ``bench/results/decode_kernels.md``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import tvm_tile
from bench.__main__ import commit
from bench.gpu import queued_seconds
from bench.inputs import untouched
from bench.machine import probe
from bench.suites import decode
from bench.workload import Workload
from tvm_tile.device import Device
from tvm_tile.device.detect import detect_device
from tvm_tile.report.activities import Activity, ActivityKind
from tvm_tile.report.compiled import ModelReport
from tvm_tile.report.symbols import function_of

RESULTS = Path(__file__).parent / "results" / "decode_kernels.md"
_FAMILIES = "gpt2,llama-3.2-1b,qwen3-0.6b,qwen3-1.7b"
_CALLS = 20
_HEADING = ("kernel", "calls", "adds, us", "MB", "GB/s", "of the floor", "predicted, us")


@dataclass(frozen=True, slots=True)
class Added:
    """What a kernel adds to a step.

    Attributes:
        name: the function's name; a symbol where the report does not know it.
        calls: calls of a step.
        seconds: the median call's.
    """

    name: str
    calls: int
    seconds: float


def added(runs: Sequence[Sequence[Activity]], report: ModelReport) -> list[Added]:
    """What each function adds to a run, in the order in which they begin first.

    Args:
        runs: activities of some runs of one model, one run at least.
        report: report of the model.
    """
    known = {kernel.name: kernel for kernel in report.kernels}
    samples: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        kernels = [one for one in run if one.kind is ActivityKind.KERNEL]
        own: dict[int, float] = {}
        ordered = sorted(kernels, key=lambda one: one.end)
        for place, one in enumerate(ordered):
            before = ordered[place - 1].end if place else one.begin
            own[id(one)] = one.end - before
        for one in sorted(kernels, key=lambda one: one.begin):
            samples[function_of(one.name, known)].append(own[id(one)])
    return [
        Added(name, len(found) // len(runs), statistics.median(found))
        for name, found in samples.items()
    ]


def table(
    name: str, step_seconds: float, found: Sequence[Added], report: ModelReport, bandwidth: float
) -> str:
    """The part of the page that is about one model; ``bandwidth`` is that of reading, bytes/s."""
    known = {kernel.name: kernel for kernel in report.kernels}
    lines = [f"## {name}", "", f"A step takes {step_seconds * 1e6:.0f} us.", ""]
    lines += [f"| {' | '.join(_HEADING)} |", f"| --- {'| ---: ' * (len(_HEADING) - 1)}|"]
    for one in found:
        kernel = known.get(one.name)
        cells = [one.name, str(one.calls), f"{one.seconds * 1e6:.2f}", *[""] * 4]
        if kernel is not None and kernel.traffic:
            rate = kernel.traffic / one.seconds
            cells[0] = f"{kernel.rule}: {kernel.operators.replace(' ', ', ')[:60]}"
            cells[3:] = (
                f"{kernel.traffic / 1e6:.2f}",
                f"{rate / 1e9:.0f}",
                f"{rate / bandwidth:.2f}",
                f"{kernel.run_seconds / kernel.calls * 1e6:.2f}",
            )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join((*lines, ""))


def _saved(workload: Workload, folder: str) -> Path:
    """A step, compiled for the GPU that is present, as a file."""
    case, path = decode.case(workload), Path(folder) / f"{workload.family}.tvm_tile"
    options = tvm_tile.Options(cache=False)
    given = untouched(case)
    model = tvm_tile.compile(case.module, detect_device(), example_inputs=given, options=options)
    model.save(path)
    return path


def main(argv: list[str] | None = None) -> int:
    """Parse the command line, measure, write the page; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", default=_FAMILIES)
    parser.add_argument("--context", type=int, default=0, help="0: the second of the suite's")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--commit", help="where the checkout has no history")
    arguments = parser.parse_args(argv)
    device = detect_device()
    if device.is_emulated:
        print(f"there is no GPU of NVIDIA: {device.name}", file=sys.stderr)
        return 2
    wanted = arguments.families.split(",")
    chosen = [own for own in _workloads(arguments.context) if own.family in wanted]
    machine = probe(["tvm_tile", "torch"], with_peaks=False)
    own = f"Written by `python -m bench.decode_kernels --families {arguments.families}`"
    place = f"{machine.gpu}, driver {machine.driver}, {machine.versions}, {machine.date}"
    pages = ["# Kernels of a decode step", "", f"{own} at {arguments.commit or commit()}: {place}."]
    with tempfile.TemporaryDirectory() as folder:
        # Each compiles in a process of its own: they are Python, most of the time.
        with ProcessPoolExecutor(len(chosen), get_context("spawn")) as pool:
            paths = list(pool.map(_saved, chosen, [folder] * len(chosen)))
        for workload, path in zip(chosen, paths, strict=True):
            pages += ["", _measured(workload, path, arguments.runs, device)]
            path.unlink()
    arguments.results.write_text("\n".join(pages), encoding="utf-8")
    print(arguments.results)
    return 0


def _measured(workload: Workload, path: Path, runs: int, device: Device) -> str:
    """The page's part about a saved step."""
    import torch

    model = tvm_tile.load(path)
    inputs = torch.zeros(1, 1, dtype=torch.int64), torch.tensor([workload.size("context")])
    given = [own.cuda() for own in inputs]
    profile = model.profile(*given, runs=runs)
    step = queued_seconds(partial(model, *given), _CALLS)
    found = added(profile.runs, model.report)
    return table(workload.name, step, found, model.report, device.read_bandwidth)


def _workloads(context: int) -> list[Workload]:
    """The suite's steps of one sequence in bfloat16; of each family those with so many tokens."""
    own = [one for one in decode.workloads() if (one.dtype, one.batch) == ("bfloat16", 1)]
    contexts: dict[str, list[int]] = defaultdict(list)
    for one in own:
        contexts[one.family].append(int(one.size("context")))
    second = {family: sorted(sizes)[1] for family, sizes in contexts.items()}
    return [one for one in own if int(one.size("context")) == (context or second[one.family])]


if __name__ == "__main__":
    sys.exit(main())
