"""Memory between the kernels of a function becomes outputs of the calls of that function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import tirx as T

from tvm_tile import find_device
from tvm_tile.passes import LiftWorkspaces
from tvm_tile.pipeline import Options, _lower

H200 = find_device("nvidia/h200")
ROW = relax.TensorType((64,), "float32")


@T.prim_func(private=True, s_tir=True)
def two_kernels(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")) -> None:
    between = T.sblock_alloc_buffer((T.int64(64), 2), "float16")
    own = T.sblock_alloc_buffer((64,), scope="local")
    for i in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("first"):
            v = T.axis.spatial(64, i)
            between[v, 0] = T.float16(x[v])
    for i in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("copy"):
            v = T.axis.spatial(64, i)
            own[v] = T.float32(between[v, 0])
        with T.sblock("second"):
            v = T.axis.spatial(64, i)
            y[v] = own[v]


@T.prim_func(private=True, s_tir=True)
def two_outputs(
    x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32"), z: T.Buffer((64,), "float32")
) -> None:
    with T.sblock("root"):
        between = T.alloc_buffer((64,))
        for i in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("first"):
                v = T.axis.spatial(64, i)
                between[v] = x[v]
                z[v] = x[v]
        for i in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("second"):
                v = T.axis.spatial(64, i)
                y[v] = between[v]


@T.prim_func(private=True, s_tir=True)
def one_kernel(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")) -> None:
    within = T.sblock_alloc_buffer((64,))
    for i in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("first"):
            v = T.axis.spatial(64, i)
            within[v] = x[v]
        with T.sblock("second"):
            v = T.axis.spatial(64, i)
            y[v] = within[v]


@T.prim_func(private=True)
def of_threads(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")) -> None:
    between = T.alloc_buffer((64, 2), "float16")
    with T.attr({"tirx.device_entry": True}):
        block = T.cta_id([1])
        thread = T.thread_id([64])
        between[thread, block] = T.float16(x[thread])
    with T.attr({"tirx.device_entry": True}):
        block = T.cta_id([2])
        thread = T.thread_id([32])
        own = T.alloc_buffer((1,), "float32", scope="local")
        own[0] = T.float32(between[block * 32 + thread, 0])
        y[block * 32 + thread] = own[0]


@T.prim_func(private=True, s_tir=True)
def of_any_size(var_x: T.handle, var_y: T.handle) -> None:
    n = T.int64()
    x = T.match_buffer(var_x, (n,), "float32")
    y = T.match_buffer(var_y, (n,), "float32")
    between = T.sblock_alloc_buffer((n,))
    for i in T.thread_binding(n, thread="threadIdx.x"):
        with T.sblock("first"):
            v = T.axis.spatial(n, i)
            between[v] = x[v]
    for i in T.thread_binding(n, thread="threadIdx.x"):
        with T.sblock("second"):
            v = T.axis.spatial(n, i)
            y[v] = between[v]


def module(func: tirx.PrimFunc, body: Callable[..., Any]) -> tvm.IRModule:
    """``main(x)`` that returns ``body(x, func's variable)``."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", ROW)
    with builder.function("main", [x]):
        var = builder.add_func(func, "f")
        with builder.dataflow():
            output = builder.emit_output(body(x, var))
        builder.emit_func_output(output)
    return builder.get()


def called(x: Any, f: Any) -> Any:
    return relax.call_tir(f, (x,), ROW)


def lifted(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` after the pass, which leaves ``mod`` itself as it was."""
    before = mod.script()
    after = LiftWorkspaces()(mod)
    assert mod.script() == before
    assert relax.analysis.check_well_formed(after)
    return after


def main_of(mod: tvm.IRModule) -> list[str]:
    """The bindings of ``main``, without types."""
    lines = [line.strip() for line in mod["main"].script().splitlines()]
    return [line for line in lines if " = " in line]


def params_of(mod: tvm.IRModule) -> list[tuple[str, list[int], str]]:
    return [(p.name, [int(n) for n in p.ty.shape], str(p.ty.dtype)) for p in mod["f"].params]


def test_what_lies_between_two_kernels_is_an_output_that_nobody_reads() -> None:
    after = lifted(module(two_kernels, called))
    assert params_of(after) == [
        ("x", [64], "float32"), ("y", [64], "float32"), ("between", [64, 2], "float16"),
    ]  # fmt: skip
    assert [b.scope() for b in after["f"].body.block.alloc_buffers] == ["local"]
    assert main_of(after) == [
        'lv = R.call_tir(f, (x,), out_ty=[R.Tensor((64,), dtype="float32"), '
        'R.Tensor((64, 2), dtype="float16")])',
        'gv: R.Tensor((64,), dtype="float32") = lv[0]',
    ]


def test_so_it_is_in_the_dialect_of_threads() -> None:
    after = lifted(module(of_threads, called))
    assert params_of(after) == [
        ("x", [64], "float32"), ("y", [64], "float32"), ("between", [64, 2], "float16"),
    ]  # fmt: skip
    assert len(after["f"].body) == 2
    assert not any(isinstance(s, tirx.AllocBuffer) for s in after["f"].body)


def test_several_outputs_stay_a_tuple() -> None:
    after = lifted(module(two_outputs, lambda x, f: relax.call_tir(f, (x,), [ROW, ROW])))
    assert [name for name, _, _ in params_of(after)] == ["x", "y", "z", "between"]
    assert after["main"].ret_ty == relax.TupleType([ROW, ROW])
    assert not any(isinstance(s, tirx.AllocBuffer) for s in after["f"].body.block.body)


def test_each_caller_gives_its_own() -> None:
    def body(x: Any, f: Any) -> Any:
        return relax.call_tir(f, (relax.call_tir(f, (x,), ROW),), ROW)

    after = lifted(module(two_kernels, body))
    assert sum("float16" in line for line in main_of(after)) == 2


def in_place_too(x: Any, f: Any) -> Any:
    return relax.call_tir(f, (op.call_tir_inplace(f, (x,), [0], ROW),), ROW)


@pytest.mark.parametrize(
    ("func", "body"),
    [
        (one_kernel, called),
        (of_any_size, called),
        (two_kernels, in_place_too),
        (two_kernels, lambda x, f: x),
    ],
    ids=["one kernel", "any size", "called otherwise, too", "not called"],
)
def test_the_rest_stays(func: tirx.PrimFunc, body: Callable[..., Any]) -> None:
    mod = module(func, body)
    tvm.ir.assert_structural_equal(LiftWorkspaces()(mod), mod)


def test_the_memory_is_planned_and_shared_and_graphs_capture_its_kernels() -> None:
    def body(x: Any, f: Any) -> Any:
        for _ in range(5):
            x = relax.call_tir(f, (x,), ROW)
        return x

    lowered = _lower(lifted(module(two_kernels, body)), H200, Options())
    sizes = [int(size) for size in allocated(lowered["cuda_graph_alloc"])]
    assert sorted(sizes) == [256, 256, 256]
    assert "f(" in lowered["main_cuda_graph_capture"].script()
    assert len(allocated(lowered["main"])) == 1  # the output


def allocated(func: relax.Function) -> list[Any]:
    """Bytes of each storage that a function allocates."""
    calls: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call) and node.op == tvm.ir.Op.get("relax.vm.alloc_storage"):
            calls.append(node.args[0].values[0])

    relax.analysis.post_order_visit(func, visit)
    return calls
