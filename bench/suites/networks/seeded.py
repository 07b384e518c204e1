"""Random weights that are the same in every process and keep activations in range."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

SEED = 20231

Module = TypeVar("Module", bound=nn.Module)


def seeded(make: Callable[[], Module], *, gain: float | None = None) -> Module:
    """A module in evaluation mode, without gradients.

    Batch norms get statistics near, but not at, the trivial ones of a new module: a compiler
    could drop those.

    Args:
        make: builds the module; what it draws is fixed here.
        gain: draw the weights of products and convolutions with this variance over the fan-in.
            PyTorch's own are drawn with a third, with which deep networks without normalization
            answer with their biases alone; ReLU halves it, so that very deep ones need two (He et
            al., "Delving Deep into Rectifiers", 2015).
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(SEED)
        module = make().eval().requires_grad_(False)
        for layer in module.modules():
            if isinstance(layer, _BatchNorm):
                layer.weight.uniform_(0.8, 1.2)
                layer.bias.uniform_(-0.1, 0.1)
                layer.running_mean.uniform_(-0.1, 0.1)
                layer.running_var.uniform_(0.8, 1.2)
            elif gain is not None and isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
                layer.weight.normal_(0.0, (gain / layer.weight[0].numel()) ** 0.5)
    return module
