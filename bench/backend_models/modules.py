"""PyTorch's samples of its own modules: for inference, and in training with gradients."""

from __future__ import annotations

import copy
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

LIBRARY = "torch.nn"
_MOST_SAMPLES = 4  # of a module, in evaluation mode and in training each


def keys() -> list[str]:
    """All modules that PyTorch has samples of, as ``torch.nn/NAME``."""
    return [f"{LIBRARY}/{name}" for name in _database()]


def check(name: str, compiled: Callable[[Any], Any]) -> float:
    """Call a module's samples with PyTorch alone and ``compiled``.

    Returns:
        The largest difference of a result, a gradient or a buffer, over the tensor's largest value.
    """
    worst = 0.0
    for module, sample, trains in _samples(name):
        try:
            twin = copy.deepcopy(module)
            wanted = _seen(twin, twin, sample, trains)
        except (RuntimeError, NotImplementedError):  # samples that PyTorch itself does not run
            continue
        torch._dynamo.reset()
        found = _seen(compiled(module), module, sample, trains)
        worst = max(worst, _difference(found, wanted))
    return worst


def _samples(name: str) -> Iterator[tuple[torch.nn.Module, Any, bool]]:
    info = _database()[name]
    for trains in (False, True):
        samples = info.module_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=False, training=trains
        )
        for sample in samples[:_MOST_SAMPLES]:
            if sample.forward_input is not None:
                torch.manual_seed(0)
                given = sample.constructor_input
                module = info.module_cls(*given.args, **given.kwargs).train(trains)
                yield module, sample.forward_input, trains


def _seen(run: Any, module: torch.nn.Module, sample: Any, trains: bool) -> list[Tensor]:
    """What a call returns and leaves: results, gradients, and the module's state."""
    torch.manual_seed(0)
    args, kwargs = copy.deepcopy((sample.args, sample.kwargs))
    inputs = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    if trains:
        for x in inputs:
            x.requires_grad_(x.is_floating_point())
    with torch.set_grad_enabled(trains):
        results = [x for x in pytree.tree_leaves(run(*args, **kwargs)) if isinstance(x, Tensor)]
        ends = [x for x in results if x.requires_grad]
        if ends:
            weights = [torch.linspace(0.5, 1, x.numel()).view(x.shape) for x in ends]
            sum((x * w).sum() for x, w in zip(ends, weights, strict=True)).backward()
    gradients = [x.grad for x in (*inputs, *module.parameters()) if x.grad is not None]
    return [x.detach() for x in (*results, *gradients, *module.state_dict().values())]


def _difference(found: list[Tensor], wanted: list[Tensor]) -> float:
    from bench.architectures.check import relative_error

    assert [x.stride() for x in found] == [x.stride() for x in wanted], "strides, or how many"
    pairs = zip(found, wanted, strict=True)
    errors = [relative_error(x.double().numpy(), y.double().numpy()) for x, y in pairs]
    return max(errors, default=0.0)


@cache
def _database() -> dict[str, Any]:
    if "expecttest" not in sys.modules:  # PyTorch's test suite imports it; its samples need it not
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].TestCase = unittest.TestCase  # type: ignore[attr-defined]
    from torch.testing._internal.common_modules import module_db

    return {info.name.removeprefix("nn.").replace(".", "_"): info for info in module_db}
