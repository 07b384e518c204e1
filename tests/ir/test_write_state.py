"""New values of a model's state, written by kernels of its own where nothing else is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import tvm
from torch import nn
from tvm import relax, te

import tvm_tile
from tvm_tile import find_device
from tvm_tile.build import Builder
from tvm_tile.build.program import RETURNED_STATE, Program
from tvm_tile.frontend.imported import NUM_INPUT
from tvm_tile.passes.ir.rewriter import is_in_place
from tvm_tile.passes.state.write_state import WriteState
from tvm_tile.stages.forced import Forced
from tvm_tile.stages.fusing import fuse

H200 = find_device("nvidia/h200")
SHAPE = (4, 8)
STATE = ("a", "b")


class Body:
    """What a test's ``main`` is made of, a binding at a time."""

    def __init__(self, builder: relax.BlockBuilder, params: list[Any]) -> None:
        self.builder = builder
        self.x, self.a, self.b = params

    def sum(self, *values: Any) -> Any:
        """A kernel's result."""
        return self.builder.emit_te(
            lambda *given: te.compute(SHAPE, lambda *at: sum(one(*at) for one in given), "sum"),
            *values,
        )

    def view(self, value: Any) -> Any:
        """The same memory in another shape, and back."""
        flat = self.builder.emit(relax.op.reshape(value, (32,)))
        return self.builder.emit(relax.op.reshape(flat, SHAPE))

    def over(self, *homes: Any) -> list[Any]:
        """Results of a kernel, which it writes over values that are there."""
        given = [te.placeholder(SHAPE, "float32", f"given{number}") for number in range(len(homes))]
        func = te.create_prim_func(given).without_attr("global_symbol")
        var = self.builder.add_func(func, "over")
        types = [home.ty for home in homes]
        call = relax.op.call_tir_inplace(var, list(homes), list(range(len(homes))), types)
        made = self.builder.emit(call)
        if len(homes) == 1:
            return [made]
        return [self.builder.emit(relax.TupleGetItem(made, number)) for number in range(len(homes))]


def module(body: Callable[[Body], list[Any]]) -> tvm.IRModule:
    """``main`` returns what a body does, of which the last two are its state's new values."""
    builder = relax.BlockBuilder()
    params = [relax.Var(name, relax.TensorType(SHAPE, "float32")) for name in ("x", *STATE)]
    with builder.function("main", params, attrs={NUM_INPUT: 1}):
        with builder.dataflow():
            results = builder.emit_output(relax.Tuple(body(Body(builder, params))))
        builder.emit_func_output(results)
    return builder.get()


def written(body: Callable[[Body], list[Any]]) -> relax.Function:
    """That ``main``, its state written."""
    mod = tvm.transform.Sequential([WriteState(len(STATE))])(module(body))
    relax.analysis.well_formed(mod)
    return mod["main"]


def bindings(main: relax.Function) -> list[Any]:
    return [binding for block in main.body.blocks for binding in block.bindings]


def writes(main: relax.Function) -> list[list[str]]:
    """Per call that writes new values: the state that it writes to."""
    calls = [b.value for b in bindings(main) if is_in_place(b.value)]
    calls = [call for call in calls if call.args[0].name_hint.startswith("write_state")]
    return [[var.name for var in call.args[1].fields[1:]] for call in calls]


def returned(main: relax.Function) -> list[int]:
    assert len(bindings(main)[-1].value.fields) == len(main.ret_ty.fields)
    return [int(number) for number in main.attrs[RETURNED_STATE]]


