"""Operators, and the values on which frameworks and compilers part: NaN, infinities, zeros' signs.

Each case is a function of PyTorch and its operands; what PyTorch makes of them is right, unless a
reason says why not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

inf, nan = math.inf, math.nan

# The last four are denormal numbers in float32, and what overflows.
VALUES = torch.tensor(
    [
        *(nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1.5, -1.5, 2.5, -2.5, 7.25),
        *(20.0, -20.0, 88.0, 100.0, -100.0, 1e5, -1e5, 1e-5, -1e-5, 1e30, -1e30, 1e-38),
        *(1e-40, -1e-40, 3e38, -3e38),
    ]
)
PAIRS = torch.cartesian_prod(VALUES, VALUES)
ROWS = torch.tensor(
    [
        [1, 2, nan, 3, 4, -1, 0, 7],
        [nan] * 8,
        [-inf] * 8,
        [inf] * 8,
        [inf, -inf, 1, 2, 3, 4, 5, 6],
        [-inf, 1, 2, 3, 4, 5, 6, 7],
        [0.0, -0.0] * 4,
        [-0.0] * 8,
        [1e-40] * 8,
        [3e38] * 8,
        [-inf, -inf, -inf, nan, -inf, -inf, -inf, -inf],
        [nan, inf, inf, inf, -inf, 1, 2, 3],
        [7, 7, 1, 1, 7, 1, 7, 1],
    ],
    dtype=torch.float32,
)


@dataclass(frozen=True, slots=True)
class Case:
    """One operator.

    Attributes:
        name: of the operator and its form.
        function: of tensors.
        operands: the first arguments, float32.
        reason: why a difference is none of ours; empty where there must be none.
        apart: where that reason holds; elsewhere there must be no difference.
    """

    name: str
    function: Callable[..., Tensor]
    operands: tuple[Tensor, ...]
    reason: str = ""
    apart: Callable[..., Tensor] | None = None


def cases() -> tuple[Case, ...]:
    """All of them: of one operand, of two, of rows."""
    unary = [Case(name, f, (VALUES,), *_EXCEPTIONS.get(name, ())) for name, f in _UNARY.items()]
    sides = (PAIRS[:, 0].contiguous(), PAIRS[:, 1].contiguous())
    binary = [Case(name, f, sides, *_EXCEPTIONS.get(name, ())) for name, f in _BINARY.items()]
    rows = [Case(name, f, (ROWS,), *_EXCEPTIONS.get(name, ())) for name, f in _OF_ROWS.items()]
    return (*unary, *binary, *rows)


def _functions(names: str) -> dict[str, Callable[..., Tensor]]:
    return {name: getattr(torch, name) for name in names.split()}


def _activations(names: str) -> dict[str, Callable[..., Tensor]]:
    return {name: getattr(functional, name) for name in names.split()}


_UNARY: dict[str, Callable[..., Tensor]] = {
    **_functions(
        "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp exp2 expm1 floor frac isfinite "
        "isinf isnan log log10 log1p log2 logical_not nan_to_num neg reciprocal round rsqrt "
        "sigmoid sign signbit sin sinh sqrt square tan tanh trunc"
    ),
    **_activations(
        "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu "
        "relu6 selu silu softplus softshrink softsign tanhshrink"
    ),
    "gelu (tanh)": lambda x: functional.gelu(x, approximate="tanh"),
    "threshold": lambda x: functional.threshold(x, 0.5, 7.0),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp (crossed)": lambda x: x.clamp(5, 1),
    "clamp (min)": lambda x: x.clamp(min=0.5),
    "clamp (max)": lambda x: x.clamp(max=0.5),
    "clamp (NaN)": lambda x: x.clamp(-1, nan),
    **{
        f"pow({exponent})": lambda x, exponent=exponent: x**exponent
        for exponent in (0.0, 0.25, 0.5, 1.5, 2.0, 3.0, -0.5, -1.0)
    },
    "2 ** x": lambda x: 2.0**x,
    "x * 0": lambda x: x * 0.0,
    "x + 0": lambda x: x + 0.0,
    "0 - x": lambda x: 0.0 - x,
    "x / 0": lambda x: x / 0.0,
    "1 / x": lambda x: 1.0 / x,
    "x - x": lambda x: (x + 1) - (x + 1),
    "(x + 1e8) - 1e8": lambda x: (x + 1e8) - 1e8,
    "x / x": lambda x: (x * 2) / (x * 2),
    "x == x": lambda x: x * 2 == x * 2,
    "x != x": lambda x: x * 2 != x * 2,
    "not x > 0": lambda x: ~(x * 2 > 0),
    "where": lambda x: torch.where(x > 0, x, -x),
    "where (-inf)": lambda x: torch.where(x > 0, x, -inf),
    "where (NaN)": lambda x: torch.where(x > 0, x, nan),
    "max of min": lambda x: torch.maximum(torch.minimum(x * 2, x), x),
    "fmod(2)": lambda x: torch.fmod(x, 2.0),
    "remainder(2)": lambda x: torch.remainder(x, 2.0),
    "remainder(-2)": lambda x: torch.remainder(x, -2.0),
    "floor_divide(2)": lambda x: torch.floor_divide(x, 2.0),
}
_BINARY: dict[str, Callable[..., Tensor]] = {
    **_functions(
        "add atan2 copysign div eq floor_divide fmax fmin fmod ge gt hypot le logaddexp lt maximum "
        "minimum mul ne pow remainder sub xlogy"
    ),
    "where (greater)": lambda x, y: torch.where(x > y, x, y),
    "clamp (tensor)": lambda x, y: torch.clamp(x, min=y),
    "(x + y) - y": lambda x, y: (x + y) - y,
}
_OF_ROWS: dict[str, Callable[..., Tensor]] = {
    **{
        name: lambda x, name=name: getattr(torch, name)(x, dim=-1)
        for name in (
            *("all", "amax", "amin", "any", "argmax", "argmin", "cumsum", "logsumexp", "mean"),
            *("nansum", "prod", "std", "sum", "var", "softmax", "log_softmax"),
        )
    },
    "max": lambda x: torch.max(x, -1)[0],
    "max (index)": lambda x: torch.max(x, -1)[1],
    "min": lambda x: torch.min(x, -1)[0],
    "sort": lambda x: torch.sort(x, -1)[0],
    "topk": lambda x: torch.topk(x, 3, -1)[0],
    **{
        f"norm ({order})": lambda x, order=order: torch.linalg.vector_norm(x, order, -1)
        for order in (1, 2, inf, -inf)
    },
    "layer_norm": lambda x: functional.layer_norm(x, (x.shape[-1],)),
    "max_pool1d": lambda x: functional.max_pool1d(x[None], 3, 2, 1),
    "max_pool2d": lambda x: functional.max_pool2d(x[None, None], 3, 2, 1),
    "avg_pool1d": lambda x: functional.avg_pool1d(x[None], 3, 2, 1),
    "adaptive_avg_pool1d": lambda x: functional.adaptive_avg_pool1d(x[None], 3),
}

_EITHER_ZERO = "PyTorch does not say which of two zeros is the larger: its CPU takes the second"
_BEYOND = "PyTorch's vectors have NaN where x / y overflows, its scalars have not"
_OVERFLOW = "the sum that the mean is taken of overflows; PyTorch's CPU adds up in float64"


def _both_zero(x: Tensor, y: Tensor) -> Tensor:
    return (x == 0) & (y == 0)


def _is_beyond(x: Tensor, y: Tensor) -> Tensor:
    return (x.double() / y).abs() > torch.finfo(torch.float32).max


def _may_overflow(x: Tensor) -> Tensor:
    return x.abs().amax(-1) > 1e37


_EXCEPTIONS: dict[str, tuple[str, Callable[..., Tensor]]] = {
    "gelu": ("PyTorch's oneDNN overflows; without oneDNN PyTorch agrees", lambda x: x > 1e37),
    "maximum": (_EITHER_ZERO, _both_zero),
    "minimum": (_EITHER_ZERO, _both_zero),
    "clamp (tensor)": (_EITHER_ZERO, _both_zero),
    "fmax": (_EITHER_ZERO, _both_zero),
    "fmin": (_EITHER_ZERO, _both_zero),
    "fmod": (_BEYOND, _is_beyond),
    "remainder": (_BEYOND, _is_beyond),
    "softshrink": (
        "PyTorch's own decomposition has zeros of either sign",
        lambda x: x.abs() <= 0.5,
    ),
    "std": (_OVERFLOW, _may_overflow),
    "var": (_OVERFLOW, _may_overflow),
}
