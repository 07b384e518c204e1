"""Each kernel of compiled models: measured time beside the time the model predicted.

    python -m bench.kernels --folder OUT --result bench/results/kernels.json

``OUT`` is what ``python -m bench.models build`` made. Times are the device's own, read through
PyTorch's profiler, medians over calls.
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

import numpy as np

from bench.models import environment

CALLS = 10


def main(argv: list[str] | None = None) -> int:
    """Profile every compiled model in the folder."""
    parser = argparse.ArgumentParser(prog="python -m bench.kernels", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--models", nargs="*", default=None, help="such as resnet50-float32")
    arguments = parser.parse_args(argv)
    records = []
    for saved in sorted(arguments.folder.glob("*/ours.tvmtile")):
        if arguments.models is not None and saved.parent.name not in arguments.models:
            continue
        try:
            # A process of its own: an illegal access in one model must not end the others.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                records += pool.submit(profile, saved).result()
            print(saved.parent.name, len(records), flush=True)
        except Exception as error:
            print(saved.parent.name, type(error).__name__, str(error)[-200:])
    arguments.result.write_text(json.dumps(environment() | {"records": records}, indent=0))
    for record in sorted(records, key=lambda r: r["measured_s"] - r["predicted_s"])[-40:]:
        measured, predicted = record["measured_s"] * 1e6, record["predicted_s"] * 1e6
        print(
            f"{record['model']:24s} {measured:7.1f} us, predicted {predicted:6.1f}: "
            f"{record['kernel'][:40]} {record['rule']} {record['tile']} x{record['calls']}"
        )
    return 0


def profile(saved: Path) -> list[dict[str, Any]]:
    """A record for each kernel of one saved model."""
    import torch
    from torch.profiler import ProfilerActivity

    from tvm_tile.runtime import load

    model = load(saved)
    case = np.load(saved.parent / "case.npz")
    inputs = [torch.from_numpy(case[k]).cuda() for k in case.files if k.startswith("input")]
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
    records = []
    for kernel in model.report.kernels:
        # A function may hold several kernels: name_kernel, name_kernel_1, ...
        own = [t for name, t in times.items() if name.startswith(kernel.name + "_kernel")]
        if own:
            records.append(
                {
                    "model": saved.parent.name,
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
            )
    if not records:
        print(f"{saved.parent.name}: none of {sorted(times)[:5]} is a kernel of the model")
    return records


if __name__ == "__main__":
    sys.exit(main())
