"""Weights as one argument of `main`, from the model to what the virtual machine is told."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import tvm
from torch import nn
from tvm import relax

import tvm_tile
from tvm_tile.build import Builder
from tvm_tile.build.program import WEIGHTS, Program
from tvm_tile.frontend.imported import NUM_INPUT, describe, with_weights
from tvm_tile.stages.forced import Forced

CAPTURE = "vm.builtin.cuda_graph.run_or_capture"


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[tvm.IRModule]:
    """What would be built, in the order of compilations; no machine code is made."""
    found: list[tvm.IRModule] = []

    def build(_: Builder, mod: tvm.IRModule) -> Program:
        found.append(mod)
        return Program("cuda", "sm_90a", b"", b"", (), ())

    monkeypatch.setattr(Builder, "build", build)
    return found


class Network(nn.Module):
    """Convolutions, a norm, products and what joins them: each pass has something to do."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU())
        self.parts = nn.ModuleList([nn.Linear(16, 64), nn.Linear(16, 64), nn.Linear(64, 16)])

    def forward(self, image: Any) -> Any:
        x = self.convolutions(image).flatten(2).transpose(1, 2)
        one, other, last = self.parts
        return torch.softmax(last(torch.relu(one(x)) * other(x)), -1) + x


def compile_with_weights(dtype: torch.dtype, **options: Any) -> None:
    """A network for an H200, whose weights are its last inputs."""
    module = Network().eval().to(dtype)
    names = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]
    names = [name for name in names if not name.endswith("num_batches_tracked")]
    state = dict(module.state_dict())

    class Functional(nn.Module):
        def forward(self, image: Any, weights: list[Any]) -> Any:
            given = dict(zip(names, weights, strict=True))
            return torch.func.functional_call(module, given, (image,), strict=False)

    example = torch.randn(1, 3, 10, 10).to(dtype), [state[name].clone() for name in names]
    program = torch.export.export(Functional(), example)
    chosen = Forced(cache=False, **options)
    tvm_tile.compile(program, "nvidia/h200", weights=len(names), options=chosen)


def called(func: relax.Function) -> list[Any]:
    """All calls in a function."""
    found: list[Any] = []
    relax.analysis.post_order_visit(
        func, lambda node: found.append(node) if isinstance(node, relax.Call) else None
    )
    return found


def captures(func: relax.Function) -> list[Any]:
    """What each graph in a function is known by: function, arguments, number, place."""
    op = tvm.ir.Op.get("relax.call_builtin_with_ctx")
    calls = [call for call in called(func) if call.op == op]
    return [c.args[1].fields for c in calls if c.args[0].global_symbol == CAPTURE]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("weld", [False, True])
def test_every_pass_keeps_weights_last_and_graphs_read_them(
    lowered: list[tvm.IRModule], dtype: torch.dtype, weld: bool
) -> None:
    compile_with_weights(dtype, weld=weld)
    (mod,) = lowered
    main = mod["main"]
    assert [param.name for param in main.params] == ["image", "weights", "place"]
    assert int(main.attrs[WEIGHTS]) == 12
    assert NUM_INPUT not in main.attrs
    found = captures(main)
    assert found
    for function, arguments, _, place in found:
        assert place.same_as(main.params[2])
        assert arguments.fields[0].same_as(main.params[1])
        assert mod[function].params[0].name == "weights"
    items = [
        (call.args[0].name, int(call.args[1]), call.ty_args[0])
        for func in (main, *(mod[function] for function, *_ in found))
        for call in called(func)
        if isinstance(call.op, relax.ExternFunc)
        and str(call.op.global_symbol) == "vm.builtin.tuple_getitem"
        and call.args[0].name == "weights"
    ]
    # Each weight is taken somewhere, with its own shape.
    state = Network().state_dict()
    del state["convolutions.1.num_batches_tracked"]
    order = [n for n, _ in Network().named_parameters()]
    shapes = [tuple(state[n].shape) for n in (*order, *(n for n in state if n not in order))]
    taken = {at: tuple(map(int, ty.shape)) for _, at, ty in items}
    assert taken == dict(enumerate(shapes))


def test_without_graphs_weights_are_one_argument_as_well(lowered: list[tvm.IRModule]) -> None:
    compile_with_weights(torch.float16, cuda_graph=False)
    (mod,) = lowered
    assert [param.name for param in mod["main"].params] == ["image", "weights", "place"]
    assert not captures(mod["main"])


def test_a_main_that_is_called_keeps_its_parameters() -> None:
    builder = relax.BlockBuilder()
    x, w = (relax.Var(name, relax.TensorType((4,), "float32")) for name in "xw")
    with builder.function("main", [x, w]):
        builder.emit_func_output(builder.emit(relax.op.add(x, w)))
    main = builder.get().get_global_var("main")
    y = relax.Var("y", relax.TensorType((4,), "float32"))
    with builder.function("other", [y]):
        builder.emit_func_output(builder.emit(relax.Call(main, [y, y])))
    found = with_weights(describe(builder.get()), 1)
    assert NUM_INPUT not in (found.mod["main"].attrs or {})


def constants_in(func: relax.Function) -> list[int]:
    """Elements of each tensor that a function holds itself."""
    found: list[int] = []

    def visit(node: Any) -> None:
        if isinstance(node, tvm.ir.Constant) and isinstance(node.ty, relax.TensorType):
            found.append(math.prod(map(int, node.ty.shape)))

    relax.analysis.post_order_visit(func, visit)
    return found


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_programs_hold_no_weights(lowered: list[tvm.IRModule], dtype: torch.dtype) -> None:
    """But small ones; kernels within graphs take theirs out of the tuple, too."""
    module = Network().eval().to(dtype)
    program = torch.export.export(module, (torch.randn(1, 3, 10, 10).to(dtype),))
    options = Forced(cache=False, coschedule=False)
    model = tvm_tile.compile(program, "nvidia/h200", options=options)
    (mod,) = lowered
    main = mod["main"]
    assert [param.name for param in main.params] == ["image", "weights", "place"]
    assert int(main.attrs[WEIGHTS]) == 0
    functions = [func for func in mod.functions.values() if isinstance(func, relax.Function)]
    small = 1024 // torch.empty(0, dtype=dtype).element_size()
    assert all(size < small for func in functions for size in constants_in(func))
    for function, arguments, _, _ in captures(main):
        assert arguments.fields[0].same_as(main.params[1])
        assert mod[function].params[0].name == "weights"
    taken = sum(math.prod(constant.shape) for constant in model.program.constants)
    assert taken >= 3 * 16 * 64  # of the products, whatever is joined
