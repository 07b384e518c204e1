"""Scenarios of training, of contexts that models run in, and of modules as users have them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from scenarios import Compiled, after, gradients, two_layers
from torch import Tensor, nn
from torch_backend_cases import drawn

# --- training ------------------------------------------------------------------------------------


def _trained(compiled: Compiled, make: Callable[[Any], torch.optim.Optimizer]) -> Any:
    """Weights after three steps, the optimizer's own step compiled, too."""
    model = two_layers()
    optimizer = make(model.parameters())
    run, step = compiled(model), compiled(optimizer.step)
    losses = []
    for i in range(3):
        loss = (run(drawn(5, 10, seed=i)) - 0.3).pow(2).mean()
        loss.backward()
        step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses, list(model.state_dict().values())


@after("inductor/test_compiled_optimizers.py: test_sgd_momentum")
def sgd(compiled: Compiled) -> Any:
    return _trained(compiled, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1))


@after("inductor/test_compiled_optimizers.py: test_adam")
def adam(compiled: Compiled) -> Any:
    return _trained(compiled, lambda p: torch.optim.Adam(p, lr=0.1))


@after("inductor/test_compiled_optimizers.py: test_adamw")
def adamw_of_many_at_once(compiled: Compiled) -> Any:
    return _trained(compiled, lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True, amsgrad=True))


@after("dynamo/test_repros.py: test_optimized_module_training, dynamo/test_optimizers.py")
def a_whole_step(compiled: Compiled) -> Any:
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = compiled(step)
    return [run(drawn(5, 10, seed=i)) for i in range(3)], list(model.state_dict().values())


@after("dynamo/test_aot_autograd.py: test_donated_buffer_with_retain_or_create_graph2")
def backward_again_and_again(compiled: Compiled) -> Any:
    x = drawn(3, 3).requires_grad_()
    total = compiled(lambda x: torch.relu(x) * torch.tanh(x))(x).sum()
    for _ in range(3):
        total.backward(retain_graph=True)
    total.backward()
    return x.grad


@after("dynamo/test_aot_autograd.py: test_aot_grad_mode_mutation")
def turns_gradients_off(compiled: Compiled) -> Any:
    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * x
        torch.set_grad_enabled(False)
        return y.clone(), y

    try:
        one, other = compiled(run, fullgraph=True)(drawn(3).requires_grad_())
        return one, other.detach(), one.requires_grad, other.requires_grad, torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


@after("dynamo/test_aot_autograd.py: test_requires_grad_fake_via_dynamo_recompiles")
def first_with_gradients_then_without(compiled: Compiled) -> Any:
    run = compiled(lambda x, y: torch.sin(x) * y + x)
    results = []
    for of_x, of_y in ((True, True), (True, False), (False, True), (False, False)):
        x, y = drawn(3).requires_grad_(of_x), drawn(3, seed=1).requires_grad_(of_y)
        z = run(x, y)
        if z.requires_grad:
            z.sum().backward()
        results.append((z.detach(), x.grad, y.grad))
    return results


@after("dynamo/test_modules.py: test_requires_grad_on_frozen_layers, dynamo/test_misc.py")
def frozen_layers(compiled: Compiled) -> Any:
    model = two_layers()
    run = compiled(model)
    run(drawn(3, 10)).sum().backward()
    model[0].requires_grad_(False)
    model.zero_grad()
    run(drawn(3, 10)).sum().backward()
    return gradients(model)


# --- contexts ------------------------------------------------------------------------------------


@after("dynamo/test_ctx_manager.py: test_autocast_cpu")
def autocast_inside(compiled: Compiled) -> Any:
    model = two_layers()

    def run(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = model(x)
        with torch.autocast("cpu", enabled=False):
            return y.float() @ x.t()

    return compiled(run)(drawn(3, 10)).detach()


@after("dynamo/test_ctx_manager.py: test_autograd_profiler_enabled, test_no_grad")
def gradients_off_and_on(compiled: Compiled) -> Any:
    def run(x: Tensor) -> Tensor:
        y = torch.sin(x)
        with torch.no_grad():
            z = y * 3
            with torch.enable_grad():
                z = z + torch.cos(y)
        return z * y

    x = drawn(4).requires_grad_()
    result = compiled(run)(x)
    result.sum().backward()
    return result, x.grad


@after("dynamo/test_misc.py: test_inference_mode_dynamic_shapes, test_inference_mode_param")
def inference_mode_inside(compiled: Compiled) -> Any:
    model = two_layers()

    def run(x: Tensor) -> Tensor:
        with torch.inference_mode():
            return model(x) * 2

    # No inference tensor, as of every backend of AOTAutograd's.
    return compiled(run)(drawn(3, 10)).clone()


@contextmanager
def double_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@after("dynamo/test_misc.py: test_set_default_dtype / test_default_dtype_change")
def default_dtype(compiled: Compiled) -> Any:
    run = compiled(lambda x: x * torch.ones(3) + torch.arange(3) / 2)
    first = run(drawn(3))
    with double_by_default():
        return first, run(drawn(3))


# --- modules as users have them ------------------------------------------------------------------


@after("dynamo/test_modules.py: test_module_deepcopy, test_save_and_load_inductor")
def copied_and_trained_apart(compiled: Compiled) -> Any:
    run = compiled(two_layers())
    other = copy.deepcopy(run)
    other(drawn(3, 10)).sum().backward()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(parameter.grad)
    return run(drawn(3, 10)), other(drawn(3, 10))


@after("dynamo/test_modules.py: test_lazy_module1")
def lazy_module(compiled: Compiled) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
    run = compiled(model)
    first = run(drawn(3, 5))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(drawn(*parameter.shape))
    return first.shape, run(drawn(3, 5))


@after("dynamo/test_modules.py: test_module_dict_iter_values, test_unspec_inplace_module")
def modules_in_containers(compiled: Compiled) -> Any:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.named = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
            self.listed = nn.ParameterList([drawn(4), drawn(4, seed=1)])

        def forward(self, x: Tensor) -> Tensor:
            for layer, weight in zip(self.named.values(), self.listed, strict=True):
                x = torch.relu(layer(x)) * weight
            return x

    model = Many()
    compiled(model)(drawn(3, 4)).sum().backward()
    return gradients(model)


@after("dynamo/test_modules.py: test_moduledict_contains, test_nn_module_setattr")
def module_moved_to_another_dtype(compiled: Compiled) -> Any:
    model = two_layers()
    run = compiled(model)
    first = run(drawn(3, 10))
    model.double()
    return first, run(drawn(3, 10).double())


@after("dynamo/test_aot_autograd.py: test_nn_parameter_construction")
def parameter_made_inside(compiled: Compiled) -> Any:
    return compiled(lambda x: torch.sin(x) + nn.Parameter(torch.ones(1)))(drawn(4, 4))


@after("dynamo/test_aot_autograd.py: test_LSTM")
def lstm(compiled: Compiled) -> Any:
    torch.manual_seed(0)
    model = nn.LSTM(6, 8, num_layers=2, bidirectional=True)
    x = drawn(4, 5, 6).transpose(0, 1).requires_grad_()
    with torch._dynamo.config.patch(allow_rnn=True):
        result, _ = compiled(model)(x)
    result.sum().backward()
    return result, gradients(model)


@after("dynamo/test_aot_autograd.py: test_call_fn_with_non_const_inputs_aot_safe")
def graph_of_fx(compiled: Compiled) -> Any:
    return compiled(torch.fx.symbolic_trace(two_layers()))(drawn(3, 10))
