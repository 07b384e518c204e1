"""Constants that functions are given, within them: only where every caller gives the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from cpu_build import CPU
from tvm import relax
from tvm.ir import GenericConst
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_tile.frontend.sink_constants import sink_constants

T = relax.TensorType([4], "float32")
ONE, TWO = (relax.const(np.full(4, value, "float32")) for value in (1, 2))


def module(second: Any, *, public: bool = False) -> tvm.IRModule:
    """``main(x) = outer(x, ONE) + outer(x, second)``; ``outer`` hands what it has to ``inner``."""
    builder = relax.BlockBuilder()
    x, w = relax.Var("x", T), relax.Var("w", T)
    with builder.function("inner", [x, w], private=not public):
        inner = builder.emit_func_output(builder.emit(relax.op.multiply(x, w)))
    x, w = relax.Var("x", T), relax.Var("w", T)
    with builder.function("outer", [w, x], private=True):
        outer = builder.emit_func_output(builder.emit(relax.Call(inner, [x, w])))
    x = relax.Var("x", T)
    with builder.function("main", [x]):
        both = [builder.emit(relax.Call(outer, [w, x])) for w in (ONE, second)]
        builder.emit_func_output(builder.emit(relax.op.add(*both)))
    return builder.get()


def run(mod: tvm.IRModule, *arrays: np.ndarray) -> np.ndarray:
    machine = relax.VirtualMachine(tvm.compile(mod, CPU), tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()


def parameters(mod: tvm.IRModule) -> dict[str, int]:
    return {str(var.name_hint): len(func.params) for var, func in mod.functions_items()}


X = np.arange(4, dtype="float32")


def test_what_all_callers_give_is_sunk_through_functions() -> None:
    sunk = sink_constants(module(ONE))
    assert parameters(sunk) == {"inner": 1, "outer": 1, "main": 1}
    np.testing.assert_array_equal(run(sunk, X), 2 * X)


def test_what_differs_stays_a_parameter() -> None:
    mod = module(TWO)
    assert sink_constants(mod).same_as(mod)
    np.testing.assert_array_equal(run(mod, X), 3 * X)


def test_a_function_that_others_may_call_keeps_its_parameters() -> None:
    sunk = sink_constants(module(ONE, public=True))
    assert parameters(sunk) == {"inner": 2, "outer": 1, "main": 1}
    np.testing.assert_array_equal(run(sunk, X), 2 * X)


@I.ir_module
class Loop:
    @R.function(private=True)
    def loop(
        n: R.Tensor((), "int64"),
        kept: R.Tensor((), "int64"),
        changed: R.Tensor((), "int64"),
        x: R.Tensor((4,), "float32"),
    ) -> R.Tensor((4,), "float32"):
        cls = Loop
        if R.greater(n, R.const(0, "int64")):
            left = R.subtract(n, kept)
            more = R.add(changed, kept)
            y = R.add(x, R.astype(changed, "float32"))
            r: R.Tensor((4,), "float32") = cls.loop(left, kept, more, y)
            out = r
        else:
            out = x
        return out

    @R.function
    def main(n: R.Tensor((), "int64"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Loop
        y: R.Tensor((4,), "float32") = cls.loop(n, R.const(1, "int64"), R.const(1, "int64"), x)
        return y


def test_of_a_loop_only_what_it_does_not_change_is_sunk() -> None:
    sunk = sink_constants(Loop)
    assert parameters(sunk) == {"loop": 3, "main": 2}
    constants: list[Any] = []
    relax.analysis.post_order_visit(
        sunk["loop"], lambda e: constants.append(e) if isinstance(e, GenericConst) else None
    )
    assert len(constants) == 3  # the one that was there, and the one that was sunk into two places
    np.testing.assert_array_equal(run(sunk, np.array(3), X), X + 6)
