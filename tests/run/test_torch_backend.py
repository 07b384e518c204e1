"""`torch.compile` with our backend does just what PyTorch does: results, strides, memory, state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from fake_graphs import emulated_with_graphs, fake_graphs
from torch_backend_cases import CASES, Call, Case
from torch_backend_runs import assert_same, backend, leaves

from tvm_tile.torch import GraphReport

pytestmark = [
    pytest.mark.bank(12),
    pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl"),
]


@pytest.fixture(autouse=True)
def compiled_anew() -> Iterator[None]:
    torch._dynamo.reset()
    with fake_graphs():
        yield


def state(model: Any) -> list[Any]:
    return list(model.state_dict().values()) if isinstance(model, torch.nn.Module) else []


def one_call(run: Callable[..., Any], model: Any, call: Call) -> list[Any]:
    """All that can be seen of a call: what it returns, its arguments and the model, afterwards."""
    torch.manual_seed(0)
    args, kwargs = call.args(), call.kwargs()
    output = run(*args, **kwargs)
    return [*leaves(output), *args, *kwargs.values(), *state(model)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_as_in_pytorch(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    reports: list[GraphReport] = []
    theirs, ours = case.model(), case.model()
    run = torch.compile(
        ours, backend=backend(reports.append, emulated_with_graphs()), **case.options
    )
    with case.context():
        for call in case.calls * 2:  # again, when all is compiled
            wanted = one_call(theirs, theirs, call)
            assert_same(one_call(run, ours, call), wanted, case.tolerance)
            if case.between is not None:
                case.between(theirs)
                case.between(ours)
    assert sum(report.compiled_operators for report in reports) >= case.compiled, reports
    assert "PyTorch runs" not in caplog.text  # what we failed at
    assert not (case.is_whole and any(report.eager for report in reports)), reports
    if not case.compiled:
        assert not any(report.parts for report in reports)
