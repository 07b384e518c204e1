"""Random ONNX nodes through our front door, compared with ONNX Runtime.

Usage: python -m bench.onnx_random [--seed 0] [--count 1000] [--device cpu|emulated] [--only pool]

``cpu`` is our import with TVM's CPU build, which is fast. Where ONNX Runtime lacks a form, or we
differ from it, ONNX's own reference evaluator is asked. Forms that both refuse are left out.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from bench.isolated import Crash, run_jobs
from bench.node_cases import run_compiled, run_imported
from bench.onnx_forms import Form, random_form
from tvm_tile.errors import TileError
from tvm_tile.frontend.onnx.model import free_inputs

#: right; refused by an error of ours; wrong; another exception; no reference takes the form
STATUSES = ("right", "refused", "wrong", "failed", "no reference", "crash")
Judge = Callable[[str], tuple[str, str]]


def make_judge(device: str, only: str) -> Judge:
    """In a worker process: a function from a seed to (status, detail)."""
    run = run_imported if device == "cpu" else run_compiled(device)

    def judge(seed: str) -> tuple[str, str]:
        form = random_form(int(seed), only)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                model = form.model()
                wanted = references(form, model)
                if not wanted:
                    return "no reference", str(form)
                outputs = run(model, form.arguments())
            except TileError as error:
                reason = " ".join(error.current.split())
                return "refused", f"{form}: {type(error).__name__}: {reason}"
            except Exception as error:  # any other is a finding
                text = " ".join(str(error).split())[:200]
                return "failed", f"{form}: {type(error).__name__}: {text}"
        differences = [difference(form, outputs, reference) for reference in wanted]
        if "" in differences:
            return "right", str(form)
        return "wrong", f"{form}: {differences[0]}"

    return judge


def references(form: Form, model: onnx.ModelProto) -> list[Sequence[np.ndarray]]:
    """What ONNX Runtime and ONNX's reference evaluator compute, where they take the model."""
    found = []
    for evaluate in (onnxruntime_outputs, _reference):
        try:
            found.append([np.asarray(output) for output in evaluate(model, form.arguments())])
        except Exception:  # whatever an implementation raises for what it lacks
            continue
    return found


def onnxruntime_outputs(
    model: onnx.ModelProto, arrays: Sequence[np.ndarray]
) -> Sequence[np.ndarray]:
    """What ONNX Runtime computes on one processor."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_inputs()]
    outputs: Sequence[np.ndarray] = session.run(None, dict(zip(names, arrays, strict=True)))
    return outputs


def _reference(model: onnx.ModelProto, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    names = [value.name for value in free_inputs(model.graph)]
    feeds = dict(zip(names, arrays, strict=True))
    outputs: Sequence[np.ndarray] = ReferenceEvaluator(model).run(None, feeds)
    return outputs


def difference(form: Form, outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str:
    """What differs; nothing where all outputs agree."""
    for i, (output, wanted) in enumerate(zip(outputs, expected, strict=True)):
        if output.shape != wanted.shape or output.dtype != wanted.dtype:
            return f"output {i} is {output.dtype}{output.shape}, not {wanted.dtype}{wanted.shape}"
        if wanted.dtype.kind == "f":
            a, b = output.astype("float64"), wanted.astype("float64")
            finite = np.abs(b[np.isfinite(b)])
            atol = form.tolerance * max(1.0, float(finite.max()) if finite.size else 1.0)
            if not np.allclose(a, b, rtol=0, atol=atol, equal_nan=True):
                return f"output {i} differs by {np.nanmax(np.abs(a - b)):.2g}"
        elif _steps(output, wanted) > (
            1 if wanted.dtype.itemsize == 1 and form.is_quantized else 0
        ):
            return f"output {i} has other integers"
    return ""


def _steps(output: np.ndarray, wanted: np.ndarray) -> float:
    if not output.size:
        return 0.0
    return float(np.abs(output.astype("float64") - wanted.astype("float64")).max())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="makers whose name contains this")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one form")
    arguments = parser.parse_args()
    seeds = [str(arguments.seed + i) for i in range(arguments.count)]
    counts: Counter[str] = Counter()
    results = run_jobs(
        partial(make_judge, arguments.device, arguments.only),
        seeds,
        workers=arguments.workers,
        timeout=arguments.timeout,
    )
    for seed, result in results:
        status, detail = ("crash", str(result)) if isinstance(result, Crash) else result
        counts[status] += 1
        if status != "right":
            print(f"{status:12} {seed}: {detail}", flush=True)
    print(", ".join(f"{status} {counts[status]}" for status in STATUSES))
    return int(any(counts[status] for status in ("wrong", "failed", "crash")))


if __name__ == "__main__":
    sys.exit(main())
