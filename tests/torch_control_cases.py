"""Models with PyTorch's functions of functions: what its tests of control flow check, and more."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils import _pytree as pytree

Inputs = Callable[[int], tuple[Tensor, ...]]
"""From the number of a call to its inputs: conditions and counts differ from call to call."""


class Linear(nn.Module):
    """A module with two layers, for a body to use."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)


class NestedBranches(nn.Module):
    """Conditions in branches of branches, values from around them, code before and behind."""

    def forward(self, p: Tensor, q: Tensor, a: Tensor, b: Tensor) -> Any:
        outer = a * 2

        def both(x: Tensor, y: Tensor) -> Any:
            inner = torch.cond(
                x.sum() > y.sum(), lambda x, y: x - y * outer, lambda x, y: x @ y.t() @ y, (x, y)
            )
            return inner * 3.25, (y - inner).sum(1)

        def one(x: Tensor, y: Tensor) -> Any:
            return torch.cond(
                q,
                lambda x, y: (x / (y.abs() + 1), x.mean(1)),
                lambda x, y: (y + 1, y.sum(1)),
                (x, y),
            )

        first, second = torch.cond(p, both, one, (a + 1, b))
        return first * first, second + outer.sum()


class BranchesOfWeights(Linear):
    """Branches that use layers, one of them both."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(
            x.sum() > 0,
            lambda x: torch.relu(self.one(x)),
            lambda x: self.other(torch.tanh(self.one(x))),
            (x,),
        )


class While(Linear):
    """Goes on as long as the data say, none or many times."""

    def forward(self, limit: Tensor, x: Tensor) -> Any:
        def goes_on(i: Tensor, h: Tensor) -> Tensor:
            return (i < limit) & (h.abs().sum() > 0.01)

        def body(i: Tensor, h: Tensor) -> Any:
            h = torch.tanh(self.other(torch.relu(self.one(h))))
            return i + 1, h + x * torch.tensor([0.5, 0.25] * 4)

        return while_loop(goes_on, body, (torch.zeros((), dtype=torch.int64), x * 1))


class NestedWhiles(nn.Module):
    """A loop in a loop, with values of both carried and changed places."""

    def forward(self, a: Tensor, b: Tensor, x: Tensor) -> Any:
        def body(i: Tensor, j: Tensor, x: Tensor, y: Tensor) -> Any:
            j, y = while_loop(lambda j, y: j < b, lambda j, y: (j + 1, y * 0.5 + x), (j * 0, y))
            return i + 1, j + i, y - 1, x.clone()

        start = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda i, j, x, y: i < a, body, (start, start.clone(), x, x + 1))


class BranchInWhile(Linear):
    """A branch in a loop, of which each side is taken at some time."""

    def forward(self, limit: Tensor, x: Tensor) -> Any:
        def body(i: Tensor, h: Tensor) -> Any:
            is_odd = (i % 2) == 1
            return i + 1, torch.cond(is_odd, lambda h: self.one(h), lambda h: h * h.mean(), (h,))

        return while_loop(lambda i, h: i < limit, body, (torch.zeros_like(limit), x))


class Scans(Linear):
    """Recurrences in both directions, of which each makes rows of several shapes."""

    def forward(self, bias: Tensor, xs: Tensor) -> Any:
        def step(h: Tensor, x: Tensor) -> Any:
            h = torch.tanh(self.one(h) + x) + bias
            return h, (h * 2, h - x, (h * x).sum(), x.sum() > 0)

        there = scan(step, xs[0] * 0, xs)
        back = scan(step, xs[1] + 1, xs, reverse=True)
        return there, back


class ScanOfLoops(Linear):
    """In each iteration another number of iterations, and a branch."""

    def forward(self, bias: Tensor, xs: Tensor) -> Any:
        def step(h: Tensor, x: Tensor) -> Any:
            _, y = while_loop(
                lambda k, h: k < h.abs().sum() + bias.abs().mean(),
                lambda k, h: (k + 1, h * 0.75),
                (torch.zeros(()), h),
            )
            z = torch.cond(y.sum() > 0, lambda y: self.one(y), lambda y: y - 1, (y,))
            return z + x, (y + 0, z.max())

        return scan(step, xs[0] * 1, xs)


class EqualBodies(Linear):
    """Layers whose loops differ in their weights alone, with numbers written out in all bodies."""

    def forward(self, bias: Tensor, xs: Tensor) -> Any:
        for layer in (self.one, self.other):

            def step(h: Tensor, x: Tensor, layer: nn.Module = layer) -> Any:
                h = torch.cond(
                    h.sum() > torch.tensor(0.5),
                    lambda h: layer(h) * torch.tensor([0.5, 0.25] * 4),
                    lambda h: h - torch.tensor(0.25),
                    (h,),
                )
                return h + x, torch.tanh(h)

            _, xs = scan(step, bias.clone(), xs)
        return xs


class ScanAlongAnotherAxis(nn.Module):
    """Several carried values and several tensors that are read, along the last axis."""

    def forward(self, bias: Tensor, xs: Tensor) -> Any:
        def step(state: Any, rows: Any) -> Any:
            (a, b), (x, y) = state, rows
            return (a + x, b * 0.5 + y), (a * b, x - y)

        start = xs[:, 0].clone(), bias.clone()
        return scan(step, start, (xs, xs * 2), dim=1)


class Maps(Linear):
    """Rows on their own, one map in another."""

    def forward(self, bias: Tensor, xs: Tensor) -> Any:
        signs = [1.0, -1.0] * 4
        one = torch_map(lambda x, b: torch.relu(self.one(x)) + b * torch.tensor(signs), xs, bias)

        def rows(x: Tensor, b: Tensor) -> Tensor:
            return torch_map(lambda y, b: y.exp() * b.sum(), x, b)

        return one, torch_map(rows, xs.unflatten(1, (2, 4)), bias)


class AssociativeScans(nn.Module):
    """Sums and products of all rows before, forwards and backwards."""

    def forward(self, bias: Tensor, xs: Tensor) -> Any:
        def affine(one: Any, other: Any) -> Any:
            return one[0] * other[0], other[0] * one[1] + other[1]

        whole = associative_scan(affine, (xs * 0.5, xs + bias), 0, combine_mode="generic")
        back = associative_scan(torch.add, xs, 0, reverse=True, combine_mode="generic")
        return whole, back


def exported(module: nn.Module, inputs: tuple[Any, ...]) -> torch.export.ExportedProgram:
    """A module as PyTorch exports it."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(module.eval(), inputs)


