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


def filtered(x: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(x) * 0.5)


def rotated(x: Tensor) -> Tensor:
    turn = torch.polar(torch.ones_like(x), x)
    return torch.view_as_real(torch.view_as_complex(torch.stack([x, x], -1)) * turn)


def copied(x: Tensor) -> Tensor:
    z = torch.zeros(4, 4, dtype=torch.complex64)
    z.real.copy_(x)
    return z.abs()


def noisy(x: Tensor) -> Tensor:
    return x + torch.poisson(x)


def branching(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: torch.fft.fft(x).abs(), lambda x: x + 1, (x,))


def exponential(x: Tensor) -> Tensor:
    return torch.linalg.matrix_exp(x).relu()


def solved(x: Tensor) -> Tensor:
    return torch.linalg.solve(x, x + 1)


CASES: dict[str, tuple[Any, str]] = {
    "real transform": (filtered, "fft_rfft.default: element type torch.complex64"),
    "polar": (rotated, "polar.default: element type torch.complex64"),
    "complex copy": (copied, "zeros.default: element type torch.complex64"),
    "random numbers": (noisy, "poisson.default: random numbers"),
    "in a branch": (branching, "fft_fft.default: element type torch.complex64"),
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
    lines = {"return self.function(x)", "fft_fft = torch._C._fft.fft_fft("}
    assert any(f"from `{line}" in refused.value.current for line in lines)
