"""What kernels may ask for before they wait, beside constants: which of their arguments the pass
finds to be settled, what the build makes of it, and that chains which do it compute the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from emulated import text_builder
from grid_emulator import Launched, parameters, run_chain
from precompiled import COMPILER
from tvm import relax
from tvm.relax import op
from tvm.script import tirx as T

from tvm_tile.build.early.dependent_launches import asked_ahead
from tvm_tile.build.program import Kernel
from tvm_tile.device import find_device
from tvm_tile.device.times import DependentLaunchTimes
from tvm_tile.passes.lower.mark_dependent_launches import MarkDependentLaunches

pytestmark = pytest.mark.bank(4)

MEASURED = replace(
    find_device("nvidia/h200"),
    dependent_launches=DependentLaunchTimes("a test", 5e-7, 1e-7, 0.0, 0.0),
)
ROW = relax.TensorType((64,), "float32")
WAIT, LET_GO = "  tvm_builtin_ptx_griddepcontrol_wait();\n", "_launch_dependents();\n"


@T.prim_func(private=True)
def more(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")) -> None:
    T.launch_thread("blockIdx.x", 1)
    i = T.launch_thread("threadIdx.x", 64)
    y[i] = x[i] + T.float32(1)


@T.prim_func(private=True)
def twice(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")) -> None:
    T.launch_thread("blockIdx.x", 1)
    i = T.launch_thread("threadIdx.x", 64)
    y[i] = x[i] * T.float32(2)


@T.prim_func(private=True)
def grow(x: T.Buffer((64,), "float32")) -> None:
    T.launch_thread("blockIdx.x", 1)
    i = T.launch_thread("threadIdx.x", 64)
    x[i] = x[i] + T.float32(3)


@T.prim_func(private=True)
def ahead(
    kept: T.Buffer((64,), "float32"),
    made: T.Buffer((64,), "float32"),
    y: T.Buffer((64,), "float32"),
) -> None:
    T.launch_thread("blockIdx.x", 1)
    i = T.launch_thread("threadIdx.x", 64)
    own = T.alloc_buffer((1,), "float32", scope="local")
    own[0] = kept[63 - i]
    T.evaluate(T.ptx.griddepcontrol.wait())
    y[i] = own[0] + made[i]


FUNCTIONS = {"more": more, "twice": twice, "grow": grow, "ahead": ahead}
Body = Callable[[relax.BlockBuilder, dict[str, Any], Any], Any]


def marked(body: Body) -> tvm.IRModule:
    """A module that the pass has seen, whose ``main`` takes one row."""
    builder = relax.BlockBuilder()
    known = {name: builder.add_func(func, name) for name, func in FUNCTIONS.items()}
    x = relax.Var("x", ROW)
    with builder.function("main", [x], {"num_input": 1}):
        with builder.dataflow():
            result = builder.emit_output(body(builder, known, x))
        builder.emit_func_output(result)
    return MarkDependentLaunches(MEASURED, forced=True)(builder.get())


def told(mod: tvm.IRModule, name: str) -> Any:
    (func,) = (f for var, f in mod.functions_items() if var.name_hint == name)
    return (func.attrs or {}).get("tvm_tile.dependent_launch")


def called(builder: relax.BlockBuilder, var: Any, *given: Any) -> Any:
    return builder.emit(relax.call_tir(var, list(given), ROW))


def of_two_before(builder: relax.BlockBuilder, known: dict[str, Any], x: Any) -> Any:
    kept = called(builder, known["more"], x)
    made = called(builder, known["twice"], x)
    return called(builder, known["ahead"], kept, made)


def of_the_input(builder: relax.BlockBuilder, known: dict[str, Any], x: Any) -> Any:
    return called(builder, known["ahead"], x, called(builder, known["twice"], x))


def of_the_one_before(builder: relax.BlockBuilder, known: dict[str, Any], x: Any) -> Any:
    kept = called(builder, known["more"], x)
    return called(builder, known["ahead"], called(builder, known["twice"], kept), kept)


def of_what_comes_first(builder: relax.BlockBuilder, known: dict[str, Any], x: Any) -> Any:
    return called(builder, known["ahead"], x, x)


def of_a_view_that_is_written(builder: relax.BlockBuilder, known: dict[str, Any], x: Any) -> Any:
    kept = called(builder, known["more"], x)
    view = builder.emit(op.reshape(kept, (64,)))
    made = called(builder, known["twice"], x)
    builder.emit(relax.Call(
        tvm.ir.Op.get("relax.call_tir_inplace"),
        [known["grow"], relax.Tuple([view])],
        relax.op.call_tir_inplace(known["grow"], (view,), [0], ROW).attrs,
        [ROW],
    ))  # fmt: skip
    return called(builder, known["ahead"], kept, made)


def in_one_call_only(builder: relax.BlockBuilder, known: dict[str, Any], x: Any) -> Any:
    first = of_two_before(builder, known, x)
    return called(builder, known["ahead"], first, first)


@pytest.mark.parametrize("body", [of_two_before, of_the_input])
def test_what_was_written_before_the_kernel_before_began_is_settled(body: Body) -> None:
    mod = marked(body)
    assert asked_ahead(FUNCTIONS["ahead"]) == {"kept"}
    assert list(told(mod, "ahead")["settled"]) == ["kept"]
    assert told(mod, "twice")["lets_go"] == "behind their wait"
    assert told(mod, "ahead")["lets_go"] == "by ending"


@pytest.mark.parametrize(
    "body",
    [of_the_one_before, of_what_comes_first, of_a_view_that_is_written, in_one_call_only],
)
def test_what_may_still_be_written_is_not(body: Body) -> None:
    mod = marked(body)
    assert "kept" not in list(told(mod, "ahead")["settled"])
    assert all(
        told(mod, str(var.name_hint))["lets_go"] != "behind their wait"
        for var, func in mod.functions_items()
        if str(var.name_hint) in FUNCTIONS and told(mod, str(var.name_hint))
    )
    (kernel,) = built(mod, "ahead")
    assert body_of(kernel).index(WAIT) < body_of(kernel).index("kept_ptr")


def built(mod: tvm.IRModule, name: str) -> Sequence[Kernel]:
    (func,) = (f for var, f in mod.functions_items() if var.name_hint == name)
    return text_builder(MEASURED).build_functions({name: func})[name].kernels


def body_of(kernel: Kernel) -> str:
    return kernel.source.rpartition('extern "C" __global__')[2].partition("{\n")[2]


def launched(kernel: Kernel, **arrays: np.ndarray) -> Launched:
    return Launched(kernel, [arrays[name] for name in parameters(kernel)], (1, 64))


def run(kernels: dict[str, Kernel], folder: Path, seed: int) -> bool:
    """Whether a chain as ``of_two_before`` has it computes what its kernels do in turn."""
    x = np.random.default_rng(seed).standard_normal(64).astype(np.float32)
    kept, made, y = (np.full(64, np.nan, np.float32) for _ in range(3))
    chain = [
        launched(kernels["more"], x=x, y=kept),
        launched(kernels["twice"], x=x, y=made),
        launched(kernels["ahead"], kept=kept, made=made, y=y),
    ]
    run_chain(chain, folder, seed=seed)
    return np.array_equal(y, (x + 1)[::-1] + 2 * x)


@pytest.mark.skipif(not COMPILER, reason="no compiler for the emulator")
@pytest.mark.parametrize("seed", range(3))
def test_a_chain_that_asks_ahead_for_what_is_settled_is_right(tmp_path: Path, seed: int) -> None:
    mod = marked(of_two_before)
    kernels = {name: kernel for name in FUNCTIONS if name != "grow" for kernel in built(mod, name)}
    ahead, twice = body_of(kernels["ahead"]), body_of(kernels["twice"])
    assert ahead.index("kept_ptr") < ahead.index(WAIT) < ahead.index("made_ptr")
    assert twice.index(WAIT) < twice.index(LET_GO) < twice.index("x_ptr")
    assert run(kernels, tmp_path, seed)
    # The kernel before forgets to wait: what it is to vouch for may not be there.
    source = kernels["twice"].source
    careless = replace(kernels["twice"], source=source.replace(WAIT, ""))
    assert not run({**kernels, "twice": careless}, tmp_path, seed)
