"""TVM's CPU build, which kernels are compared with, computes NaN and infinities as written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import relax, te, tirx

from tvm_tile.build.exact.in_tvm import exact_in_tvm
from tvm_tile.passes.operators import fold_constants
from tvm_tile.passes.operators.fold_constants import FoldConstants
from tvm_tile.verify.reference import References

X = np.array([np.nan, 1, np.inf, 2, -np.inf])
Y = np.array([1, np.nan, np.inf, 3, 0])
DTYPES = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
}
WRITTEN: dict[str, tuple[Callable[[Any, Any], Any], np.ndarray]] = {
    "max": (tirx.max, np.maximum(X, Y)),
    "min": (tirx.min, np.minimum(X, Y)),
    "max of min": (lambda x, y: tirx.max(tirx.min(x, y), x), np.maximum(np.minimum(X, Y), X)),
    "x != y": (lambda x, y: _number(tirx.NE(x, y)), X != Y),
    "x == y": (lambda x, y: _number(tirx.EQ(x, y)), X == Y),
}


def _number(truth: Any) -> Any:
    return tirx.Select(truth, tirx.const(1.0, "float32"), tirx.const(0.0, "float32"))


def function(write: Callable[[Any, Any], Any], dtype: str) -> Any:
    x, y = (te.placeholder(X.shape, dtype, name) for name in "xy")
    result = te.compute(X.shape, lambda i: write(x[i], y[i]).astype(dtype), "result")
    return te.create_prim_func([x, y, result])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WRITTEN)
def test_as_written(name: str, dtype: str) -> None:
    write, wanted = WRITTEN[name]
    given = [array.astype(DTYPES[dtype]) for array in (X, Y, np.zeros_like(X))]
    references = References({name: function(write, dtype)})
    found = references.by_tvm(name, given)[-1].astype("float64")
    np.testing.assert_array_equal(found, wanted.astype("float64"))


def test_what_is_no_number_stays_as_it_is_through_a_row() -> None:
    x = te.placeholder((2, 3), "float32", "x")
    along = te.reduce_axis((0, 3))
    largest = te.compute((2,), lambda i: te.max(x[i, along], axis=along), "largest")
    references = References({"f": te.create_prim_func([x, largest])})
    rows = np.array([[1, np.nan, 2], [3, 1, 2]], "float32")
    np.testing.assert_array_equal(
        references.by_tvm("f", [rows, np.zeros(2, "float32")])[-1], [np.nan, 3]
    )


def test_integers_stay() -> None:
    func = function(lambda x, y: tirx.max(x, y) * _number(tirx.NE(x, y)).astype("int32"), "int32")
    assert exact_in_tvm(func).same_as(func)


def larger_of(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i: tirx.max(x[i], y[i]), "larger")


def test_constants_are_folded_as_kernels_would() -> None:
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType(X.shape, "float32"))
    both = [relax.const(array.astype("float32")) for array in (X, Y)]
    with builder.function("main", [data]):
        with builder.dataflow():
            larger = builder.emit_te(larger_of, *both)
            output = builder.emit_output(builder.call_te(larger_of, data, larger))
        builder.emit_func_output(output)
    before = builder.get()
    after = FoldConstants()(before)
    calls: list[Any] = []
    relax.analysis.post_order_visit(
        after["main"], lambda node: calls.append(node) if isinstance(node, relax.Call) else None
    )
    (call,) = calls
    folded = call.args[1].fields[1].value.numpy()
    np.testing.assert_array_equal(folded, np.maximum(X, Y).astype("float32"))
    assert after[call.args[0]].same_as(before[call.args[0]])  # what kernels are made of


def both_ways(x: te.Tensor, y: te.Tensor) -> list[te.Tensor]:
    return [larger_of(x, y), te.compute(x.shape, lambda i: tirx.min(x[i], y[i]), "smaller")]


def of_constants(x: np.ndarray, y: np.ndarray) -> Any:
    """What functions make of two constants, one behind the other, the last one a tuple."""
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType(x.shape, "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            larger = builder.emit_te(larger_of, *map(relax.const, (x, y)))
            again = builder.emit_te(larger_of, larger, larger)
            parts = builder.emit_te(both_ways, again, relax.const(y))
            smaller = builder.emit(relax.TupleGetItem(parts, 1))
            output = builder.emit_output(builder.call_te(larger_of, data, smaller))
        builder.emit_func_output(output)
    return builder.get()


def first_constants(mod: Any) -> list[np.ndarray]:
    binding = mod["main"].body.blocks[0].bindings[0]
    return [own.value.numpy() for own in binding.value.fields]


def test_constants_are_folded_behind_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Any] = []
    original = fold_constants._computed

    def noted(*given: Any) -> Any:
        computed.append(given)
        return original(*given)

    monkeypatch.setattr(fold_constants, "_computed", noted)
    fold_constants._known_value.cache_clear()
    generator = np.random.default_rng(0)
    x, y, z = generator.standard_normal((3, 7)).astype("float32")
    for other, asked in ((y, 2), (y, 2), (z, 4)):  # other numbers are other constants
        found = first_constants(FoldConstants()(of_constants(x, other)))
        np.testing.assert_array_equal(found, [np.maximum(x, other), other])
        assert len(computed) == asked
