"""Loops whose condition compares a count: how many iterations they are known to have."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop
from torch_control_cases import exported
from tvm import relax

from tvm_tile.frontend import import_model
from tvm_tile.frontend.loops import COUNTED, MOST
from tvm_tile.passes.flow.read import whole_number
from tvm_tile.passes.ir.count_calls import conditional_calls, count_calls, has_open_loops

Condition = Callable[[Tensor, Tensor], Tensor]
Step = Callable[[Tensor, Tensor], Tensor]


class Counting(nn.Module):
    """A loop over a count and a value."""

    def __init__(self, first: Any, goes_on: Condition, step: Step) -> None:
        super().__init__()
        self.first, self.goes_on, self.step = first, goes_on, step

    def forward(self, x: Tensor) -> Any:
        def body(i: Tensor, x: Tensor) -> Any:
            return self.step(i, x), torch.tanh(x * 1.5)

        return while_loop(self.goes_on, body, (torch.full((), self.first), x * 1))


def _told(module: nn.Module) -> dict[str, int | None]:
    """What the functions of its loops say: iterations they have, or have at most."""
    mod = import_model(exported(module, (torch.ones(3),)), inputs=None, example_inputs=None).mod
    found: dict[str, int | None] = {}
    for var, func in mod.functions_items():
        attributes = func.attrs or {}
        if MOST in attributes:
            found[MOST] = int(attributes[MOST])
        if COUNTED in attributes:
            counts = [
                whole_number(binding.value.args[0])
                for block in mod["main"].body.blocks
                for binding in block.bindings
                if getattr(getattr(binding.value, "op", None), "name_hint", "") == var.name_hint
            ]
            (found[COUNTED],) = counts
    return found


def _turns(first: int, goes_on: Condition, step: Step) -> int:
    i, x, turns = torch.tensor(first), torch.ones(3), 0
    while goes_on(i, x):
        i, x, turns = step(i, x), torch.tanh(x * 1.5), turns + 1
    return turns


@pytest.mark.parametrize("seed", range(6))
def test_counts_up_and_down(seed: int) -> None:
    rng = random.Random(seed)
    step = rng.choice((-3, -2, -1, 1, 2, 3))
    first, limit = rng.randint(-9, 9), rng.randint(-30, 30)
    rising: list[Condition] = [
        lambda i, x: i < limit,
        lambda i, x: i <= limit,
        lambda i, x: torch.full((), limit) > i,
        lambda i, x: torch.full((), limit) >= i,
    ]
    falling: list[Condition] = [lambda i, x: i > limit, lambda i, x: torch.full((), limit) <= i]
    goes_on = rng.choice(rising if step > 0 else falling)

    def add(i: Tensor, x: Tensor) -> Tensor:
        return i + step

    module = Counting(first, goes_on, add)
    assert _told(module) == {COUNTED: _turns(first, goes_on, add)}


def test_data_may_end_a_loop_earlier() -> None:
    def goes_on(i: Tensor, x: Tensor) -> Tensor:
        return (x.sum() > 0.1) & (i < 17) & (i <= 30)

    assert _told(Counting(4, goes_on, lambda i, x: i + 2)) == {MOST: 7}


@pytest.mark.parametrize(
    ("first", "goes_on", "step"),
    [
        (0, lambda i, x: x.sum() > 0.1, lambda i, x: i + 1),
        (0, lambda i, x: (i < 9) | (x.sum() > 0.1), lambda i, x: i + 1),
        (0, lambda i, x: i < 9, lambda i, x: i + (x.sum() > 0).to(torch.int64)),
        (0, lambda i, x: i < 9, lambda i, x: i - 1),
        (0, lambda i, x: i * 2 < 9, lambda i, x: i + 1),
        (0.5, lambda i, x: i < 9, lambda i, x: i + 1),
        (1, lambda i, x: i < x.sum(), lambda i, x: i + 1),
    ],
    ids=["data", "either", "data counts", "away", "twice", "no integer", "data's limit"],
)
def test_of_others_nothing_is_known(first: Any, goes_on: Condition, step: Step) -> None:
    assert not _told(Counting(first, goes_on, step))


def test_of_onnx_loops_the_limit_is_known() -> None:
    """``while going on and i < 9``, of which data say the first."""
    node, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    float_, bool_, int_ = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL, onnx.TensorProto.INT64
    body = onnx.helper.make_graph(
        [
            node("Tanh", ["a"], ["b"]),
            node("ReduceSum", ["b"], ["sum"], keepdims=0),
            node("Greater", ["sum", "least"], ["goes"]),
        ],
        "body",
        [value("i", int_, []), value("going", bool_, []), value("a", float_, [3])],
        [value("goes", bool_, []), value("b", float_, [3])],
    )
    constants = {"count": np.array(9), "least": np.array(0.1, "float32")}
    graph = onnx.helper.make_graph(
        [node("Loop", ["count", "", "x"], ["y"], body=body)],
        "graph",
        [value("x", float_, [3])],
        [value("y", float_, [3])],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    mod = import_model(model, inputs=None, example_inputs=None).mod
    known = [int(f.attrs[MOST]) for f in mod.functions.values() if f.attrs and MOST in f.attrs]
    assert known == [9]


def test_a_run_has_every_iteration_of_a_loop_whose_count_is_known() -> None:
    """Else a loop of a thousand iterations is predicted to take as long as one."""
    counted = Counting(0, lambda i, x: i < 1000, lambda i, x: i + 1)
    open_ended = Counting(0, lambda i, x: x.sum() > i, lambda i, x: i + 1)
    for module, times in ((counted, 1000), (open_ended, 1)):
        mod = import_model(exported(module, (torch.ones(3),))).mod
        calls = count_calls(relax.transform.LegalizeOps()(mod))
        assert next(n for name, n in calls.items() if "tanh" in name) == times
        assert has_open_loops(mod) == (times == 1)
        assert len(conditional_calls(relax.transform.LegalizeOps()(mod))) == (times == 1)


def test_loops_within_loops_have_all_iterations() -> None:
    class Nested(nn.Module):
        def forward(self, x: Tensor) -> Any:
            def inner(j: Tensor, x: Tensor) -> Any:
                return j + 1, torch.tanh(x)

            def outer(i: Tensor, x: Tensor) -> Any:
                start = torch.zeros((), dtype=torch.int64)
                return i + 1, while_loop(lambda j, x: j < 5, inner, (start, x.exp()))[1]

            return while_loop(lambda i, x: i < 7, outer, (torch.full((), 0), x * 1))

    mod = import_model(exported(Nested(), (torch.ones(3),))).mod
    calls = count_calls(relax.transform.LegalizeOps()(mod))
    assert {n for name, n in calls.items() if "tanh" in name} == {35}
    assert {n for name, n in calls.items() if "exp" in name} == {7}
