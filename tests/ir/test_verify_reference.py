"""What kernels are compared with: functions in NumPy, on numbers from the whole range of a type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from kernel_cases import CASES
from kernels import prim_functions
from tvm import relax, te, tirx
from tvm.relax import op

from tvm_tile.device import find_device
from tvm_tile.verify.arguments import drawn, parameters
from tvm_tile.verify.compare import compare, tolerance
from tvm_tile.verify.model_inputs import places_in, whole_inputs
from tvm_tile.verify.reference import References

EMULATED = find_device("emulated")
EVERY = 25  # case: TVM's builds take their time
BYTES = np.arange(256, dtype=np.uint8)


@pytest.mark.parametrize("case", CASES[::EVERY], ids=lambda case: case.name)
def test_numpy_computes_what_tvm_builds(case: Any) -> None:
    for name, func in prim_functions(case, EMULATED).items():
        rng = np.random.default_rng(0)
        known = parameters(func)
        given = [np.zeros(p.shape, p.dtype) if p.is_output else drawn(p, rng) for p in known]
        references = References({name: func})
        pairs = zip(known, references(name, given), references.by_tvm(name, given), strict=True)
        assert not references.in_tvm
        for parameter, own, built in pairs:
            assert compare(own, built, tolerance(parameter.dtype.name, 4096)).is_right


def function(x: te.Tensor, *stages: Any) -> tirx.PrimFunc:
    """A function that computes one element after another, stage by stage."""
    values = [x]
    for number, stage in enumerate(stages):
        values.append(_staged(values[-1], stage, f"stage{number}"))
    return te.create_prim_func([x, values[-1]])


def _staged(of: te.Tensor, stage: Any, name: str) -> te.Tensor:
    return te.compute(of.shape, lambda i: stage(of[i]), name)


def computed(func: tirx.PrimFunc, given: np.ndarray, dtype: Any = np.uint8) -> np.ndarray:
    references = References({"f": func})
    found = references("f", [given, np.zeros(given.shape, dtype)])[-1]
    assert not references.in_tvm
    return found


def test_narrow_integers_wrap() -> None:
    x = te.placeholder((256,), "uint8", "x")
    one = tirx.const(1, "uint8")
    there = function(x, lambda v: v << one, lambda v: v >> one)
    np.testing.assert_array_equal(computed(there, BYTES), (BYTES << 1) >> 1)
    doubled = function(x, lambda v: v + v, lambda v: v.astype("int32"))
    np.testing.assert_array_equal(
        computed(doubled, BYTES, np.int32), (BYTES + BYTES).astype(np.int32)
    )


def test_halves_are_rounded_at_each_step() -> None:
    numbers = np.linspace(1, 300, 64).astype(ml_dtypes.bfloat16)
    x = te.placeholder((64,), "bfloat16", "x")
    near = function(x, lambda v: v + tirx.const(256, "bfloat16"))
    wanted = numbers + np.asarray(256, ml_dtypes.bfloat16)
    np.testing.assert_array_equal(computed(near, numbers, ml_dtypes.bfloat16), wanted)


def test_sums_of_products_wrap_as_integers_do() -> None:
    a = te.placeholder((3, 70), "int32", "a")
    b = te.placeholder((70, 5), "int32", "b")
    k = te.reduce_axis((0, 70), "k")
    product = te.compute((3, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "c")
    func = te.create_prim_func([a, b, product])
    rng = np.random.default_rng(0)
    left, right = (drawn(p, rng) for p in parameters(func)[:2])
    found = References({"f": func})("f", [left, right, np.zeros((3, 5), np.int32)])[-1]
    np.testing.assert_array_equal(found, left @ right)


def test_integers_are_from_the_whole_range_but_for_places_and_divisors() -> None:
    shape = (4096,)
    places, numbers, by = (te.placeholder(shape, "int32", name) for name in ("p", "n", "by"))
    table = te.placeholder((50,), "int32", "table")
    there = te.compute(shape, lambda i: places[i].astype("int64"), "there")
    out = te.compute(shape, lambda i: tirx.floordiv(table[there[i]] + numbers[i], by[i]), "out")
    func = te.create_prim_func([places, numbers, by, table, out])
    rng = np.random.default_rng(0)
    at, free, divisor, taken, _ = (drawn(own, rng) for own in parameters(func))
    assert (at.min(), at.max()) == (0, 49)
    for own in (free, divisor, taken):
        assert own.min() < -(2**30)
        assert own.max() > 2**30 or own is taken
    assert not np.isin(divisor, (0, -1)).any()


def test_inputs_of_a_model_are_places_where_its_kernels_say_so() -> None:
    builder = relax.BlockBuilder()
    ids = relax.Var("ids", relax.TensorType((64,), "int64"))
    numbers = relax.Var("numbers", relax.TensorType((64,), "int64"))
    table = relax.const(np.zeros((50, 2), np.float32))
    with builder.function("main", [ids, numbers]):
        with builder.dataflow():
            rows = builder.emit(op.take(table, ids, 0))
            later = builder.emit(op.take(table, op.add(ids, relax.const(3, "int64")), 0))
            total = builder.emit(op.astype(op.add(numbers, numbers), "float32"))
            value = builder.emit_output(relax.Tuple([rows, later, total]))
        builder.emit_func_output(value)
    mod = tvm.transform.Sequential([relax.transform.LegalizeOps()])(builder.get())
    places = places_in(mod)
    assert places == {0: 2}
    signatures = [_signature(var) for var in (ids, numbers)]
    first, second = whole_inputs(signatures, places)
    assert (first.min(), first.max()) == (0, 1)
    assert abs(second.astype(float)).max() > 2.0**60


def _signature(var: relax.Var) -> Any:
    from tvm_tile.graph.signature import Signature

    return Signature(str(var.name), tuple(map(int, var.ty.shape)), str(var.ty.dtype))
