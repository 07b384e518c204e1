"""Equal values become one, also beside values that are written over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from cpu_build import CPU
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tvm_tile.passes.operators.share_equal_values import ShareEqualValues
from tvm_tile.passes.state.separate_in_place import SeparateInPlace


@I.ir_module
class Twins:
    """The same is added to two caches; one of them is read before and behind that."""

    @T.prim_func(s_tir=True)
    def grow(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):  # type: ignore[no-untyped-def]
        for i in range(4):
            with T.sblock("grow"):
                v = T.axis.spatial(4, i)
                a[v] = a[v] + b[v]

    @R.function
    def main(  # type: ignore[no-untyped-def]
        x: R.Tensor((4,), "float32"),
        first: R.Tensor((4,), "float32"),
        second: R.Tensor((4,), "float32"),
    ):
        cls = Twins
        with R.dataflow():
            before = R.exp(first)
            one = R.sqrt(R.exp(x))
            grown = R.call_tir_inplace(
                cls.grow, (first, one), inplace_indices=[0], out_ty=R.Tensor((4,), "float32")
            )
            two = R.sqrt(R.exp(x))
            also = R.call_tir_inplace(
                cls.grow, (second, two), inplace_indices=[0], out_ty=R.Tensor((4,), "float32")
            )
            behind = R.exp(grown)
            three = R.add(R.sqrt(R.exp(x)), R.sqrt(R.exp(x)))
            R.output(before, grown, also, behind, three)
        return (before, grown, also, behind, three)


@I.ir_module
class OfItsOwn:
    """What is written over is no parameter: of two equal values one is written over."""

    @T.prim_func(s_tir=True)
    def grow(a: T.Buffer((4,), "float32")):  # type: ignore[no-untyped-def]
        for i in range(4):
            with T.sblock("grow"):
                v = T.axis.spatial(4, i)
                a[v] = a[v] + T.float32(1)

    @R.function
    def main(x: R.Tensor((4,), "float32")):  # type: ignore[no-untyped-def]
        cls = OfItsOwn
        with R.dataflow():
            one = R.exp(x)
            two = R.exp(x)
            grown = R.call_tir_inplace(
                cls.grow, (one,), inplace_indices=[0], out_ty=R.Tensor((4,), "float32")
            )
            R.output(grown, two)
        return (grown, two)


def passed(mod: tvm.IRModule) -> tvm.IRModule:
    passes = [SeparateInPlace(), ShareEqualValues(), relax.transform.DeadCodeElimination()]
    return tvm.transform.Sequential(passes)(mod)


def calls(mod: tvm.IRModule, name: str) -> int:
    return str(mod["main"].script()).count(f"R.{name}(")


def run(mod: tvm.IRModule, *arrays: np.ndarray) -> list[np.ndarray]:
    machine = relax.VirtualMachine(tvm.compile(mod, CPU), tvm.cpu())
    given: list[Any] = [tvm.runtime.tensor(array) for array in arrays]
    return [output.numpy() for output in machine["main"](*given)]


def test_what_depends_on_nothing_that_is_written_is_shared() -> None:
    mod = passed(Twins)
    relax.analysis.well_formed(mod)
    # What lies in memory for the writes is shared with all later blocks; the two that read what is
    # written are not.
    assert calls(mod, "sqrt") == 1
    assert calls(mod, "exp") == 3
    x, first, second = np.random.default_rng(0).random((3, 4), dtype="float32")
    root = np.sqrt(np.exp(x))
    expected = [np.exp(first), first + root, second + root, np.exp(first + root), 2 * root]
    for found, wanted in zip(run(mod, x, first, second), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("make", [passed, lambda mod: mod])
def test_a_function_that_writes_over_values_of_its_own_is_left_alone(make: Any) -> None:
    mod = make(OfItsOwn)
    assert calls(mod, "exp") == 2
    x = np.ones(4, "float32")
    grown, other = run(mod, x)
    np.testing.assert_allclose(grown - other, 1, rtol=1e-5)


@pytest.mark.parametrize(("extent", "left"), [(4, 1), (64, 2)])
def test_large_weights_are_equal_where_they_are_one(extent: int, left: int) -> None:
    """Small constants are compared, of large ones nobody reads the elements."""
    x = relax.Var("x", relax.TensorType((extent, extent), "float32"))
    first, second = (relax.const(np.eye(extent, dtype="float32")) for _ in range(2))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = [builder.emit(relax.op.matmul(x, weight)) for weight in (first, first, second)]
            total = relax.op.add(builder.emit(relax.op.add(made[0], made[1])), made[2])
            output = builder.emit_output(total)
        builder.emit_func_output(output)
    mod = passed(builder.get())
    relax.analysis.well_formed(mod)
    assert calls(mod, "matmul") == left
    given = np.random.default_rng(0).random((extent, extent), dtype="float32")
    found = relax.VirtualMachine(tvm.compile(mod, CPU), tvm.cpu())["main"](
        tvm.runtime.tensor(given)
    ).numpy()
    np.testing.assert_allclose(found, 3 * given, rtol=1e-5)
