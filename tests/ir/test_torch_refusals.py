"""What the PyTorch door refuses is told by its operator and by the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend import import_model


class Model(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def inverted(x: Tensor) -> Tensor:
    return torch.linalg.inv(torch.fft.rfft(x, dim=0)[:2, :2]).abs()


def rotated(x: Tensor) -> Tensor:
    return torch.polar(torch.ones_like(x), x).acos().abs()


def halves(x: Tensor) -> Tensor:
    return torch.complex(x.half(), x.half()).abs()


def transformed(x: Tensor) -> Tensor:
    return torch.fft.fft(x, 4099).abs()


def noisy(x: Tensor) -> Tensor:
    return x + torch.poisson(x)


def branching(x: Tensor) -> Tensor:
    z = torch.fft.fft(x)
    return torch.cond(x.sum() > 0, lambda z: z.abs(), lambda z: z.abs() + 1, (z,))


def exponential(x: Tensor) -> Tensor:
    return torch.linalg.matrix_exp(x).relu()


def solved(x: Tensor) -> Tensor:
    return torch.linalg.solve(x, x + 1)


CASES: dict[str, tuple[Any, str]] = {
    "complex inverse": (inverted, "linalg_inv.default: no rule for complex numbers"),
    "complex arc cosine": (rotated, "acos.default: no rule for complex numbers"),
    "complex halves": (halves, "complex.default: element type torch.complex32"),
    "a long prime": (transformed, "fourier.default: a transform of 4099 points"),
    "random numbers": (noisy, "poisson.default: random numbers"),
    "into a branch": (branching, "cond: complex numbers into a function"),
    "matrix exponential": (exponential, "matrix_exp.default: no converter"),
    "solve": (solved, "linalg_solve_ex.default: no converter"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_refusals_name_operator_and_line(name: str) -> None:
    function, operator = CASES[name]
    with torch.no_grad():
        program = torch.export.export(Model(function), (torch.eye(4),))
    with pytest.raises(UnsupportedOperatorError) as refused:
        import_model(program, inputs=None, example_inputs=None)
    assert operator in refused.value.current
    lines = {"return self.function(x)", "cond = torch.ops.higher_order.cond("}
    assert any(f"from `{line}" in refused.value.current for line in lines)