def wide(value: Any) -> Any:
    """A value in float64, if it is a tensor of floating-point numbers."""
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def in_float64(module: nn.Module, inputs: tuple[Any, ...]) -> list[Any]:
    """What a module computes in float64: all tensors that it returns."""
    torch._dynamo.reset()  # it runs scans, and refuses the ninth that is unlike those before
    with torch.no_grad():
        expected = copy.deepcopy(module).double()(*pytree.tree_map(wide, inputs))
    return list(pytree.tree_leaves(expected))


def _tensors(number: int, *shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(number)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def _predicates(number: int) -> tuple[Tensor, ...]:
    flags = torch.tensor(bool(number & 1)), torch.tensor(bool(number & 2))
    return *flags, *_tensors(number, (4, 8), (4, 8))


def _signed(number: int) -> tuple[Tensor, ...]:
    (x,) = _tensors(0, (4, 8))
    return (x * (-1) ** number,)


def _counts(number: int) -> tuple[Tensor, ...]:
    return torch.tensor(number * 3), *_tensors(number, (4, 8))


def _two_counts(number: int) -> tuple[Tensor, ...]:
    return torch.tensor(number), torch.tensor(3 - number), *_tensors(number, (4, 8))


def _rows(count: int) -> Inputs:
    return lambda number: _tensors(number, (8,), (count, 8))


CASES: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "nested branches": (NestedBranches, _predicates),
    "branches of weights": (BranchesOfWeights, _signed),
    "while": (While, _counts),
    "nested whiles": (NestedWhiles, _two_counts),
    "branch in while": (BranchInWhile, _counts),
    "scans, written out": (Scans, _rows(5)),
    "scans": (Scans, _rows(60)),
    "scan of loops": (ScanOfLoops, _rows(40)),
    "equal bodies": (EqualBodies, _rows(60)),
    "scan along another axis": (
        ScanAlongAnotherAxis,
        lambda number: _tensors(number, (6,), (6, 90)),
    ),
    "maps": (Maps, _rows(100)),
    "associative scans": (AssociativeScans, _rows(7)),
}
