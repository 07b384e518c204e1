"""Where Cocktailer's loops run: ``python -m bench.loop_placements [NAME ...]``, without a GPU.

Each network of the suite ``control_flow`` is written with PyTorch's loops and branches, exported at
its full size with batch 1, and compiled for a device with ``Forced(control=...)`` of either kind.
The table is written to ``bench/results/loop_placements.md``: what is launched, what a persistent
kernel holds, and what is predicted. Nothing is timed but the compilation.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import tvm_tile
from bench.__main__ import commit
from bench.suites import control_flow
from bench.suites.networks.looped import looped
from bench.suites.networks.recursive_autoencoder import RecursiveAutoencoder
from bench.suites.networks.recursive_module import recursive_module
from tvm_tile.plan.rprogram import Control
from tvm_tile.stages.forced import Forced

RESULTS = Path(__file__).parent / "results" / "loop_placements.md"
NAMES = ("lstm", "nasrnn", "attention", "seq2seq", "rae")
_HEADING = (
    "network",
    "control",
    "kernels",
    "loops in kernels",
    "rOperators in these",
    "predicted, ms",
    "why on the host",
    "compiled in, s",
)


def exported(name: str) -> Any:
    """A network of the suite, with loops or recursion, at its full size."""
    workload = next(w for w in control_flow.workloads() if w.name == name and w.batch in (1, None))
    case = control_flow.case(workload)
    if isinstance(case.module, RecursiveAutoencoder):
        return recursive_module(case.module)
    module = looped(case.module)
    assert module is not None
    inputs = tuple(torch.zeros(each.shape) for each in case.inputs)
    with torch.no_grad():
        return torch.export.export(module, inputs)


def placements(names: Sequence[str], device: str) -> Iterator[tuple[Any, ...]]:
    """A row for each network and place."""
    controls: tuple[Control, ...] = ("host", "kernel")
    for name in names:
        program = exported(name)
        for control in controls:
            start = time.perf_counter()
            options = Forced(control=control, cache=False)
            report = tvm_tile.compile(program, device, options=options).report
            seconds = time.perf_counter() - start
            reasons = [left.reason for left in report.left_apart if "host" in left.reason]
            loops = [
                plan for plan in report.plans if plan.name.startswith(("scan", "while", "encode"))
            ]
            held = sum(len(plan.operators) for plan in loops)
            # On the host an iteration is predicted, not how many there are.
            predicted = f"{sum(plan.plan.seconds for plan in loops) * 1e3:.2f}" if loops else "-"
            counts = len(report.kernels), len(loops), held
            yield name, control, *counts, predicted, "; ".join(reasons) or "-", f"{seconds:.1f}"


def main() -> None:
    """Compile the networks that are named, or all, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.loop_placements", description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--device", default="nvidia/h200")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    lines = [
        f"# Where loops run: `python -m bench.loop_placements`, {arguments.device}, {commit()}",
        "",
        "Nothing ran on a GPU. A `while` is predicted for as many iterations as are planned.",
        "",
        f"| {' | '.join(_HEADING)} |",
        f"| {' | '.join('---' for _ in _HEADING)} |",
    ]
    for row in placements(arguments.names, arguments.device):
        lines.append(f"| {' | '.join(map(str, row))} |")
        print(lines[-1], flush=True)
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
