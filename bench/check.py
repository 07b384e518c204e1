"""Every kernel of a suite's workloads against a CPU build of the same function.

    python -m bench.check --suite models --workloads swin --dtypes float32 [--device emulated]

See :mod:`tvm_tile.verify`, which does the same for one model.
"""

from __future__ import annotations

import argparse
import sys

from bench.inputs import untouched
from bench.kernels import add_choice, chosen
from bench.suites import load_suite
from bench.workload import Workload


def main(argv: list[str] | None = None) -> int:
    """Check all kernels of all workloads; the exit status is the number of wrong ones."""
    parser = argparse.ArgumentParser(prog="python -m bench.check", description=__doc__)
    add_choice(parser)
    arguments = parser.parse_args(argv)
    wrong = sum(check(workload, arguments.device) for workload in chosen(arguments))
    return min(wrong, 100)


def check(workload: Workload, device_name: str) -> int:
    """How many kernels of one workload are wrong; each is printed."""
    from tvm_tile import find_device
    from tvm_tile.build import Builder
    from tvm_tile.frontend import import_model
    from tvm_tile.passes import schedule_module
    from tvm_tile.stages.fusing import fuse
    from tvm_tile.verify import Kernels

    device = find_device(device_name)
    case = load_suite(workload.suite).case(workload)
    fused = fuse(import_model(case.module, example_inputs=untouched(case)).mod, device).mod
    scheduled, reports = schedule_module(fused, device)
    builder = Builder(device)
    failures = builder.find_failures(scheduled)
    for name in failures:
        print(f"UNBUILT {workload} {name}")
    built = tuple(report for report in reports if report.name not in failures)
    wrong = 0
    for kernel in Kernels.of(fused, scheduled, built, device, builder).check():
        own = kernel.comparison
        if not own.is_right:
            wrong += 1
            print(f"WRONG {workload} {kernel.name} {kernel.rule} {kernel.tile}: {own.example}")
    print(f"{workload}: {len(built) - wrong} of {len(reports)} kernels right", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
