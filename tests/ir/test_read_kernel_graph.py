"""Which kernel hands what to which, read from modules with tuples, branches and writes in place."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_tile
from tvm_tile import Options
from tvm_tile.graph.user_names import named, names_of_variables
from tvm_tile.passes.lower.planned_memory import planned_bytes
from tvm_tile.passes.lower.read_kernel_graph import read_kernel_graphs
from tvm_tile.report.kernel_graph import CallValue, KernelGraph


@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def one(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i, j in T.grid(4, 8):
            with T.sblock("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj]

    @T.prim_func(private=True, s_tir=True)
    def two(
        x: T.Buffer((4, 8), "float32"),
        y: T.Buffer((4, 8), "float32"),
        z: T.Buffer((4, 8), "float32"),
    ):
        T.func_attr({"tirx.noalias": True})
        for i, j in T.grid(4, 8):
            with T.sblock("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj]
                z[vi, vj] = x[vi, vj]

    @R.function(private=True)
    def inner(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        cls = Module
        y = R.call_tir(cls.one, (x,), out_ty=R.Tensor((4, 8), "float32"))
        return y

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), c: R.Tensor((), "bool")) -> R.Tuple(
        R.Tensor((32,), "float32"), R.Tensor((4, 8), "float32")
    ):
        cls = Module
        pair = R.call_tir(
            cls.two, (x,), out_ty=[R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32")]
        )
        a = pair[0]
        b = pair[1]
        with_b = (a, b)
        again = with_b[1]
        written = R.call_tir_inplace(
            cls.one, (b, a), out_ty=R.Tensor((4, 8), "float32"), inplace_indices=[1]
        )
        if c:
            t = R.call_tir(cls.one, (written,), out_ty=R.Tensor((4, 8), "float32"))
            d = t
        else:
            e = R.call_tir(cls.one, (again,), out_ty=R.Tensor((4, 8), "float32"))
            d = e
        f = cls.inner(d)
        g = R.call_tir(
            cls.one,
            (R.const(np.ones((4, 8), "float32")),),
            out_ty=R.Tensor((4, 8), "float32"),
        )
        flat = R.reshape(f, (32,))
        return (flat, g)


@pytest.fixture(scope="module")
def graphs() -> dict[str, KernelGraph]:
    mod = named(Module, names_of_variables(Module))
    return {graph.function: graph for graph in read_kernel_graphs(mod)}


def test_each_function_is_a_graph_main_first(graphs: dict[str, KernelGraph]) -> None:
    assert list(graphs) == ["main", "inner"]
    assert [call.kernel for call in graphs["inner"].calls] == ["one"]


def test_calls_read_what_others_write_through_tuples_branches_and_reshapes(
    graphs: dict[str, KernelGraph],
) -> None:
    main = graphs["main"]
    assert main.inputs == (("x", 0), ("c", 1))
    told = [(call.kernel, call.reads, call.writes) for call in main.calls]
    assert told == [
        ("two", (0,), (2, 3)),
        ("one", (3, 2), (4,)),  # in place: over 2
        ("one", (4,), (5,)),
        ("one", (3,), (6,)),
        ("inner", (5, 6), (7,)),  # what either side of the branch has made
        ("one", (), (8,)),
    ]
    assert main.outputs == ((7,), (8,))


def test_tensors_have_their_sizes_and_homes_and_constants_are_apart(
    graphs: dict[str, KernelGraph],
) -> None:
    main = graphs["main"]
    assert main.tensors[0] == CallValue(("4", "8"), "float32", 128)
    assert [n for n, tensor in enumerate(main.tensors) if tensor.home is not None] == [4]
    assert main.tensors[4].home == 2
    assert [call.constant_bytes for call in main.calls] == [0, 0, 0, 0, 0, 128]
    assert main.calls[0].names == ("pair",)


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.relu, torch.exp, (x,)) @ x


def test_graphs_of_compiled_models_have_the_calls_that_their_reports_count() -> None:
    model = tvm_tile.compile(
        Branches(), "emulated", example_inputs=(torch.randn(8, 8),), options=Options(cache=False)
    )
    calls = [call.kernel for graph in model.report.graphs for call in graph.calls]
    for kernel in model.report.kernels:
        assert calls.count(kernel.name) == kernel.calls
    main = model.report.graphs[0]
    assert len(main.outputs) == 1
    assert max(main.live_bytes) <= model.report.planned
    made = {tensor for call in main.calls for tensor in call.writes}
    given = {tensor for _, tensor in main.inputs}
    assert {tensor for call in main.calls for tensor in call.reads} <= made | given


def test_storages_of_sizes_that_a_call_decides_are_not_counted() -> None:
    @I.ir_module
    class Planned:
        @R.function
        def main(shape: R.Shape(ndim=1)) -> R.Tuple(R.Any, R.Any):
            known = R.vm.alloc_storage(R.shape([100]), R.prim_value(0), R.dtype("uint8"))
            unknown = R.vm.alloc_storage(shape, R.prim_value(0), R.dtype("uint8"))
            return (known, unknown)

    assert isinstance(Planned, tvm.IRModule)
    assert planned_bytes(Planned) == 100
