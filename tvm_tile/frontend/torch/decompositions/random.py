"""Random numbers of all distributions, of uniform, normal and exponential ones and of integers.

They are drawn in float32, or in float64 for results of that: half precision has too few different
uniform numbers to compare probabilities with. Numbers of PyTorch's generators are not repeated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tvm_tile.frontend.torch.decompositions.formulas import Decompositions

_ATEN = torch.ops.aten
_ALPHA = 1.7580993408473766  # minus where SELU ends, its scale times its alpha
_DIGITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The type in which numbers are drawn for results of another one."""
    return dtype if dtype == torch.float64 else torch.float32


def _uniform_like(x: Tensor, shape: Sequence[int] | None = None) -> Tensor:
    extents = x.shape if shape is None else shape
    return torch.rand(extents, dtype=_wide(x.dtype), device=x.device)


def _like(draw: Any) -> Any:
    """An operator of a tensor's shape, of one that takes a shape."""

    def like(x: Tensor, *arguments: Any, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        result: Tensor = draw(*arguments, x.shape, dtype=dtype or x.dtype, device=x.device)
        return result

    return like


def _integers_below(
    high: int,
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    **_: Any,
) -> Tensor:
    drawn: Tensor = _ATEN.randint.low(0, high, size, dtype=dtype or torch.int64, device=device)
    return drawn


def _bernoulli(x: Tensor, p: Tensor | float | None = None, *, generator: None = None) -> Tensor:
    """Draw ones as likely as ``p`` says, or as the tensor itself does."""
    chance = x if p is None else p
    like = chance if isinstance(chance, Tensor) else torch.empty((), device=x.device)
    return (_uniform_like(like, x.shape) < chance).to(x.dtype)


def _dropped(
    x: Tensor, p: float, train: bool, *, whole_features: bool = False, is_alpha: bool = False
) -> Tensor:
    """What is left of a tensor, scaled so that its mean stays.

    Args:
        x: the tensor.
        p: how likely an element is dropped.
        train: whether any is.
        whole_features: whether all of a channel, the second dimension, is dropped or nothing.
        is_alpha: whether dropped elements get SELU's least value instead of 0, and variance stays.
    """
    if not train or p == 0:
        return x
    shape = (*x.shape[:2], *(1 for _ in x.shape[2:])) if whole_features else x.shape
    if p == 1:
        return x * torch.zeros((), dtype=x.dtype, device=x.device)
    kept = (_uniform_like(x, shape) >= p).to(x.dtype)
    if not is_alpha:
        return x * kept * (1 / (1 - p))
    scale = 1 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
    return x * (kept * scale) + ((kept - 1) * (_ALPHA * scale) + _ALPHA * scale * p)


def _dropout_with_mask(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    kept = _uniform_like(x) >= p
    return x * kept.to(x.dtype) * (1 / (1 - p) if p < 1 else 0.0), kept


def _normal(mean: Tensor | float, std: Tensor | float = 1.0, *, generator: None = None) -> Tensor:
    given = [value for value in (mean, std) if isinstance(value, Tensor)]
    dtype = torch.result_type(*given) if len(given) > 1 else given[0].dtype
    shape = torch.broadcast_shapes(*(value.shape for value in given))
    drawn = torch.randn(shape, dtype=_wide(dtype), device=given[0].device)
    return (drawn * std + mean).to(dtype)


def _normal_of_size(
    mean: float,
    std: float,
    size: Sequence[int],
    *,
    generator: None = None,
    dtype: torch.dtype | None = None,
    device: Any = None,
    **_: Any,
) -> Tensor:
    dtype = dtype or torch.get_default_dtype()
    return (torch.randn(size, dtype=_wide(dtype), device=device) * std + mean).to(dtype)


def _normal_like(
    x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: None = None
) -> Tensor:
    return _normal_of_size(mean, std, x.shape, dtype=x.dtype, device=x.device)


def _uniform(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: None = None) -> Tensor:
    """Numbers from ``low``, below ``high``, also where rounding reaches that."""
    part = torch.rand(x.shape, dtype=x.dtype, device=x.device).to(_wide(x.dtype))
    drawn = (part * (high - low) + low).to(x.dtype)
    return torch.where(drawn >= high, torch.full_like(drawn, low), drawn)


def _below(x: Tensor, to: int, *, generator: None = None) -> Tensor:
    return _integers_below(to, x.shape, dtype=torch.int64, device=x.device).to(x.dtype)


def _any_integer(x: Tensor, *, generator: None = None) -> Tensor:
    """Integers that the type has: from 0, of floating-point types as far as these have all."""
    digits = _DIGITS.get(x.dtype)
    if digits is not None or x.dtype == torch.bool:
        return _below(x, 2 ** (digits or 0) + 1)
    # What an argument of PyTorch's cannot be is left out: one number of 2**63.
    return _below(x, min(torch.iinfo(x.dtype).max, 2**63 - 2) + 1)


def _permutation(
    n: int, *, dtype: torch.dtype | None = torch.int64, device: Any = None, **_: Any
) -> Tensor:
    """The order of integers of 62 bits, of which hardly any two are equal."""
    keys = _ATEN.randint.low(0, 2**62, (n,), dtype=torch.int64, device=device)
    order: Tensor = keys.argsort().to(dtype or torch.int64)
    return order


def _multinomial(
    x: Tensor, num_samples: int, replacement: bool = False, *, generator: None = None
) -> Tensor:
    """The winners of races: the time that a category takes is exponential, its rate its weight."""
    weights = x if x.dtype == torch.float64 else x.float()
    is_repeated = replacement or num_samples == 1
    races = weights[..., None, :].expand(*x.shape[:-1], num_samples, -1) if is_repeated else weights
    times = _ATEN.exponential.default(torch.empty_like(races).contiguous(), 1.0)
    return (races / times).argmax(-1) if is_repeated else (races / times).topk(num_samples)[1]


def _leaky_with_noise(
    x: Tensor, noise: Tensor, lower: float, upper: float, training: bool, generator: None = None
) -> tuple[Tensor, Tensor]:
    """RReLU, whose slopes are drawn in training; also the slopes, 1 where there is none."""
    if not training:
        return torch.where(x > 0, x, x * ((lower + upper) / 2)), noise
    slopes = _uniform(x, lower, upper)
    return torch.where(x <= 0, x * slopes, x), torch.where(x <= 0, slopes, 1.0).to(x.dtype)


def _dropout(**how: bool) -> Any:
    return lambda input, p, train: _dropped(input, p, train, **how)


DECOMPOSITIONS: Decompositions = {
    _ATEN.rand_like.default: _like(torch.rand),
    _ATEN.randn_like.default: _like(torch.randn),
    _ATEN.randint.default: _integers_below,
    _ATEN.randint_like.default: _like(_integers_below),
    _ATEN.randint_like.low_dtype: _like(_ATEN.randint.low),
    **dict.fromkeys(
        (_ATEN.bernoulli.default, _ATEN.bernoulli.p, _ATEN.bernoulli.Tensor), _bernoulli
    ),
    _ATEN.native_dropout.default: _dropout_with_mask,
    _ATEN.dropout.default: _dropout(),
    _ATEN.feature_dropout.default: _dropout(whole_features=True),
    _ATEN.alpha_dropout.default: _dropout(is_alpha=True),
    _ATEN.feature_alpha_dropout.default: _dropout(whole_features=True, is_alpha=True),
    **dict.fromkeys(
        (_ATEN.normal.Tensor_float, _ATEN.normal.float_Tensor, _ATEN.normal.Tensor_Tensor), _normal
    ),
    _ATEN.normal.float_float: _normal_of_size,
    _ATEN.normal_functional.default: _normal_like,
    _ATEN.uniform.default: _uniform,
    _ATEN.random.default: _any_integer,
    _ATEN.random.to: _below,
    _ATEN.randperm.default: _permutation,
    _ATEN.multinomial.default: _multinomial,
    _ATEN.rrelu_with_noise_functional.default: _leaky_with_noise,
}
