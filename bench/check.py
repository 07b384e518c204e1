"""Every kernel of a suite's workloads against a CPU build of the same function.

    python -m bench.check --suite models --workloads swin --dtypes float32 [--device emulated]

Outputs are poisoned with NaN beforehand, so an element that no thread writes is found. The
reference is TVM's own CPU build of the unscheduled function, on random inputs.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from bench.functions import build_functions
from bench.inputs import untouched
from bench.kernels import add_choice, chosen
from bench.suites import load_suite
from bench.workload import Workload

TOLERANCE = {"float32": 1e-4, "float16": 2e-2}


def main(argv: list[str] | None = None) -> int:
    """Check all kernels of all workloads; the exit status is the number of wrong ones."""
    parser = argparse.ArgumentParser(prog="python -m bench.check", description=__doc__)
    add_choice(parser)
    arguments = parser.parse_args(argv)
    wrong = sum(check(workload, arguments.device) for workload in chosen(arguments))
    return min(wrong, 100)


def check(workload: Workload, device_name: str) -> int:
    """How many kernels of one workload are wrong; each is printed."""
    from tvm import tirx

    from tvm_tile import find_device
    from tvm_tile.frontend import import_model
    from tvm_tile.passes import schedule_module
    from tvm_tile.pipeline import fuse

    device = find_device(device_name)
    case = load_suite(workload.suite).case(workload)
    fused = fuse(import_model(case.module, example_inputs=untouched(case)).mod, device)
    scheduled, reports = schedule_module(fused, device)
    functions = {r.name: scheduled[r.name] for r in reports}
    built = build_functions(functions, device)
    wrong = 0
    for report in reports:
        if report.name not in built.names:
            print(f"UNBUILT {workload} {report.name}")
            continue
        func = fused[report.name]
        assert isinstance(func, tirx.PrimFunc)
        error = difference(func, built[report.name], device.kernel_language)
        if not error <= TOLERANCE[workload.dtype]:
            wrong += 1
            print(f"WRONG {workload} {report.name} {report.rule} {report.tile}: {error:.1e}")
    print(f"{workload}: {len(reports) - wrong} of {len(reports)} kernels right", flush=True)
    return wrong


def difference(func: Any, kernel: Any, language: str) -> float:
    """Relative error of ``kernel`` against a CPU build of ``func``; NaN where one is."""
    import tvm

    reference = tvm.compile(func.with_attr("global_symbol", "reference"), target="llvm")
    device = tvm.cuda(0) if language == "cuda" else tvm.cpu()
    rng = np.random.default_rng(1)
    arrays = [_random(rng, p) for p in func.params]
    expected = [tvm.runtime.tensor(a) for a in arrays]
    reference["reference"](*expected)
    wanted = [tensor.numpy() for tensor in expected]
    outputs = [not np.array_equal(*pair) for pair in zip(wanted, arrays, strict=True)]
    actual = [
        tvm.runtime.tensor(_poison(a) if is_output else a, device)
        for a, is_output in zip(arrays, outputs, strict=True)
    ]
    kernel(*actual)
    errors = [0.0]
    for want, got, is_output in zip(wanted, actual, outputs, strict=True):
        if is_output:
            w, g = want.astype(np.float64), got.numpy().astype(np.float64)
            undefined = np.isnan(w) & np.isnan(g)  # such as the square root of a negative input
            w, g = np.where(undefined, 0, w), np.where(undefined, 0, g)
            errors.append(float(np.linalg.norm(g - w) / (np.linalg.norm(w) or 1.0)))
    return max(errors, key=lambda error: (np.isnan(error), error))


def _poison(array: np.ndarray) -> np.ndarray:
    return np.full_like(array, np.nan if array.dtype.kind == "f" else 77)


def _random(rng: np.random.Generator, param: Any) -> np.ndarray:
    shape = [int(extent) for extent in param.ty.shape]
    dtype = str(param.ty.dtype)
    if dtype.startswith("float"):
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


if __name__ == "__main__":
    sys.exit(main())
