"""`torch.compile` with our backend does just what PyTorch does: results, strides, memory, state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch_backend_cases import CASES, Call, Case, Output

from tvm_tile.torch import GraphReport
from tvm_tile.torch.backend import compiled
from tvm_tile.torch.options import BackendOptions

pytestmark = [
    pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]

OPTIONS = {"device": "emulated"}


@pytest.fixture(autouse=True)
def compiled_anew() -> None:
    torch._dynamo.reset()


def backend(tell: Callable[[GraphReport], None]) -> Callable[..., Any]:
    chosen = BackendOptions.of(OPTIONS)
    return lambda graph, inputs: compiled(graph, inputs, chosen, tell)


def leaves(value: Any) -> list[Any]:
    """Everything in some outputs, in order."""
    if isinstance(value, Output):
        value = dataclasses.asdict(value)
    return pytree.tree_leaves(value)


def memories(values: Sequence[Any]) -> list[int]:
    """For each tensor the first that lies in the same memory."""
    tensors = [v for v in values if isinstance(v, Tensor)]
    places = [
        tensor.untyped_storage().data_ptr() if tensor.numel() else i
        for i, tensor in enumerate(tensors)
    ]
    return [places.index(place) for place in places]


def assert_same(found: Sequence[Any], wanted: Sequence[Any], tolerance: float = 1e-5) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is type(other)
        if isinstance(other, Tensor):
            assert (one.shape, one.stride(), one.storage_offset(), one.dtype) == (
                (other.shape, other.stride(), other.storage_offset(), other.dtype)
            )
            assert one.requires_grad == other.requires_grad
            assert one.is_inference() == other.is_inference()
            torch.testing.assert_close(
                one, other, rtol=10 * tolerance, atol=tolerance, equal_nan=True
            )
        else:
            assert one == (pytest.approx(other, rel=1e-4) if isinstance(other, float) else other)
    assert memories(found) == memories(wanted)


def state(model: Any) -> list[Any]:
    return list(model.state_dict().values()) if isinstance(model, torch.nn.Module) else []


def one_call(run: Callable[..., Any], model: Any, call: Call) -> list[Any]:
    """All that can be seen of a call: what it returns, its arguments and the model, afterwards."""
    torch.manual_seed(0)
    args, kwargs = call.args(), call.kwargs()
    output = run(*args, **kwargs)
    return [*leaves(output), *args, *kwargs.values(), *state(model)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_as_in_pytorch(case: Case) -> None:
    reports: list[GraphReport] = []
    theirs, ours = case.model(), case.model()
    run = torch.compile(ours, backend=backend(reports.append), **case.options)
    with case.context():
        for call in case.calls:
            wanted = one_call(theirs, theirs, call)
            assert_same(one_call(run, ours, call), wanted, case.tolerance)
            if case.between is not None:
                case.between(theirs)
                case.between(ours)
    assert sum(report.compiled_operators for report in reports) >= case.compiled, reports
    if not case.compiled:
        assert not any(report.parts for report in reports)
