"""Each kernel of compiled models: measured time beside the time the model predicted.

    python -m bench.kernels --suite models --workloads resnet50 --dtypes float32 [--batches 1]

Times are the device's own, read through PyTorch's profiler, medians over calls.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bench.inputs import draw, untouched
from bench.machine import probe
from bench.suites import choose, load_suite
from bench.workload import Workload

CALLS = 10


def main(argv: list[str] | None = None) -> int:
    """Compile, then profile, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.kernels", description=__doc__)
    add_choice(parser)
    parser.add_argument("--apart", action="store_true", help="no persistent kernels")
    parser.add_argument("--result", type=Path, default=Path("bench/results/kernels.json"))
    arguments = parser.parse_args(argv)
    machine = probe(())
    facts = {"gpu": machine.gpu, "driver": machine.driver, "versions": machine.versions}
    records: list[dict[str, Any]] = []
    for workload in chosen(arguments):
        try:
            # A process of its own: an illegal access in one model must not end the others.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                records += pool.submit(
                    profile, workload, arguments.device, not arguments.apart
                ).result()
            print(workload, len(records), flush=True)
        except Exception as error:
            print(workload, type(error).__name__, str(error)[-200:])
        arguments.result.write_text(json.dumps(facts | {"records": records}, indent=0))
    for record in sorted(records, key=lambda r: r["measured_s"] - r["predicted_s"])[-40:]:
        measured, predicted = record["measured_s"] * 1e6, record["predicted_s"] * 1e6
        print(
            f"{record['model']:24s} {measured:7.1f} us, predicted {predicted:6.1f}: "
            f"{record['kernel'][:40]} {record['rule']} {record['tile']} x{record['calls']}"
        )
    return 0


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Options that choose workloads of a suite."""
    parser.add_argument("--suite", default="models")
    parser.add_argument("--workloads", nargs="*", help="all, by default")
    parser.add_argument("--dtypes", nargs="*", default=["float32"])
    parser.add_argument("--batches", nargs="*", type=int, default=[1])
    parser.add_argument("--device", default="nvidia/h200")


def chosen(arguments: argparse.Namespace) -> tuple[Workload, ...]:
    """The workloads that these options choose."""
    return choose(
        [arguments.suite],
        name=arguments.workloads,
        dtype=arguments.dtypes,
        batch=[*arguments.batches, None],
    )


def profile(workload: Workload, device: str, coschedule: bool) -> list[dict[str, Any]]:
    """A record for each kernel of one workload."""
    import torch
    from torch.profiler import ProfilerActivity

    import tvm_tile
    from tvm_tile.stages.forced import Forced

    case = load_suite(workload.suite).case(workload)
    options = Forced(coschedule=coschedule)
    model = tvm_tile.compile(case.module, device, example_inputs=untouched(case), options=options)
    inputs = draw(case, "cuda", seed=1)
    for _ in range(3):
        model(*inputs)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(CALLS):
            model(*inputs)
        torch.cuda.synchronize()
    times: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        for event in json.loads(trace.read_text())["traceEvents"]:
            if event.get("cat") == "kernel":
                times[event["name"]].append(event["dur"] * 1e-6)
    return [
        {
            "model": str(workload),
            "kernel": kernel.name,
            "rule": kernel.rule,
            "tile": kernel.tile,
            "grid": kernel.grid,
            "block": kernel.block,
            "calls": len(own[0]) // CALLS,
            "measured_s": sum(statistics.median(t) for t in own),
            "predicted_s": kernel.seconds,
            "traffic": kernel.traffic,
        }
        for kernel in model.report.kernels
        # A function may hold several kernels: name_kernel, name_kernel_1, ...
        if (own := [t for name, t in times.items() if name.startswith(kernel.name + "_kernel")])
    ]


if __name__ == "__main__":
    sys.exit(main())
