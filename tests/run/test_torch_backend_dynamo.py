"""PyTorch's own scenarios for compiled models through our backend."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import dynamo_scenarios  # noqa: F401 - has scenarios
import pytest
import tensor_scenarios  # noqa: F401 - has scenarios
import torch
import training_scenarios  # noqa: F401 - has scenarios
from scenarios import SCENARIOS
from torch_backend_runs import backend

from tvm_tile.torch import GraphReport

pytestmark = [
    pytest.mark.bank(16),
    pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl"),
    pytest.mark.filterwarnings(
        # Dynamo looks at the gradients of tensors that are no leaves, and makes autograd.Function.
        "ignore:The .grad attribute",
        "ignore:.*should not be instantiated",
        # PyTorch's own decompositions of forward mode, and its optimizers.
        "ignore:.torch.jit.script",
    ),
]


@pytest.mark.parametrize("name", SCENARIOS, ids=lambda name: name.partition(",")[0])
def test_as_in_pytorch(name: str, caplog: pytest.LogCaptureFixture) -> None:
    scenario = SCENARIOS[name]
    reports: list[GraphReport] = []

    def alone(run: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return run

    def ours(run: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return torch.compile(run, backend=backend(reports.append), **options)

    torch._dynamo.reset()
    wanted = scenario(alone)
    found = scenario(ours)
    # Of bfloat16 PyTorch's own kernel rounds once where a product and its bias are two operators.
    tolerance = 1e-2 if "autocast" in name else 1e-4
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance / 10)
    assert any(report.parts for report in reports)
    assert "PyTorch runs" not in caplog.text
    assert not any(report.note for report in reports)
