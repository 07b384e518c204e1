"""Damaged and contradictory ONNX models: each is refused by an error of ours, or computed right.

Usage: python -m bench.mutate_onnx [--seed 0] [--count 1000] [--device cpu|emulated]

Each seed takes a small model, changes one to three things in it (types, attributes, shapes, raw
data, names, edges, bytes), and imports it. What is not refused runs, through TVM's CPU build or
emulated, and is compared with ONNX Runtime where that takes the model. A worker has so much
memory and time that a model of a few kilobytes needs.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import tvm

from bench.isolated import Crash, run_jobs
from bench.node_cases import run_compiled, run_imported
from bench.onnx_mutations import mutated
from bench.onnx_random import onnxruntime_outputs
from tvm_tile.errors import TileError
from tvm_tile.frontend import import_model

STATUSES = ("refused", "right", "not compared", "wrong", "untyped", "crash")
_MEMORY_BYTES = 6 << 30  # beyond what the libraries take when they are loaded
_MAX_ELEMENTS = 1 << 20  # of the inputs of a model that is run


def make_judge(device: str, limit_memory: bool = True) -> Callable[[str], tuple[str, str]]:
    """In a worker process: a function from a seed to (status, detail)."""
    run = run_imported if device == "cpu" else run_compiled(device)
    if limit_memory:
        used = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        limit = used * resource.getpagesize() + _MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def judge(seed: str) -> tuple[str, str]:
        data, what = mutated(int(seed))
        try:
            model = onnx.ModelProto.FromString(data)
        except Exception:  # a file of it is refused when it is read; checked by the tests
            return "refused", what
        inputs = _inputs(model, int(seed))
        try:
            if inputs is None:
                import_model(model)
                return "not compared", f"{what}: inputs of no tensor type, or too large"
            outputs = run(model, inputs)
        except tvm.error.InternalError as error:
            if device == "cpu" and not _imports(model):
                return "untyped", f"{what}: InternalError: {' '.join(str(error).split())[:300]}"
            return "not compared", f"{what}: TVM's CPU build: {' '.join(str(error).split())[:200]}"
        except TileError as error:
            return "refused", f"{what}: {type(error).__name__}: {' '.join(error.current.split())}"
        except Exception as error:  # any other is a finding
            text = " ".join(str(error).split())[:300]
            return "untyped", f"{what}: {type(error).__name__}: {text}"
        try:
            expected = onnxruntime_outputs(model, inputs)
        except Exception as error:  # ONNX Runtime refuses it
            return "not compared", f"{what}: {str(error)[:200]}"
        for ours, theirs in zip(outputs, expected, strict=True):
            if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
                return "wrong", f"{what}: {ours.dtype}{ours.shape}, {theirs.dtype}{theirs.shape}"
            if not np.allclose(
                ours.astype("float64"), theirs.astype("float64"), 1e-3, 1e-3, equal_nan=True
            ):
                return "wrong", f"{what}: other values"
        return "right", what

    return judge


def _imports(model: onnx.ModelProto) -> bool:
    """Whether the front door takes a model, so that what failed is behind it."""
    try:
        import_model(model)
    except Exception:
        return False
    return True


def _inputs(model: onnx.ModelProto, seed: int) -> tuple[np.ndarray, ...] | None:
    """Random numbers for every input; ``None`` where there are too many, or no such type."""
    rng = np.random.default_rng(seed)
    held = {tensor.name for tensor in model.graph.initializer}
    arrays = []
    for value in model.graph.input:
        if value.name in held:
            continue
        optional = value.type.optional_type.elem_type.tensor_type
        tensor = optional if value.type.HasField("optional_type") else value.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        code = tensor.elem_type
        if min(shape, default=0) < 0 or np.prod(shape, dtype=float) > _MAX_ELEMENTS:
            return None
        try:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(code)
        except KeyError:
            return None
        arrays.append(np.asarray(2 * rng.normal(size=shape)).astype(dtype))
    return tuple(arrays)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one model")
    parser.add_argument("--verbose", action="store_true", help="print the refused ones, too")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    seeds = [str(arguments.seed + i) for i in range(arguments.count)]
    results = run_jobs(
        partial(make_judge, arguments.device),
        seeds,
        workers=arguments.workers,
        timeout=arguments.timeout,
    )
    for seed, result in results:
        status, detail = ("crash", str(result)) if isinstance(result, Crash) else result
        counts[status] += 1
        if arguments.verbose or status in ("wrong", "untyped", "crash", "not compared"):
            print(f"{status:12} {seed}: {detail}", flush=True)
    print(", ".join(f"{status} {counts[status]}" for status in STATUSES))
    return int(any(counts[status] for status in ("wrong", "untyped", "crash")))


if __name__ == "__main__":
    sys.exit(main())
