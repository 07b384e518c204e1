"""Training through our backend of `torch.compile`: gradients are PyTorch's, step after step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor, nn
from torch_backend_cases import drawn
from torch_backend_models import Recurrent, ResidualBlock, TransformerBlock, perceptron
from torch_backend_runs import backend

from tvm_tile.torch import GraphKind, GraphReport

pytestmark = [
    pytest.mark.bank(4),
    pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl"),
]


@pytest.fixture(autouse=True)
def compiled_anew() -> None:
    torch._dynamo.reset()


def step(run: Callable[[Tensor], Tensor], model: nn.Module, x: Tensor) -> list[Tensor]:
    """One step of gradient descent: the loss, then all gradients."""
    torch.manual_seed(0)  # of dropout
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    y = run(x)
    loss = (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).pow(2).mean()
    loss.backward()
    optimizer.step()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def assert_close(found: list[Tensor], wanted: list[Tensor]) -> None:
    assert len(found) == len(wanted)
    largest = max(float(tensor.abs().max()) for tensor in wanted[1:])
    for one, other in zip(found, wanted, strict=True):
        assert one.stride() == other.stride()
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * largest)


MODELS = {
    "perceptron": (perceptron, lambda: drawn(7, 6), 1),
    "recurrent": (Recurrent, lambda: drawn(3, 2, 6), 0),
    "transformer": (TransformerBlock, lambda: torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]]), 2),
    "residual": (ResidualBlock, lambda: drawn(2, 3, 8, 8), 2),
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients(name: str) -> None:
    make, inputs, eager = MODELS[name]
    torch.manual_seed(0)
    theirs = make()
    ours = copy.deepcopy(theirs)
    reports: list[GraphReport] = []
    run = torch.compile(ours, backend=backend(reports.append))
    for _ in range(2):
        wanted = step(theirs, theirs, inputs())
        assert_close(step(run, ours, inputs()), wanted)
    for one, other in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert [report.kind for report in reports] == [GraphKind.FORWARD, GraphKind.BACKWARD]
    assert all(report.parts for report in reports)
    # Dropout; attention and its gradient; the gradients of two convolutions.
    assert sum(len(report.eager) for report in reports) == eager


def test_gradients_of_inputs_at_two_sizes() -> None:
    def model(x: Tensor) -> Tensor:
        return torch.softmax(x * 2, -1) * torch.tanh(x)

    reports: list[GraphReport] = []
    run = torch.compile(model, backend=backend(reports.append), dynamic=True)
    for size in (4, 6, 4):
        ours, theirs = (drawn(size, 5).requires_grad_() for _ in range(2))
        run(ours).sum().backward()
        model(theirs).sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
    kinds = [report.kind for report in reports]
    assert kinds.count(GraphKind.FORWARD) == kinds.count(GraphKind.BACKWARD) == 2


def test_a_gradient_of_a_gradient_is_refused_as_by_pytorch_itself() -> None:
    x = drawn(3).requires_grad_()
    run = torch.compile(lambda x: torch.tanh(x) * 2, backend=backend(lambda _: None))
    (first,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        first.sum().backward()
