"""ONNX's own node tests: which there are, and whether one of them passes on a backend."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import tvm
from onnx.backend.test.loader import load_model_tests
from tvm import relax

import tvm_tile
from bench.cpu_build import run_on_cpu
from tvm_tile.errors import TileError, UnsupportedOperatorError
from tvm_tile.frontend import import_model
from tvm_tile.frontend.onnx.model import bind_constants, free_inputs
from tvm_tile.frontend.onnx.random import draws_numbers
from tvm_tile.runtime.held import initial_array

FLOATS = ("float16", "bfloat16", "float32", "float64")
# One float32 rounding more or less, where results cancel to nearly zero.
ABSOLUTE_TOLERANCE = 1e-5

Arrays = tuple[np.ndarray, ...]
Run = Callable[[onnx.ModelProto, Arrays], Sequence[np.ndarray]]


@dataclass(frozen=True, slots=True)
class NodeCase:
    """One node test: a model of (usually) one node, with inputs and expected outputs."""

    name: str
    model: onnx.ModelProto
    inputs: Arrays
    expected: Arrays
    relative_tolerance: float

    @property
    def operator(self) -> str:
        """The operator under test; the first one of an expanded definition."""
        return str(self.model.graph.node[0].op_type) if self.model.graph.node else "none"

    @property
    def dtypes(self) -> frozenset[str]:
        return frozenset(array.dtype.name for array in (*self.inputs, *self.expected))


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a case went: ``passed``, ``unsupported`` (by the importer), or ``failed``."""

    status: str
    detail: str = ""


def float_cases() -> tuple[NodeCase, ...]:
    """All node tests on tensors, at least one of them of a floating-point type."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tests are computed on loading, infinities included
        tests = load_model_tests(kind="node")
    cases = []
    for test in tests:
        inputs, expected = test.data_sets[0]
        arrays = (*inputs, *expected)
        if all(isinstance(array, np.ndarray) for array in arrays) and any(
            array.dtype.name in FLOATS for array in arrays
        ):
            case = NodeCase(test.name, test.model, tuple(inputs), tuple(expected), test.rtol)
            cases.append(case)
    return tuple(cases)


def judge(case: NodeCase, run: Run) -> Verdict:
    """Run a case: first as it is, then with its parameters as constants.

    Shapes, axes, counts, indices and scales are inputs in ONNX; compilers need many of them as
    constants, which they are in nearly every model.
    """
    verdict = _attempt(case, run, {})
    if verdict.status == "passed":
        return verdict
    names = [value.name for value in free_inputs(case.model.graph)]
    scales = case.operator in ("Resize", "Upsample")
    parameters = {
        name: array
        for i, (name, array) in enumerate(zip(names, case.inputs, strict=False))
        if array.dtype.kind in "iub" or (scales and i > 0)
    }
    if not parameters:
        return verdict
    second = _attempt(case, run, parameters)
    return second if second.status != "unsupported" else verdict


def _attempt(case: NodeCase, run: Run, constants: Mapping[str, np.ndarray]) -> Verdict:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    names = [value.name for value in free_inputs(model.graph)]
    inputs = tuple(
        array for name, array in zip(names, case.inputs, strict=False) if name not in constants
    )
    bind_constants(model, constants)
    try:
        outputs = run(model, inputs)
    except (UnsupportedOperatorError, tvm.error.OpNotImplemented) as error:
        return Verdict("unsupported", _short(error))
    except Exception as error:  # any failure is a verdict
        return Verdict("failed", _short(error))
    expected = case.expected
    if draws_numbers(model.graph):  # other numbers, of the same type and shape
        kinds = [(array.shape, array.dtype) for array in expected]
        if [(array.shape, array.dtype) for array in outputs] == kinds:
            expected = tuple(outputs)
    return compare(outputs, expected, case.relative_tolerance)


def _short(error: Exception) -> str:
    """One line: the first that a compiler calls an error, else the last."""
    text = error.current if isinstance(error, TileError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    errors = [line for line in lines if line.startswith("error:")]
    line = errors[0].rpartition("/")[2] if errors else lines[0 if len(lines) == 1 else -1]
    return f"{type(error).__name__}: {line}"[:200]


def compare(outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray], rtol: float) -> Verdict:
    """``passed`` when counts, shapes, element types and values agree."""
    if len(outputs) != len(expected):
        return Verdict("failed", f"{len(outputs)} outputs instead of {len(expected)}")
    for i, (output, wanted) in enumerate(zip(outputs, expected, strict=True)):
        if output.shape != wanted.shape or output.dtype != wanted.dtype:
            found = f"{output.dtype.name}{list(output.shape)}"
            return Verdict(
                "failed", f"output {i} is {found}, not {wanted.dtype.name}{list(wanted.shape)}"
            )
        if not _close(output, wanted, rtol):
            return Verdict("failed", f"output {i} has other values")
    return Verdict("passed")


def _close(output: np.ndarray, wanted: np.ndarray, rtol: float) -> bool:
    if wanted.dtype.name not in FLOATS:
        return bool(np.array_equal(output, wanted))
    # A half-precision result may be off by one unit in its last place.
    epsilon = float(ml_dtypes.finfo(wanted.dtype).eps)
    rtol = max(rtol, 2 * epsilon)
    atol = max(ABSOLUTE_TOLERANCE, epsilon if epsilon > 1e-4 else 0.0)
    return bool(
        np.allclose(
            output.astype(np.float64), wanted.astype(np.float64), rtol, atol, equal_nan=True
        )
    )


def run_stock(model: onnx.ModelProto, inputs: Arrays) -> Sequence[np.ndarray]:
    """TVM's importer and its default CPU build, without anything of tvm_tile."""
    from tvm.relax.frontend.onnx import from_onnx

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mod = from_onnx(model)
    return _run_on_cpu(mod, inputs)


def run_imported(model: onnx.ModelProto, inputs: Arrays) -> Sequence[np.ndarray]:
    """Our front door and our loops on the CPU: tells import from scheduling faults."""
    imported = import_model(model)
    state = map(initial_array, imported.effects.state)
    return run_on_cpu(imported.mod, [*inputs, *state])[: len(imported.outputs)]


def run_compiled(device: str) -> Run:
    """Everything of tvm_tile, for a device."""

    def run(model: onnx.ModelProto, inputs: Arrays) -> Sequence[np.ndarray]:
        outputs = tvm_tile.compile(model, device=device)(*inputs)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    return run


def _run_on_cpu(mod: tvm.IRModule, inputs: Arrays) -> Sequence[np.ndarray]:
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    outputs: Any = machine["main"](*[tvm.runtime.tensor(array) for array in inputs])
    return [o.numpy() for o in ([outputs] if hasattr(outputs, "numpy") else outputs)]
