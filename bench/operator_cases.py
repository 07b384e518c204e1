"""PyTorch's own samples of its operators, and whether they come out right on a backend."""

from __future__ import annotations

import copy
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.utils import _pytree as pytree

import tvm_tile
from bench.cpu_build import run_on_cpu
from bench.operator_ties import Ties, ties_of
from tvm_tile.errors import TileError
from tvm_tile.frontend import import_model
from tvm_tile.frontend.torch.decompose import decomposed
from tvm_tile.frontend.torch.pairs.program import with_pairs
from tvm_tile.runtime.held import initial_array
from tvm_tile.stages.forced import Forced

if "expecttest" not in sys.modules:  # PyTorch's test suite imports it; its samples need it not
    sys.modules["expecttest"] = types.ModuleType("expecttest")
    sys.modules["expecttest"].TestCase = unittest.TestCase  # type: ignore[attr-defined]
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

# How many samples of each element type are run, spread evenly over PyTorch's list.
COUNTS = {torch.float32: 12, torch.int64: 4, torch.bool: 4, torch.complex64: 4}

FAILED_CALL = "when called:"  # begins what is said of errors of a compiled model

_LINEAR_ALGEBRA = (
    *("cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "lu", "lu_solve", "lu_unpack"),
    *("logdet", "inverse", "matrix_exp", "norm.nuc", "ormqr", "pca_lowrank", "pinverse", "qr"),
    *("svd", "svd_lowrank", "symeig", "triangular_solve", "ops.aten._linalg", "lobpcg"),
)
_RANDOM = (
    *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal"),
    *("rand", "uniform", "poisson", "dropout", "fractional_max_pool", "gumbel_softmax"),
)
_EMPTY = ("empty", "new_empty")  # their numbers are arbitrary

Tensors = tuple[torch.Tensor, ...]
# The results; None where it was compiled only.
Run = Callable[[torch.export.ExportedProgram, Tensors], Sequence[np.ndarray] | None]


@dataclass(frozen=True, slots=True)
class Sample:
    """One call of an operator.

    Attributes:
        index: its place in PyTorch's list.
        origin: which list that is; see :func:`bench.operator_samples.drawn`.
        call: takes the tensors among its arguments, gives the tensors among its results.
        tensors: these arguments.
        expected: PyTorch's results.
        exact: PyTorch's results of the same numbers in float64, where it has them.
        ties: what PyTorch leaves open about the last result.
    """

    index: int
    call: Callable[..., Tensors]
    tensors: Tensors
    expected: Tensors
    exact: Tensors | None
    ties: Ties | None = None
    origin: str = "sample"

    @property
    def name(self) -> str:
        """What tells it from the operator's others."""
        return f"{self.origin} {self.index}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a sample went.

    Attributes:
        status: ``right``, ``compiled`` (and not run), ``refused`` (by name), ``wrong`` or
            ``untyped``.
        detail: why it is not right.
        used: the operators of the program, as exported and as broken down.
    """

    status: str
    detail: str = ""
    used: tuple[str, ...] = ()


def operators() -> dict[str, OpInfo]:
    """The operators of the database by name, without those that are left out."""
    return {name(info): info for info in op_db if left_out(info) is None}


def name(info: OpInfo) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else str(info.name)


def left_out(info: OpInfo) -> str | None:
    """Why an operator is not among those tested."""
    short = info.name.rpartition("nn.functional.")[2].removesuffix("_like")
    if info.name.startswith(("linalg.", "ops.aten.linalg")) or name(info) in _LINEAR_ALGEBRA:
        return "linear algebra"
    if info.name.startswith("sparse.") or "sparse" in info.name:
        return "sparse"
    if short.startswith(_RANDOM) or "dropout" in short:
        return "random"
    if short.startswith(_EMPTY):
        return "uninitialised"
    return None


def samples(
    info: OpInfo, dtype: torch.dtype, most: int | None = None, *, reference: bool = False
) -> list[Sample]:
    """Usable samples: PyTorch runs them, and tensors go in and come out.

    Args:
        info: the operator.
        dtype: their element type.
        most: how many; as many as the table has of that type where it is None.
        reference: whether those are among them, too, with which PyTorch compares NumPy.
    """
    if dtype not in info.supported_dtypes("cpu"):
        return []
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = info.reference_inputs if reference else info.sample_inputs
        listed = list(inputs("cpu", dtype, requires_grad=False))
        kept = []
        for index in spread(len(listed), COUNTS[dtype] if most is None else most):
            sample = usable(info, index, listed[index])
            if sample is not None:
                kept.append(sample)
    return kept


def spread(count: int, most: int) -> list[int]:
    """Places in a list, evenly over it."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, most))})


def usable(info: OpInfo, index: int, sample: Any, origin: str = "sample") -> Sample | None:
    """One of PyTorch's samples, as :func:`sample_of` makes it."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*values: torch.Tensor) -> Any:
        full = list(leaves)
        for place, value in zip(places, values, strict=True):
            full[place] = value
        source, args, kwargs = pytree.tree_unflatten(full, spec)
        return info.op(source, *args, **kwargs)

    ties = ties_of(info.name, sample.input, sample.args, sample.kwargs)
    found = sample_of(index, call, tuple(leaves[place] for place in places), ties)
    return None if found is None else replace(found, origin=origin)


def sample_of(
    index: int, function: Callable[..., Any], given: Tensors, ties: Ties | None = None
) -> Sample | None:
    """A call of a function of tensors; None where PyTorch does not run it, no tensor comes out, one
    is not plain, or another call gives others, for it draws random numbers. Complex tensors go in
    and come out as real ones of their parts."""
    if not given or any(t.layout != torch.strided for t in given):
        return None
    are_complex = [t.is_complex() for t in given]
    tensors = tuple(copied(_real(t)) for t in given)

    def call(*values: torch.Tensor) -> Tensors:
        pairs = zip(values, are_complex, strict=True)
        results = pytree.tree_leaves(
            function(*(torch.view_as_complex(t) if pair else t for t, pair in pairs))
        )
        if not all(isinstance(result, torch.Tensor) for result in results):
            raise TypeError("results that are no tensors")
        return tuple(map(_real, results))

    try:
        with torch.no_grad():
            expected = tuple(t.clone() for t in call(*map(copied, tensors)))
            again = call(*map(copied, tensors))
    except Exception:  # a sample of an error, or one that needs a gradient
        return None
    if not expected or any(t.layout != torch.strided for t in expected):
        return None
    if any(
        t.device.type != "cpu" for t in expected
    ):  # a sample about devices, where there is a GPU
        return None
    if not all(map(_is_same, expected, again)):
        return None
    return Sample(index, call, tensors, expected, _exact(call, tensors), ties)


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one, other) or torch.allclose(one, other, equal_nan=True)


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same strides."""
    return copy.deepcopy(tensor.detach())


def _exact(call: Callable[..., Tensors], tensors: Tensors) -> Tensors | None:
    widened = (t.double() if t.is_floating_point() else copied(t) for t in tensors)
    # Of integers PyTorch makes numbers of its default type.
    usual = torch.get_default_dtype()
    if not any(t.is_floating_point() for t in tensors):
        torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            return call(*widened)
    except Exception:  # float64 does not fit something else in the call
        return None
    finally:
        torch.set_default_dtype(usual)


class Together(torch.nn.Module):
    """Several samples as one model: their tensors one after the other, so their results."""

    def __init__(self, chosen: Sequence[Sample]) -> None:
        super().__init__()
        self._chosen = tuple(chosen)

    def forward(self, *tensors: torch.Tensor) -> Tensors:
        results: list[torch.Tensor] = []
        left = list(tensors)
        for sample in self._chosen:
            count = len(sample.tensors)
            results += sample.call(*left[:count])
            left = left[count:]
        return tuple(results)


def judge(chosen: Sequence[Sample], run: Run) -> list[Verdict]:
    """Run samples: all in one model, and where that fails each alone."""
    verdicts = _attempt(chosen, run)
    if len(chosen) > 1 and any(v.status not in ("right", "compiled") for v in verdicts):
        return [_attempt([sample], run)[0] for sample in chosen]
    return verdicts


def _attempt(chosen: Sequence[Sample], run: Run) -> list[Verdict]:
    tensors = tuple(copied(t) for sample in chosen for t in sample.tensors)
    used: set[str] = set()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            found = run(_exported(Together(chosen), tensors, used), tensors)
    except TileError as error:
        return [Verdict("refused", _short(error), tuple(used))] * len(chosen)
    except Exception as error:  # any failure is a verdict
        return [Verdict("untyped", _short(error), tuple(used))] * len(chosen)
    if found is None:
        return [Verdict("compiled", used=tuple(used))] * len(chosen)
    verdicts, left = [], list(found)
    for sample in chosen:
        count = len(sample.expected)
        verdicts.append(compare(left[:count], sample, tuple(used)))
        left = left[count:]
    return verdicts


def _exported(
    module: torch.nn.Module, tensors: Tensors, used: set[str]
) -> torch.export.ExportedProgram:
    """The program broken down, and the operators that it had before and has now."""
    try:
        program = torch.export.export(module.eval(), tensors)
    except Exception:  # the front door turns them into errors of its own
        import_model(module, example_inputs=tensors)
        raise
    used |= _operators(program)
    try:
        program = decomposed(with_pairs(program))
    except Exception:
        return program  # the front door finds the same
    used |= _operators(program)
    return program


def _operators(program: torch.export.ExportedProgram) -> set[str]:
    return {str(node.target) for node in program.graph.nodes if node.op == "call_function"}


def _short(error: Exception) -> str:
    text = error.current if isinstance(error, TileError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    line = lines[0] if isinstance(error, TileError) else lines[-1]
    return f"{type(error).__name__}: {line}"[:300]


def compare(found: Sequence[np.ndarray], sample: Sample, used: tuple[str, ...] = ()) -> Verdict:
    """``right`` where counts, shapes, element types, values and NaN agree."""
    if len(found) != len(sample.expected):
        return Verdict("wrong", f"{len(found)} results instead of {len(sample.expected)}", used)
    for i, (output, wanted) in enumerate(zip(found, sample.expected, strict=True)):
        dtype = str(wanted.dtype).removeprefix("torch.")
        if output.shape != tuple(wanted.shape) or output.dtype.name != dtype:
            kind = f"{output.dtype.name}{list(output.shape)}"
            wrong = f"result {i} is {kind}, not {dtype}{list(wanted.shape)}"
            return Verdict("wrong", wrong, used)
        exact = sample.exact[i] if sample.exact is not None else wanted
        eps = _eps(sample)
        # Of a float32 near its largest PyTorch's own may be infinite already.
        if not (_differs(output, wanted, eps) & _differs(output, exact, eps)).any():
            continue
        ties = sample.ties if i == len(found) - 1 else None
        if ties is None or not ties.allow(torch.from_numpy(output), wanted):
            return Verdict("wrong", f"result {i}: {_difference(output, wanted, eps)}", used)
    return Verdict("right", "", used)


def _differs(output: np.ndarray, wanted: torch.Tensor, eps: float) -> np.ndarray:
    """Which elements are not those that are wanted."""
    if not wanted.is_floating_point():
        return np.asarray(output != wanted.numpy())
    return _far(output, wanted, eps)


def _eps(sample: Sample) -> float:
    """The coarsest rounding among a sample's numbers; at least float32's, in which sums are."""
    kinds = {t.dtype for t in (*sample.tensors, *sample.expected) if t.is_floating_point()}
    return max(torch.finfo(dtype).eps for dtype in (torch.float32, *kinds))


def _far(output: np.ndarray, wanted: torch.Tensor, eps: float) -> np.ndarray:
    """Where two results differ by more than roundings, which grow with the terms of a sum."""
    exact = wanted.double().numpy()
    finite = np.abs(exact[np.isfinite(exact)])
    # Formulas of several steps lose digits; of 16 bits there are few to lose.
    relative, among_terms = (1e-4, 1e-6) if eps < 1e-6 else (4 * eps, eps)
    limit = max(1e-5, eps / 8) + among_terms * (finite.max() if finite.size else 0.0)
    return ~np.isclose(output.astype(np.float64), exact, rtol=relative, atol=limit, equal_nan=True)


def _difference(output: np.ndarray, wanted: torch.Tensor, eps: float) -> str:
    if not wanted.is_floating_point():
        differs = output != wanted.numpy()
        places = np.unravel_index(int(np.argmax(differs)), differs.shape)
        return f"{output[places]} instead of {wanted.numpy()[places]}"
    place = int(np.argmax(_far(output, wanted, eps)))
    found, exact = output.astype(np.float64).ravel(), wanted.double().numpy().ravel()
    return f"{found[place]:.7g} instead of {exact[place]:.7g}"


def run_imported(program: torch.export.ExportedProgram, tensors: Tensors) -> Sequence[np.ndarray]:
    """Our front door and our loops on the CPU: tells import from scheduling faults."""
    imported = import_model(program)
    state = map(initial_array, imported.effects.state)
    return run_on_cpu(imported.mod, [*(t.numpy() for t in tensors), *state], optimization=0)


def run_compiled(device: str, *, only_compile: bool = False) -> Run:
    """Everything of tvm_tile, for a device; operators each by itself, not joined."""
    options = Forced(coschedule=False, cache=False, parallel_builds=1)

    def run(program: torch.export.ExportedProgram, tensors: Tensors) -> Sequence[np.ndarray] | None:
        model = tvm_tile.compile(program, device=device, options=options)
        if only_compile:
            return None
        try:
            outputs = model(*tensors)
        except TileError as error:  # it was compiled: what then fails is no refusal
            raise RuntimeError(f"{FAILED_CALL} {_short(error)}") from error
        return [_array(o) for o in (outputs if isinstance(outputs, tuple) else (outputs,))]

    return run


def _array(output: Any) -> np.ndarray:
    if isinstance(output, torch.Tensor) and output.dtype == torch.bfloat16:  # unknown to NumPy
        return output.float().numpy().astype(ml_dtypes.bfloat16)
    return np.asarray(output)
