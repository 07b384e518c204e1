"""PyTorch's functions of functions, through the PyTorch door, beside PyTorch."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

import pytest
import torch
import torch_control_cases
import tvm
from torch import Tensor, nn
from torch._export.db.case import SupportLevel
from torch._export.db.examples import filter_examples_by_support_level
from torch.utils import _pytree as pytree
from torch_control_cases import exported, in_float64, wide

import tvm_tile
from bench import operator_cases  # noqa: F401
from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend import import_model
from tvm_tile.frontend.loops import COUNTED

pytestmark = [
    pytest.mark.bank(12),
    pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl"),
    pytest.mark.filterwarnings("ignore"),
]
_HIGHER_ORDER = {"cond", "invoke_subgraph", "map", "scan", "while_loop"}
# Once operator_cases has stood in for what PyTorch's test suite imports.
_HOP_DB = importlib.import_module("torch.testing._internal.hop_db").hop_db
_SAMPLED = [op for op in _HOP_DB if op.name in _HIGHER_ORDER]
_EXAMPLES = {
    name: example
    for name, example in filter_examples_by_support_level(SupportLevel.SUPPORTED).items()
    if {"torch.cond", "torch.map"} & example.tags
}


def compare(model: tvm_tile.CompiledModel, module: nn.Module, inputs: tuple[Any, ...]) -> None:
    expected = in_float64(module, inputs)
    found = model(*pytree.tree_leaves(inputs))
    found = found if isinstance(found, tuple) else (found,)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(wide(torch.as_tensor(one)), other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", torch_control_cases.CASES)
def test_control_flow(name: str) -> None:
    make, inputs = torch_control_cases.CASES[name]
    module = make()
    model = tvm_tile.compile(exported(module, inputs(1)), "emulated")
    for number in range(4):
        compare(model, module, inputs(number))


@pytest.mark.parametrize("op", _SAMPLED, ids=lambda op: op.formatted_name)
def test_samples_of_pytorch(op: Any) -> None:
    for sample in op.sample_inputs("cpu", torch.float32):
        module = _Called(op.op, sample.kwargs)
        inputs = pytree.tree_map(Tensor.detach, (sample.input, *sample.args))
        model = tvm_tile.compile(exported(module, inputs), "emulated")
        compare(model, module, inputs)


class _Called(nn.Module):
    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        super().__init__()
        self.function, self.options = function, options

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs, **self.options)


@pytest.mark.parametrize("name", _EXAMPLES)
def test_examples_of_pytorch(name: str) -> None:
    example = _EXAMPLES[name]
    model = tvm_tile.compile(exported(example.model, example.example_args), "emulated")
    compare(model, example.model, example.example_args)


def test_weights_are_constants_in_branches_and_loops() -> None:
    for name in ("branches of weights", "while", "scans", "equal bodies"):
        make, inputs = torch_control_cases.CASES[name]
        mod = import_model(exported(make(), inputs(1)), inputs=None, example_inputs=None).mod
        for func in mod.functions.values():
            if isinstance(func, tvm.relax.Function):
                shapes = [
                    [int(extent) for extent in p.ty.shape] for p in func.params if _is_tensor(p)
                ]
                assert [8, 8] not in shapes  # a layer's weights


def _is_tensor(parameter: Any) -> bool:
    return isinstance(parameter.ty, tvm.relax.TensorType)


def test_loops_of_a_known_count_are_counted_on_the_host() -> None:
    make, inputs = torch_control_cases.CASES["scans"]
    mod = import_model(exported(make(), inputs(1)), inputs=None, example_inputs=None).mod
    counted = [func for func in mod.functions.values() if COUNTED in (func.attrs or {})]
    assert len(counted) == 2


def test_what_a_branch_has_is_refused_by_name() -> None:
    class Sorted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda x: torch.linalg.det(x), lambda x: x.sum(), (x,))

    with pytest.raises(UnsupportedOperatorError, match="linalg"):
        tvm_tile.compile(exported(Sorted(), (torch.eye(4),)), "emulated")
