"""PyTorch's Fourier transforms, as transforms of one dimension after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tvm_tile.frontend.torch.fourier_operator import BY_LENGTH, BY_ROOT, FOURIER
from tvm_tile.frontend.torch.pairs.formulas import viewed_as_complex, viewed_as_real
from tvm_tile.frontend.torch.pairs.pair import Pair

_ATEN = torch.ops.aten


def _scale(count: int, normalization: int) -> float:
    powers = {BY_ROOT: -0.5, BY_LENGTH: -1.0}
    return float(count ** powers.get(normalization, 0.0))


def _along(
    x: torch.Tensor, dim: int, count: int, inverse: bool, onesided: bool, scale: float
) -> torch.Tensor:
    """The transform along one dimension of a tensor whose last one holds parts."""
    lines = FOURIER(x.movedim(dim, -2), count, inverse, onesided, scale)
    made: torch.Tensor = lines.movedim(-2, dim)
    return made


def _complex_to_complex(z: Pair, dim: Sequence[int], normalization: int, forward: bool) -> Pair:
    axes = [axis % z.dim() for axis in dim]
    scale = _scale(math.prod(z.shape[axis] for axis in axes), normalization)
    x = viewed_as_real(z)
    for axis in axes:
        x, scale = _along(x, axis, x.shape[axis], not forward, False, scale), 1.0
    return viewed_as_complex(x)


def _real_to_complex(
    x: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool
) -> Pair:
    *others, last = [axis % x.dim() for axis in dim]
    scale = _scale(math.prod(x.shape[axis] for axis in (*others, last)), normalization)
    z = viewed_as_complex(_along(x.unsqueeze(-1), last, x.shape[last], False, onesided, scale))
    return _complex_to_complex(z, others, 0, True) if others else z


def _complex_to_real(
    z: Pair, dim: Sequence[int], normalization: int, last_dim_size: int
) -> torch.Tensor:
    *others, last = [axis % z.dim() for axis in dim]
    count = last_dim_size * math.prod(z.shape[axis] for axis in others)
    z = _complex_to_complex(z, others, 0, False) if others else z
    scale = _scale(count, normalization)
    return _along(viewed_as_real(z), last, last_dim_size, True, True, scale).squeeze(-1)


TRANSFORMS: Mapping[Any, Callable[..., Any]] = {
    _ATEN._fft_c2c: _complex_to_complex,
    _ATEN._fft_r2c: _real_to_complex,
    _ATEN._fft_c2r: _complex_to_real,
}
"""Operator -> what computes it, a function of the operator's arguments."""
