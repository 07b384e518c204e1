"""`options={"freeze": True}`: weights are compiled in, and read once they are seen to change."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_backend_runs import EMULATED
from weight_changes import steps

from tvm_tile.errors import OptionError, RunError
from tvm_tile.runtime import CompiledModel
from tvm_tile.torch import GraphReport
from tvm_tile.torch.backend import compiled
from tvm_tile.torch.options import BackendOptions

pytestmark = [
    pytest.mark.bank(4),
    pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl"),
]


class Network(nn.Module):
    """A convolution whose norm can be folded, and products of one input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image = nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.parts = nn.ModuleList([nn.Linear(4, 6), nn.Linear(4, 6)])
        nn.init.uniform_(self.image[1].running_var, 0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.image(x).flatten(2).transpose(1, 2)
        return self.parts[0](x) * torch.sigmoid(self.parts[1](x))


def run_of(
    model: nn.Module, told: list[GraphReport] | None = None, **options: Any
) -> Callable[..., Any]:
    torch._dynamo.reset()
    chosen = BackendOptions.of({**EMULATED, "freeze": True, **options})
    tell = (told if told is not None else []).append
    return torch.compile(model, backend=lambda graph, given: compiled(graph, given, chosen, tell))


def drawn(seed: int) -> Tensor:
    return torch.randn(2, 2, 6, 6, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def assert_same_calls(run: Any, model: nn.Module) -> None:
    for seed in range(2):
        x = drawn(seed)
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)


def models(told: list[GraphReport]) -> list[CompiledModel]:
    return [part.model for report in told for part in report.parts]


def test_weights_are_compiled_in() -> None:
    model, told = Network().eval(), list[GraphReport]()
    assert_same_calls(run_of(model, told), model)
    (frozen,) = models(told)
    assert len(frozen.inputs) == 1
    live = list[GraphReport]()
    assert_same_calls(run_of(model, live, freeze=False), model)
    (read,) = models(live)
    assert len(read.inputs) == 10

    def norms(model: CompiledModel) -> bool:
        return any("subtract" in kernel.name for kernel in model.report.kernels)

    assert norms(read)
    assert not norms(frozen)  # its weights are the convolution's


@pytest.mark.parametrize(("freeze", "inputs"), [(None, 1), (False, 10)])
def test_what_is_said_to_pytorch_holds_unless_an_option_says_otherwise(
    freeze: bool | None, inputs: int
) -> None:
    model, told = Network().eval(), list[GraphReport]()
    with torch._inductor.config.patch(freezing=True):
        assert_same_calls(run_of(model, told, freeze=freeze), model)
    (made,) = models(told)
    assert len(made.inputs) == inputs


def test_nothing_is_frozen_without_a_word() -> None:
    model, told = Network().eval().requires_grad_(False), list[GraphReport]()
    run = run_of(model, told, freeze=None)
    assert_same_calls(run, model)
    (made,) = models(told)
    assert len(made.inputs) == 10
    model.parts[0].weight.data += 1  # as adapters are merged, which nobody counts
    assert_same_calls(run, model)


def assigned(model: Any) -> None:
    model.parts[0].weight = nn.Parameter(torch.randn(6, 4))


def pointed(model: Any) -> None:
    model.parts[1].weight.data = torch.randn(6, 4)


def exchanged(model: Any) -> None:
    first, second = (part.weight for part in model.parts)
    first.data, second.data = second.data, first.data


def reloaded(model: Any) -> None:
    model.load_state_dict({name: value * 1.5 for name, value in model.state_dict().items()})


def reloaded_by_assignment(model: Any) -> None:
    model.load_state_dict({n: v * 0.5 for n, v in model.state_dict().items()}, assign=True)


@torch.no_grad()
def written(model: Any) -> None:
    model.parts[0].bias[2] += 40


CHANGES = [
    steps,
    assigned,
    pointed,
    exchanged,
    reloaded,
    reloaded_by_assignment,
    written,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_are_seen(change: Callable[[Any], None]) -> None:
    model = Network().eval()
    run = run_of(model)
    assert_same_calls(run, model)
    for _ in range(2):
        before = model(drawn(0))
        change(model)
        assert not torch.allclose(model(drawn(0)), before, rtol=1e-3)
        assert_same_calls(run, model)


def test_copies_share_code_and_not_weights() -> None:
    model = Network().eval()
    run: Any = run_of(model)
    assert_same_calls(run, model)
    other = copy.deepcopy(run)
    steps(other)
    for _ in range(2):
        assert_same_calls(run, model)
        assert_same_calls(other, other._orig_mod)


def test_what_a_graph_writes_to_is_no_weight() -> None:
    model, told = Network().train(), list[GraphReport]()
    with torch.no_grad():
        twin = copy.deepcopy(model)
        run = run_of(model, told)
        for seed in range(3):
            torch.testing.assert_close(run(drawn(seed)), twin(drawn(seed)), rtol=1e-4, atol=1e-5)
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value)


def test_training_reads_its_weights() -> None:
    model, told = Network().train(), list[GraphReport]()
    run = run_of(model, told)
    for _ in range(2):
        model.zero_grad()
        run(drawn(0)).square().sum().backward()
        found = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        model(drawn(0)).square().sum().backward()
        for one, parameter in zip(found, model.parameters(), strict=True):
            torch.testing.assert_close(one, parameter.grad, rtol=1e-3, atol=1e-4)
        steps(model)


def test_tensors_of_inference_mode_are_read() -> None:
    with torch.inference_mode():
        model, told = Network().eval(), list[GraphReport]()
        run = run_of(model, told)
        torch.testing.assert_close(run(drawn(0)), model(drawn(0)), rtol=1e-4, atol=1e-5)
        model.parts[0].weight.mul_(2)
        torch.testing.assert_close(run(drawn(0)), model(drawn(0)), rtol=1e-4, atol=1e-5)


def test_weights_in_another_order_than_row_major() -> None:
    model = Network().eval().to(memory_format=torch.channels_last)
    told = list[GraphReport]()
    assert_same_calls(run_of(model, told), model)
    (frozen,) = models(told)
    assert len(frozen.inputs) == 1


def test_a_program_that_fails_is_run_by_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Network().eval()
    run = run_of(model)

    def fail(*_: Any) -> None:
        raise RunError("a device", "none", "buy one")

    monkeypatch.setattr(CompiledModel, "call_torch", fail)
    assert_same_calls(run, model)


def test_a_wrong_option() -> None:
    with pytest.raises(OptionError, match="freeze must be True or False"):
        BackendOptions.of({"freeze": "yes"})
