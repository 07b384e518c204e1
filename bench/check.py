"""Every kernel of a model against a CPU build of the same function, on random inputs.

    python -m bench.check --models swin_t bert_base --dtypes float32 [--device nvidia/h200]

Outputs are poisoned with NaN beforehand, so an element that no thread writes is found. The
reference is TVM's own CPU build of the unscheduled function.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from bench.candidates import build_functions
from bench.models import in_dtype

TOLERANCE = {"float32": 1e-4, "float16": 2e-2}


def main(argv: list[str] | None = None) -> int:
    """Check all kernels of all models; the exit status is the number of wrong ones."""
    from tests.models import BENCH_MODELS

    parser = argparse.ArgumentParser(prog="python -m bench.check", description=__doc__)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--device", default="nvidia/h200")
    arguments = parser.parse_args(argv)
    wrong = 0
    for name in arguments.models:
        case = next(entry for entry in BENCH_MODELS if entry.name == name).build()
        for dtype in arguments.dtypes:
            wrong += check_model(name, case, dtype, arguments.device)
    return min(wrong, 100)


def check_model(name: str, case: Any, dtype: str, device_name: str) -> int:
    """How many kernels of one model are wrong; each is printed."""
    from tvm import tirx

    from tvm_tile import find_device
    from tvm_tile.frontend import import_model
    from tvm_tile.passes import schedule_module
    from tvm_tile.pipeline import fuse

    device = find_device(device_name)
    model, _, example = in_dtype(case, dtype)
    imported = import_model(model, inputs=case.sizes, example_inputs=example)
    fused = fuse(imported.mod, device)
    scheduled, reports = schedule_module(fused, device)
    functions = {r.name: scheduled[r.name] for r in reports}
    module, built = build_functions(functions, device)
    wrong = 0
    for report in reports:
        if report.name not in built:
            print(f"UNBUILT {name} {dtype} {report.name}")
            continue
        func = fused[report.name]
        assert isinstance(func, tirx.PrimFunc)
        error = difference(func, module[report.name], device.kernel_language)
        if not error <= TOLERANCE[dtype]:
            wrong += 1
            print(f"WRONG {name} {dtype} {report.name} {report.rule} {report.tile}: {error:.1e}")
    print(f"{name} {dtype}: {len(reports) - wrong} of {len(reports)} kernels right", flush=True)
    return wrong


def difference(func: Any, kernel: Any, language: str) -> float:
    """Relative error of ``kernel`` against a CPU build of ``func``; NaN where one is."""
    import tvm

    reference = tvm.compile(func.with_attr("global_symbol", "reference"), target="llvm")
    device = tvm.cuda(0) if language == "cuda" else tvm.cpu()
    rng = np.random.default_rng(1)
    arrays = [_random(rng, p) for p in func.params]
    expected = [tvm.runtime.tensor(a) for a in arrays]
    actual = [tvm.runtime.tensor(a, device) for a in arrays]
    reference["reference"](*expected)
    kernel(*actual)
    errors = []
    for before, want, got in zip(arrays, expected, actual, strict=True):
        w, g = want.numpy().astype(np.float64), got.numpy().astype(np.float64)
        undefined = np.isnan(w) & np.isnan(g)  # such as the square root of a negative input
        w, g = np.where(undefined, 0, w), np.where(undefined, 0, g)
        if not np.array_equal(w, before.astype(np.float64), equal_nan=True):
            errors.append(float(np.linalg.norm(g - w) / (np.linalg.norm(w) or 1.0)))
    return max(errors) if errors else 0.0


def _random(rng: np.random.Generator, param: Any) -> np.ndarray:
    shape = [int(extent) for extent in param.ty.shape]
    dtype = str(param.ty.dtype)
    if dtype.startswith("float"):
        # Outputs are not told apart from inputs here: the kernel overwrites them all.
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


if __name__ == "__main__":
    sys.exit(main())
