"""A module with buffers, and a comparison of calls, of what they leave behind, with PyTorch's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import tvm_tile
from tvm_tile.runtime import CompiledModel

ROWS, WIDTH = 8, 4


class Kept(nn.Module):
    """Buffers, and a function of them and of a call's inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("cache", torch.randn(2, 3, ROWS, WIDTH))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.ones(WIDTH), persistent=False)
        self.register_buffer("other", torch.randn(WIDTH))

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def compiled(model: nn.Module, *inputs: Any) -> CompiledModel:
    options = tvm_tile.Options(cache=False)
    return tvm_tile.compile(model, "emulated", example_inputs=inputs, options=options)


def check(function: Callable[..., Any], *draws: Callable[[], Any], calls: int = 3) -> CompiledModel:
    """Every call's outputs, inputs and buffers are PyTorch's."""
    theirs = Kept(function).eval()
    ours = compiled(copy.deepcopy(theirs), *(draw() for draw in draws))
    for _ in range(calls):
        inputs = [draw() for draw in draws]
        given = [tensor.clone() for tensor in inputs]
        with torch.no_grad():
            expected = theirs(*inputs)
        found = ours(*given)
        expected = expected if isinstance(expected, tuple) else (expected,)
        found = found if isinstance(found, tuple) else (found,)
        for own, wanted in zip((*found, *given), (*expected, *inputs), strict=True):
            torch.testing.assert_close(own, wanted)
        buffers = dict(theirs.named_buffers())
        for name, tensor in ours.state.items():
            torch.testing.assert_close(torch.from_dlpack(tensor), buffers[name])
    return ours


def values(*shape: int) -> Callable[[], Any]:
    return lambda: torch.randn(shape)


def places(*shape: int, lowest: int = 0) -> Callable[[], Any]:
    return lambda: torch.randint(lowest, ROWS, shape)