class TestWriteState:
    def test_one_value_for_two_tensors_is_one_call(self) -> None:
        def body(given: Body) -> list[Any]:
            new = given.sum(given.x, given.a)
            return [given.sum(given.x, given.x), new, new]

        main = written(body)
        assert (writes(main), returned(main)) == ([["a", "b"]], [])
        assert len(main.ret_ty.fields) == 1

    def test_a_view_of_what_a_kernel_makes(self) -> None:
        main = written(lambda given: [given.x, given.view(given.sum(given.x)), given.b])
        assert (writes(main), returned(main)) == ([["a"]], [])

    def test_what_is_read_later_is_written_behind_that(self) -> None:
        def body(given: Body) -> list[Any]:
            new = given.sum(given.x, given.x)
            return [given.sum(given.view(given.a), new), new, given.sum(new, new)]

        main = written(body)
        assert (writes(main), returned(main)) == ([["a"], ["b"]], [])
        order = [binding.value for binding in bindings(main)]
        (first,) = (at for at, call in enumerate(order) if _writes_to(call, "a"))
        later = [var.name for call in order[first + 1 :] for var in relax.analysis.free_vars(call)]
        assert "a" not in later

    def test_values_that_change_places_are_the_callers_to_copy(self) -> None:
        main = written(lambda given: [given.x, given.b, given.view(given.a)])
        assert (writes(main), returned(main)) == ([], [0, 1])

    def test_what_another_result_is_in_is_not_written_over(self) -> None:
        def body(given: Body) -> list[Any]:
            return [given.view(given.a), given.sum(given.x), given.a]

        main = written(body)
        assert (writes(main), returned(main)) == ([], [0, 1])

    def test_constants_and_inputs_are_the_callers_to_copy(self) -> None:
        constant = relax.const(torch.zeros(SHAPE).numpy())
        main = written(lambda given: [given.x, constant, given.x])
        assert (writes(main), returned(main)) == ([], [0, 1])

    def test_what_a_kernel_writes_in_place_is_there(self) -> None:
        def body(given: Body) -> list[Any]:
            (new,) = given.over(given.a)
            return [given.sum(new, given.x), new, given.sum(given.b, given.x)]

        main = written(body)
        assert (writes(main), returned(main)) == ([["b"]], [])

    def test_two_that_one_kernel_writes_in_place_are_there(self) -> None:
        def body(given: Body) -> list[Any]:
            return [given.x, *given.over(given.a, given.b)]

        main = written(body)
        assert (writes(main), returned(main)) == ([], [])

    def test_two_that_one_kernel_writes_in_each_others_place(self) -> None:
        def body(given: Body) -> list[Any]:
            return [given.x, *reversed(given.over(given.a, given.b))]

        main = written(body)
        assert (writes(main), returned(main)) == ([], [0, 1])

    def test_without_state_nothing_changes(self) -> None:
        mod = tvm.IRModule({"main": written(lambda given: [given.x, given.a, given.b])})
        assert tvm.transform.Sequential([WriteState(0)])(mod).same_as(mod)


def _writes_to(call: Any, name: str) -> bool:
    if not is_in_place(call):
        return False
    return any(isinstance(arg, relax.Var) and arg.name == name for arg in call.args[1].fields[1:])


class Counting(nn.Module):
    """Counts its calls in several places, and averages; all layers are one graph."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(layers)])
        for number in range(layers):
            self.register_buffer(f"count{number}", torch.zeros((), dtype=torch.int64))
            self.register_buffer(f"mean{number}", torch.zeros(64))

    def forward(self, x: Any, step: Any) -> Any:
        for number, layer in enumerate(self.layers):
            x = torch.softmax(layer(x), -1)
            mean = getattr(self, f"mean{number}")
            mean.copy_(mean * 0.9 + x.mean(0) * 0.1)
            getattr(self, f"count{number}").copy_(step + 1)
            x = x + mean
        return x


class TestWholeModels:
    def test_a_step_is_one_graph_and_its_state_no_parameter(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found: list[tvm.IRModule] = []

        def build(_: Builder, mod: tvm.IRModule) -> Program:
            found.append(mod)
            return Program("cuda", "sm_90a", b"", b"", (), ())

        monkeypatch.setattr(Builder, "build", build)
        monkeypatch.setattr(Builder, "find_failures", lambda *_: {})
        monkeypatch.setattr(Builder, "resources", lambda *_: {})
        monkeypatch.setattr(Builder, "kernel_counts", lambda *_: {})
        monkeypatch.setattr(Builder, "dependent_counts", lambda *_: {})
        example = (torch.zeros(16, 64), torch.tensor(3))
        tvm_tile.compile(
            Counting(3), H200, example_inputs=example, options=Forced(coschedule=False)
        )
        (mod,) = found
        main = mod["main"]
        assert [param.name for param in main.params] == ["x", "step", "weights", "place"]
        text = main.script()
        assert text.count("run_or_capture") == 1
        assert list(main.attrs[RETURNED_STATE]) == []

    def test_one_kernel_writes_what_several_counters_become(self) -> None:
        def body(given: Body) -> list[Any]:
            new = given.sum(given.x, given.x)
            return [given.x, new, new]

        fused = fuse(module(body), H200, state=len(STATE)).mod
        (name,) = (v.name_hint for v in fused.get_global_vars() if "write_state" in v.name_hint)
        scheduled, kernels = tvm_tile.passes.schedule_module(fused, H200)
        (report,) = (kernel for kernel in kernels if kernel.name == name)
        assert report.rule == "elementwise"
        assert scheduled[name].script().count('thread="blockIdx.x"') == 1
