"""PyTorch's own programs for AOTAutograd through our backend: results, gradients, memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import aot_cases
import aot_shared_cases
import pytest
import torch
from aot_cases import Program
from torch import Tensor
from torch_backend_runs import backend, leaves, memories

from tvm_tile.torch import GraphReport

pytestmark = [
    pytest.mark.bank(10),
    pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl"),
    # Dynamo looks at the gradients of tensors that are no leaves, and makes autograd.Function.
    pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:.*should not be instantiated"),
]

RUNS = [
    pytest.param(program, trains, id=f"{program.name}-{'grad' if trains else 'plain'}")
    for program in (*aot_cases.PROGRAMS, *aot_shared_cases.PROGRAMS)
    for trains in program.trains
]


@pytest.fixture(autouse=True)
def compiled_anew() -> None:
    torch._dynamo.reset()


def tensors(values: Any) -> list[Tensor]:
    return [value for value in leaves(values) if isinstance(value, Tensor)]


def seen(run: Callable[..., Any], program: Program, trains: bool) -> list[Any]:
    """All that can be seen of a call: what comes out, gradients, and, after a caller has written
    into what came out, all of it and the arguments again."""
    roots, args = program.given(trains)
    outputs = tensors(run(*args))
    described = [(t.requires_grad, t.is_leaf, layout(t)) for t in outputs]
    copies = [t.detach().clone() for t in outputs]
    shared = memories([*outputs, *(arg for arg in args)])
    gradients = gradients_of(outputs, roots)
    for output in outputs:
        with torch.no_grad():
            output.mul_(2)
    arguments = [(layout(t), t.requires_grad, t.detach().clone()) for t in args]
    return [described, copies, shared, gradients, [t.detach() for t in outputs], arguments]


def layout(tensor: Tensor) -> tuple[Any, ...]:
    """Shape, offset, and the strides that matter."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.shape, tensor.storage_offset(), [step for n, step in steps if n > 1]


def gradients_of(outputs: Sequence[Tensor], roots: Sequence[Tensor]) -> list[Tensor]:
    ends = [t for t in outputs if t.requires_grad]
    if not ends or not any(root.requires_grad for root in roots):
        return []
    total = sum((t * torch.linspace(1, 2, t.numel()).view(t.shape)).sum() for t in ends)
    return list(torch.autograd.grad(total, roots, materialize_grads=True))


@pytest.mark.parametrize(("program", "trains"), RUNS)
def test_as_in_pytorch(program: Program, trains: bool, caplog: pytest.LogCaptureFixture) -> None:
    reports: list[GraphReport] = []
    run = torch.compile(program.run, backend=backend(reports.append))
    wanted = seen(program.run, program, trains)
    for _ in range(2):
        assert_equal(seen(run, program, trains), wanted)
    assert "PyTorch runs" not in caplog.text
    assert not any(report.note for report in reports)


def assert_equal(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted)
    if isinstance(wanted, Tensor):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    elif isinstance(wanted, list | tuple):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_equal(one, other)
    else:
        assert found == wanted
