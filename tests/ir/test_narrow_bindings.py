"""Values that are bound to names and computed from bfloat16, on targets that lack it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from cpu_build import CPU
from tvm import tirx
from tvm.script import ir as I
from tvm.script import tirx as T

from tvm_tile.build.exact.narrow_bindings import StoreNarrowBindings


@I.ir_module
class Bound:
    @T.prim_func(s_tir=True)
    def bits(x: T.Buffer((4,), "bfloat16"), y: T.Buffer((4,), "int32")):
        for i in range(4):
            v: T.let[T.int32] = T.reinterpret("int32", T.Cast("float32", x[i]))
            y[i] = v

    @T.prim_func(s_tir=True)
    def less(x: T.Buffer((4,), "bfloat16"), y: T.Buffer((4,), "int32")):
        for i in range(4):
            v: T.let[T.int32] = T.Cast("int32", i >= 1 and x[i] < T.bfloat16(0))
            y[i] = v

    @T.prim_func(s_tir=True)
    def twice(x: T.Buffer((4,), "bfloat16"), y: T.Buffer((4,), "int32")):
        for i in range(4):
            v: T.let[T.bfloat16] = x[i] + x[i]
            w: T.let[T.bfloat16] = v + x[i]
            y[i] = T.Cast("int32", w)


X = np.array([-1.5, 1.25, -2.0, 3.0], "float32")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("bits", X.view("int32")), ("less", [0, 0, 1, 0]), ("twice", [-4, 3, -6, 9])],
)
def test_they_are_computed_from_numbers_not_bits(name: str, wanted: np.ndarray) -> None:
    built = tvm.compile(StoreNarrowBindings()(Bound), CPU)
    x = tvm.runtime.tensor(X.astype(ml_dtypes.bfloat16))
    y = tvm.runtime.tensor(np.zeros(4, "int32"))
    built[name](x, y)
    assert np.array_equal(y.numpy(), wanted)


def test_a_cuda_target_knows_bfloat16() -> None:
    bound = tirx.transform.BindTarget(tvm.target.Target("cuda"))(Bound)
    tvm.ir.assert_structural_equal(StoreNarrowBindings()(bound), bound)


def test_what_lacks_them_stays() -> None:
    @I.ir_module
    class Wide:
        @T.prim_func(s_tir=True)
        def main(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
            for i in range(4):
                v: T.let[T.float32] = x[i] + x[i]
                y[i] = v

    tvm.ir.assert_structural_equal(StoreNarrowBindings()(Wide), Wide)
