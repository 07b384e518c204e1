"""Models whose weights CUDA graphs read, and what may become of these weights between two calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


def deep(self: Any, x: Tensor) -> Tensor:
    """Enough kernels in a row for a CUDA graph."""
    x = torch.softmax(self.first(x), -1)
    return self.last(torch.softmax(self.linear(x), -1)) * 2


def tied(self: Any, x: Tensor) -> Tensor:
    for _ in range(3):
        x = torch.softmax(self.first(x) * self.scale, -1)
    return x @ self.first.weight


def recurs(self: Any, x: Tensor) -> Tensor:
    y = deep(self, torch.softmax(x + self.state, -1))
    self.state.copy_(torch.softmax(y, -1))
    return y


def repeats(self: Any, x: Tensor) -> list[Tensor]:
    """Equal layers with outputs in between, so that their graphs are calls of one function."""
    found = []
    for layer in (self.first, self.linear, self.last):
        x = torch.softmax(layer(torch.softmax(layer(x), -1)), -1)
        found.append(x)
    return found


def steps(model: Any) -> None:
    """An optimizer's step, with gradients of one."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def _replaced(model: Any) -> None:
    model.linear.weight.data = model.linear.weight.data * 1.5


def _put_back(model: Any) -> None:
    """Between two memories, both of which stay."""
    weight = model.linear.weight
    if not hasattr(model, "other"):
        object.__setattr__(model, "other", weight.data * 1.5)
    model.other, weight.data = weight.data, model.other


def _made_anew(model: Any) -> None:
    model.linear.weight = nn.Parameter(model.linear.weight.detach() * 2)


def _loaded(model: Any, *, assign: bool) -> None:
    values = {name: value * 1.5 for name, value in model.state_dict().items()}
    model.load_state_dict(values, assign=assign)


def _swapped(model: Any) -> None:
    """The memory of each has been the other's, so that no address is new."""
    first, linear = model.first.weight, model.linear.weight
    first.data, linear.data = linear.data, first.data


def _moved(model: Any) -> None:
    """To where no kernel can read them, and back."""
    weight = model.linear.weight
    begin = int(weight.data_ptr() % 16 == 0)
    memory = torch.empty(weight.numel() + 1, dtype=weight.dtype, device=weight.device)
    weight.data = memory[begin : begin + weight.numel()].view_as(weight).copy_(weight.data * 1.5)


WEIGHT_CHANGES: dict[str, Callable[[Any], None]] = {
    "changed by an optimizer": steps,
    "loaded into place": partial(_loaded, assign=False),
    "loaded by assignment": partial(_loaded, assign=True),
    "replaced": _replaced,
    "replaced and put back": _put_back,
    "made anew": _made_anew,
    "moved to between 16 bytes": _moved,
    "swapped": _swapped,
    "converted and converted back": lambda model: model.double().float(),
}

UNUSUAL_WEIGHTS: dict[str, Callable[[], Tensor]] = {
    "that begin between 16 bytes": lambda: torch.randn(26)[1:].view(5, 5),
    "that are transposed": lambda: torch.randn(5, 5).t(),
    "that are a slice of more": lambda: torch.randn(5, 8)[:, 2:7],
    "whose signs are not yet written": lambda: torch._neg_view(torch.randn(5, 5)),
}


def linear_of(weight: Callable[[], Tensor]) -> nn.Linear:
    made = nn.Linear(5, 5)
    made.weight = nn.Parameter(weight(), requires_grad=False)
    return made


def unties(model: Any) -> None:
    """First changed together, then one of them alone."""
    with torch.no_grad():
        model.first.weight.mul_(1.5)
    model.scale = model.scale + 1
