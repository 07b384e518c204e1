"""Scenarios of what people do to models: hooks, parametrizations, transformations."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from scenarios import Compiled, after, gradients, two_layers
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint
from torch_backend_cases import drawn


def doubles_its_gradient(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(2)


# --- hooks ---------------------------------------------------------------------------------------


@after("dynamo/test_hooks.py: test_hook_on_intermediate")
def hook_on_an_intermediate(compiled: Compiled) -> Any:
    def run(x: Tensor) -> Tensor:
        y = x * 2
        z = y + 1
        y.register_hook(lambda g: g * 3)
        return (z * torch.tanh(y)).sum()

    x = drawn(4).requires_grad_()
    result = compiled(run)(x)
    result.backward()
    return result, x.grad


@after("dynamo/test_hooks.py: test_tensor_register_multiple_hooks")
def hooks_on_an_input(compiled: Compiled) -> Any:
    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        x.register_hook(lambda g: g * 4)
        x.register_hook(lambda g: g / 2)
        return x, x * x

    x = drawn(3).requires_grad_()
    _, square = compiled(run)(x)
    square.backward(torch.tensor([1.0, 2.0, 3.0]))
    return square, x.grad


@after("dynamo/test_modules.py: test_hooks_outer")
def hooks_on_modules(compiled: Compiled) -> Any:
    model = two_layers()
    seen: list[Tensor] = []
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model[2].register_forward_hook(lambda module, args, output: output + args[0])
    model[2].register_full_backward_hook(lambda module, given, came: seen.append(came[0]))
    run = compiled(model)
    run(drawn(3, 10)).sum().backward()
    return run(drawn(3, 10)), gradients(model), seen


@after("dynamo/test_hooks.py: test_post_acc_grad_hook")
def hook_when_a_gradient_is_there(compiled: Compiled) -> Any:
    model = two_layers()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(doubles_its_gradient)
    compiled(model)(drawn(3, 10)).sum().backward()
    return gradients(model)


# --- parametrizations and other tensors that stand for tensors -----------------------------------


@after(
    "dynamo/test_parametrizations (nn/test_parametrization.py): test_weight_norm_parametrization"
)
def weight_norm(compiled: Compiled) -> Any:
    torch.manual_seed(0)
    model = parametrizations.weight_norm(nn.Conv2d(3, 4, 3))
    run = compiled(model)
    first = run(drawn(1, 3, 6, 6))
    first.sum().backward()
    with torch.no_grad():
        model.parametrizations.weight.original0.mul_(2)
    return first, run(drawn(1, 3, 6, 6)), gradients(model)


@after("nn/test_parametrization.py: test_new_spectral_norm")
def spectral_norm(compiled: Compiled) -> Any:
    torch.manual_seed(0)
    model = parametrizations.spectral_norm(nn.Linear(6, 5))
    run = compiled(model)
    results = [run(drawn(2, 6)) for _ in range(2)]  # each iterates for the norm
    model.eval()
    return results, run(drawn(2, 6))


@after("nn/test_parametrization.py: test_register_and_remove_parametrization")
def symmetric_weights(compiled: Compiled) -> Any:
    class Symmetric(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.triu() + x.triu(1).T

    torch.manual_seed(0)
    model = nn.Linear(5, 5)
    parametrize.register_parametrization(model, "weight", Symmetric())
    run = compiled(model)
    first = run(drawn(2, 5))
    parametrize.remove_parametrizations(model, "weight")
    return first, run(drawn(2, 5))


@after("dynamo/test_subclasses.py: test_torch_function_call_on_attr")
def parameter_of_a_subclass(compiled: Compiled) -> Any:
    class Named(nn.Parameter):
        pass

    model = nn.Module()
    model.weight = Named(drawn(4, 4))
    model.forward = lambda x: torch.relu(x @ model.weight)  # type: ignore[method-assign]
    result = compiled(model)(drawn(2, 4))
    result.sum().backward()
    return result, model.weight.grad


@after("dynamo/test_subclasses.py: test_wrapper_subclass_guards_on_inner_tensor")
def two_tensors_in_one(compiled: Compiled) -> Any:
    from torch.testing._internal.two_tensor import TwoTensor

    def run(x: Tensor) -> Tensor:
        return torch.relu(x * 2) + 1

    found = compiled(run)(TwoTensor(drawn(4, 5), drawn(4, 5, seed=1)))
    return found.a, found.b


# --- transformations inside ----------------------------------------------------------------------


@after("dynamo/test_higher_order_ops.py: test_functional_call")
def functional_call(compiled: Compiled) -> Any:
    model = two_layers()

    def run(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, weights, (x,))

    weights = {name: p.detach() * 2 for name, p in model.named_parameters()}
    return compiled(run)(weights, drawn(3, 10))


@after("dynamo/test_higher_order_ops.py: test_grad")
def gradient_inside(compiled: Compiled) -> Any:
    def run(x: Tensor) -> Tensor:
        return torch.func.grad(lambda y: (torch.sin(y) * y).sum())(x) * 2

    return compiled(run, fullgraph=True)(drawn(3, 4))


@after("dynamo/test_higher_order_ops.py: test_grad_with_side_effect, test_hessian")
def hessian_inside(compiled: Compiled) -> Any:
    def run(x: Tensor) -> Tensor:
        return torch.func.hessian(lambda y: (torch.tanh(y) * y.sum()).sum())(x)

    return compiled(run)(drawn(4))


@after("dynamo/test_higher_order_ops.py: test_vmap")
def vmap_inside(compiled: Compiled) -> Any:
    def run(x: Tensor, y: Tensor) -> Tensor:
        return torch.func.vmap(lambda a, b: torch.softmax(a @ b, -1), in_dims=(0, None))(x, y)

    return compiled(run, fullgraph=True)(drawn(3, 4, 5), drawn(5, 6))


@after("dynamo/test_higher_order_ops.py: test_vmap_grad")
def gradients_per_sample(compiled: Compiled) -> Any:
    model = two_layers()
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, weights, (x[None],)).pow(2).sum()

    def run(weights: dict[str, Tensor], x: Tensor) -> Any:
        return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, x)

    return compiled(run)(weights, drawn(3, 10))


@after("dynamo/test_higher_order_ops.py: test_jvp_simple")
def forward_mode_inside(compiled: Compiled) -> Any:
    def run(x: Tensor, v: Tensor) -> Any:
        return torch.func.jvp(lambda y: torch.exp(y).sum(0), (x,), (v,))

    return compiled(run)(drawn(3, 4), drawn(3, 4, seed=1))


@after("functorch/test_aotdispatch.py: test_inner_grad")
def autograd_inside(compiled: Compiled) -> Any:
    def run(x: Tensor) -> Any:
        y = torch.exp(x)
        return torch.autograd.grad(y.sum(), x)[0] * 2

    return compiled(run)(drawn(4).requires_grad_())


@after("dynamo/test_higher_order_ops.py: test_cond_subgraph_name_is_valid")
def branch_in_a_graph(compiled: Compiled) -> Any:
    def run(x: Tensor) -> Tensor:
        y = torch.relu(x) * 2
        z = torch.cond(y.sum() > 5, lambda t: torch.sin(t) + 1, lambda t: t - 1, (y,))
        return torch.tanh(z)

    both = compiled(run, fullgraph=True)
    with torch.no_grad():
        return both(drawn(3, 4)), both(drawn(3, 4) * 9)


@after("functorch/test_control_flow.py: test_while_loop_simple_with_linear")
def loop_in_a_graph(compiled: Compiled) -> Any:
    def run(x: Tensor) -> Tensor:
        def goes_on(i: Tensor, y: Tensor) -> Tensor:
            return i < 3

        def step(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, torch.tanh(y) * 2

        _, y = torch._higher_order_ops.while_loop(goes_on, step, (torch.tensor(0), x * 2))
        return y + 1

    with torch.no_grad():
        return compiled(run, fullgraph=True)(drawn(3, 4))


@after("dynamo/test_activation_checkpointing.py: test_tags_dropout")
def checkpointed(compiled: Compiled) -> Any:
    model = two_layers()

    def run(x: Tensor) -> Tensor:
        y = checkpoint(lambda t: F.dropout(torch.sin(model(t)), 0.5), x, use_reentrant=False)
        return y * 2

    torch.manual_seed(3)
    result = compiled(run)(drawn(3, 10).requires_grad_())
    result.sum().backward()
    return result.shape, len(gradients(model))


@after("dynamo/test_autograd_function.py: test_save_for_bwd")
def autograd_function(compiled: Compiled) -> Any:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, *came: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return came[0] * 3 * x**2 + 0.25

    x = drawn(4).requires_grad_()
    result = compiled(lambda x: Cube.apply(torch.sin(x)) * 2)(x)
    result.sum().backward()
    return result, x.grad
