"""Constants of two values become comparisons of indices, where their values say so, and positions
indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from cpu_build import CPU
from tvm import relax, tirx
from tvm.relax import op

from tvm_tile.passes import InlineConstants
from tvm_tile.passes.operators.inline_constants import _find_steps

INJECTIVE, REDUCING = 2, 3
Body = Callable[[Any], Any]


def legalized(body: Body, shape: tuple[int, ...] = (2, 20, 24), dtype: str = "float32") -> Any:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(body(x))
        builder.emit_func_output(output)
    passes = [relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern()]
    return tvm.transform.Sequential(passes)(builder.get())


def constants(mod: Any) -> list[Any]:
    """Shapes of what is handed to kernels."""
    found: list[Any] = []
    relax.analysis.post_order_visit(
        mod["main"],
        lambda e: found.append(tuple(map(int, e.ty.shape))) if is_constant(e) else None,
    )
    return found


def is_constant(expr: Any) -> bool:
    return isinstance(expr, tvm.ir.Constant) and isinstance(expr.ty, relax.TensorType)


def outputs(mod: Any, array: np.ndarray) -> list[np.ndarray]:
    machine = relax.VirtualMachine(tvm.compile(mod, CPU), tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(array))
    return [o.numpy() for o in ([got] if hasattr(got, "numpy") else got)]


def check(body: Body, dtype: str = "float32") -> Any:
    """The module after the pass, which computes what it did before."""
    before = legalized(body, dtype=dtype)
    after = InlineConstants()(before)
    relax.analysis.well_formed(after)
    array = np.random.default_rng(0).integers(-9, 9, (2, 20, 24)).astype(dtype)
    for got, want in zip(outputs(after, array), outputs(before, array), strict=True):
        np.testing.assert_array_equal(got, want)
    return relax.transform.DeadCodeElimination()(after)


def triangle(offset: int = 0) -> np.ndarray:
    return np.tril(np.ones((20, 24), "bool"), offset)


LOW = relax.const(np.float32(-np.inf))
BANDS: dict[str, Body] = {
    "kept": lambda x: op.where(relax.const(triangle()), x, LOW),
    "hidden": lambda x: op.where(relax.const(~triangle(3)), LOW, x),
    "of all batches": lambda x: op.where(relax.const(np.stack([triangle(-2)] * 2)), x, LOW),
    "with an axis of one": lambda x: op.where(relax.const(triangle(4)[None]), x, LOW),
    "a window": lambda x: op.where(relax.const(np.triu(triangle(5), -3)), x, LOW),
    "around a window": lambda x: op.where(relax.const(~np.triu(triangle(5), -3)), x, LOW),
    "added": lambda x: op.add(x, relax.const(np.where(triangle(), 0, -1e9).astype("float32"))),
    "multiplied": lambda x: op.multiply(x, relax.const(triangle(1).astype("float32"))),
    "one row": lambda x: op.where(relax.const(np.arange(24)[None] < 7), x, LOW),
}


@pytest.mark.parametrize("name", BANDS)
def test_bands_are_compared(name: str) -> None:
    after = check(BANDS[name])
    assert constants(after) == []
    (func,) = (f for f in after.functions.values() if isinstance(f, tirx.PrimFunc))
    assert len(func.params) == 2
    selects: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tirx.Select, selects.append), order="pre")
    assert selects


POSITIONS: dict[str, Body] = {
    "of columns": lambda x: op.add(x, relax.const(np.arange(24, dtype="int32"))),
    "of rows": lambda x: op.add(x, relax.const(np.arange(20, dtype="int32")[None, :, None] * -3)),
    "from a start": lambda x: op.less(x, relax.const(np.arange(-7, 17, dtype="int32"))),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_are_indices(name: str) -> None:
    assert constants(check(POSITIONS[name], "int32")) == []


def test_integers_that_32_bits_do_not_hold_are_read() -> None:
    far = np.arange(24, dtype="int64") << 40
    assert len(constants(check(lambda x: op.add(x, relax.const(far, "int64")), "int64"))) == 1


def test_nothing_has_no_steps() -> None:
    assert _find_steps(np.zeros((0, 5), "int64")) is None


def test_integers_stay_exact() -> None:
    values = np.where(triangle(), 2**62 + 1, -(2**62) - 1)
    assert constants(check(lambda x: op.add(x, relax.const(values, "int64")), "int64")) == []


NO_BANDS: dict[str, np.ndarray] = {
    "one element more": triangle() | (np.arange(480).reshape(20, 24) == 22),
    "another in each batch": np.stack([triangle(), triangle(1)]),
    "all alike": np.ones((20, 24), "bool"),
    "random": np.random.default_rng(1).integers(0, 2, (20, 24)).astype("bool"),
}


@pytest.mark.parametrize("name", NO_BANDS)
def test_others_are_read(name: str) -> None:
    array = NO_BANDS[name]
    after = check(lambda x: op.where(relax.const(array), x, LOW))
    assert array.shape in constants(after)


def test_what_something_else_reads_stays() -> None:
    mask = relax.const(triangle().astype("float32"))

    def body(x: Any) -> Any:
        return op.matmul(op.multiply(x, mask), op.permute_dims(mask))

    found = constants(check(body))
    assert found in ([(20, 24)], [(24, 20)])


def test_a_product_with_a_triangle_reads_it() -> None:
    square = relax.const(np.tril(np.ones((24, 24), "float32")))
    assert constants(check(lambda x: op.matmul(x, square))) == [(24, 24)]


def test_several_calls_of_one_function() -> None:
    """One function, called with a band and with another mask."""

    def body(x: Any) -> Any:
        first = op.where(relax.const(triangle()), x, LOW)
        other = relax.const(NO_BANDS["random"])
        return relax.Tuple([first, op.where(other, x, LOW)])

    assert (20, 24) in constants(check(body))


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan, -65504.0, 1.0 + 2.0**-23])
def test_one_element_is_written_out(value: float) -> None:
    limit = relax.const(np.float32(value))
    after = check(lambda x: op.where(op.greater(x, relax.const(np.float32(0))), x, limit))
    assert constants(after) == []
