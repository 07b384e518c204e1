"""Reductions over no elements: they become what they start from."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from cpu_build import CPU
from tvm import IRModule, te, tirx

from tvm_tile.passes.operators.empty_tensors import EmptySums


def product(rows: int, depth: int, columns: int) -> IRModule:
    """A product, transposed on the right, by the name ``f``."""
    left = te.placeholder((rows, depth), name="left")
    right = te.placeholder((columns, depth), name="right")
    k = te.reduce_axis((0, depth), name="k")
    total = te.compute((rows, columns), lambda i, j: te.sum(left[i, k] * right[j, k], k), name="y")
    return IRModule(
        {"f": te.create_prim_func([left, right, total]).with_attr("global_symbol", "f")}
    )


def reduction(kind: str, *shape: int) -> IRModule:
    """Of all dimensions but the first, by the name ``f``."""
    x = te.placeholder(shape, name="x")
    axes = [te.reduce_axis((0, extent)) for extent in shape[1:]]
    reduce = {"sum": te.sum, "max": te.max}[kind]
    y = te.compute((shape[0],), lambda i: reduce(x[(i, *axes)], axis=axes), name="y")
    return IRModule({"f": te.create_prim_func([x, y]).with_attr("global_symbol", "f")})


def ran(module: IRModule) -> np.ndarray:
    """What TVM's CPU build leaves in an output that was NaN."""
    *inputs, output = (tuple(map(int, p.ty.shape)) for p in module["f"].params)
    memory = tvm.runtime.tensor(np.full(output, np.nan, "float32"))
    given = [tvm.runtime.tensor(np.zeros(shape, "float32")) for shape in inputs]
    tvm.compile(module, CPU)["f"](*given, memory)
    return np.asarray(memory.numpy())


@pytest.mark.parametrize(
    ("module", "wanted"),
    [
        (product(3, 0, 4), 0.0),
        (reduction("sum", 5, 0), 0.0),
        (reduction("sum", 5, 2, 0), 0.0),
        (reduction("max", 5, 0, 2), np.finfo("float32").min),
    ],
    ids=["product", "sum", "sum_of_two_axes", "max"],
)
def test_results_are_what_the_reduction_starts_from(module: IRModule, wanted: float) -> None:
    assert np.isnan(ran(module)).all()  # as TVM builds it
    assert (ran(EmptySums()(module)) == wanted).all()


def test_a_sum_over_elements_stays() -> None:
    module = product(3, 2, 4)
    tvm.ir.assert_structural_equal(EmptySums()(module), module)


def test_nothing_is_written_where_the_output_is_empty_too() -> None:
    after = EmptySums()(product(0, 0, 4))["f"]
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(after.body, (tirx.For, loops.append))
    assert sorted(int(loop.extent) for loop in loops) == [0, 4]
