"""Whatever a build launches is in its report."""

from __future__ import annotations

import tvm
from tvm import relax, topi

import tvm_tile
from tvm_tile.device import find_device
from tvm_tile.passes import foreign_calls, schedule_module
from tvm_tile.stages.forced import Forced

H200 = find_device("nvidia/h200")
SHAPE = (4, 8)


def module(body: object, shape: tuple[int, ...] = SHAPE) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def test_a_function_that_came_with_its_schedule_is_reported() -> None:
    mod = module(lambda builder, x: builder.call_te(topi.tanh, x))
    scheduled, _ = schedule_module(mod, H200)
    _, (report,) = schedule_module(scheduled, H200)
    assert (report.rule, report.calls) == ("given", 1)
    assert report.fallback


def test_what_is_outside_of_the_build_is_noted() -> None:
    out = relax.TensorType(SHAPE, "float32")
    mod = module(lambda _, x: relax.call_dps_packed("my.library.function", [x], out))
    (note,) = foreign_calls(mod)
    assert "my.library.function 1 x" in note


def test_each_kernel_of_a_function_is_a_launch() -> None:
    mod = module(lambda _, x: relax.op.cumsum(x, 1), (1, 9000))
    compiled = tvm_tile.compile(
        mod, device="nvidia/h200", options=Forced(cache=False, coschedule=False)
    )
    (kernel,) = compiled.report.kernels
    assert (kernel.rule, kernel.launches) == ("scan", 2)
    assert "one run: 2 launches" in compiled.explain("all")
