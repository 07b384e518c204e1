"""What order and counting find: medians, modes, places in sorted sequences, histograms, rolls.

NaN is the largest value and elements that are equal keep their order, as in PyTorch's stable sort.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from tvm_tile.frontend.torch.decompositions.formulas import Decompositions

Pair = tuple[Tensor, Tensor]
Rank = Callable[[Tensor, Tensor, Tensor], Tensor | int]
"""From rows, the rank of each element in its row, and which elements of a row are equal, to the
rank of the element that is looked for, one a row."""


def _of_rank(x: Tensor, dim: int, keepdim: bool, rank: Rank) -> Pair:
    """The elements that have some rank in their rows along a dimension, and their places.

    Every element's rank is counted, and every row looks for the element that has its rank.
    """
    if not x.numel():
        return NotImplemented
    rows = torch.atleast_1d(x).movedim(dim, -1)
    own, other, number = rows[..., None], rows[..., None, :], _numbers(rows.size(-1), x)
    same = (other == own) | (other.isnan() & own.isnan())
    before = (other < own) | (own.isnan() & ~other.isnan()) | (same & (number < number[:, None]))
    ranks = before.sum(-1)
    is_found = ranks == rank(rows, ranks, same)
    places = torch.where(is_found, number, 0).sum(-1, keepdim=True)
    pair = rows.gather(-1, places).movedim(-1, dim), places.movedim(-1, dim)
    if not x.dim():
        return pair[0].squeeze(0), pair[1].squeeze(0)
    return pair if keepdim else (pair[0].squeeze(dim), pair[1].squeeze(dim))


def _numbers(count: int, like: Tensor) -> Tensor:
    return torch.arange(count, device=like.device)


def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    return _of_rank(x, dim, keepdim, lambda *_: k - 1)


def _median(x: Tensor, dim: int, keepdim: bool = False, *, skips_nan: bool) -> Pair:
    """The lower one of two medians; NaN where there is one, or where there is nothing else."""

    def rank(rows: Tensor, ranks: Tensor, same: Tensor) -> Tensor:
        known = rows.size(-1) - rows.isnan().sum(-1, keepdim=True)
        middle = (known - 1).clamp_min(0) // 2
        return middle if skips_nan else torch.where(known < rows.size(-1), known, middle)

    return _of_rank(x, dim, keepdim, rank)


def _median_of_all(x: Tensor, *, skips_nan: bool) -> Tensor:
    return _median(x.flatten(), 0, skips_nan=skips_nan)[0] if x.numel() else NotImplemented


def _mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Pair:
    """The most frequent value, the smallest of several, and its last place."""

    def rank(rows: Tensor, ranks: Tensor, same: Tensor) -> Tensor:
        often = same.sum(-1)
        most = often.amax(-1, keepdim=True)
        return torch.where(often == most, ranks, rows.size(-1)).amin(-1, keepdim=True) + most - 1

    return _of_rank(x, dim, keepdim, rank)


def _searchsorted(
    sequence: Tensor,
    x: Tensor | float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """How many elements of the sequence come before each value."""
    if sorter is not None:
        sequence = sequence.gather(-1, sorter)
    sequence = sequence.unsqueeze(-2) if sequence.dim() > 1 else sequence
    value = x.unsqueeze(-1) if isinstance(x, Tensor) else x
    before = sequence <= value if right or side == "right" else sequence < value
    if sequence.is_floating_point():
        before = before | (value != value)
    return before.sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def _bucketize(
    x: Tensor | float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    return _searchsorted(boundaries, x, out_int32=out_int32, right=right)


def _histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts of elements between two bounds; without bounds, between the least and the largest."""
    row, low, high = x.flatten(), min, max
    row = row if x.is_floating_point() else row.double()
    if not x.numel():
        return x.new_zeros(bins)
    if min == max and min != 0:
        low, high = min - 1, max + 1
    elif min == max:
        least, most = row.amin(), row.amax()
        low = torch.where(least == most, least - 1, least)
        high = torch.where(least == most, most + 1, most)
    place = ((row - low) * bins / (high - low)).floor().clamp_max(bins - 1)
    is_in = (place == _numbers(bins, x)[:, None]) & (row >= low) & (row <= high)
    return is_in.sum(-1, dtype=torch.int32).to(x.dtype)


def _repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    """Each number as often as is told; how many that are must be known (``output_size``)."""
    if output_size is None:
        return NotImplemented
    passed = _passed(repeats, output_size)
    return passed.clamp_max(repeats.size(0) - 1).to(repeats.dtype)


def _passed(counts: Tensor, count: int) -> Tensor:
    """How many of the sums up to each number are at most 0, 1, 2, ..."""
    return (counts.cumsum(0) <= _numbers(count, counts)[:, None]).sum(-1)


def _nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first places that are not 0, as many as are asked for, a row each."""
    if not x.numel() or not x.dim():
        return torch.full((size, x.dim()), fill_value, device=x.device)
    found = _passed((x != 0).flatten(), size)
    steps = [math.prod(x.shape[axis + 1 :]) for axis in range(x.dim())]
    digits = [found // step % extent for step, extent in zip(steps, x.shape, strict=True)]
    return torch.where((found < x.numel())[:, None], torch.stack(digits, 1), fill_value)


def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """Two slices, the other way round: which elements are read is known, and neighbours stay so."""
    if not dims:
        return _roll(x.flatten(), shifts, (0,)).reshape(x.shape)
    if not all(isinstance(x.size(dim), int) for dim in dims):
        return NotImplemented
    if x.numel():
        for shift, dim in zip(shifts, dims, strict=True):
            if last := shift % x.size(dim):
                first = x.size(dim) - last
                x = torch.cat((x.narrow(dim, first, last), x.narrow(dim, 0, first)), dim)
    return x.clone()


_ATEN = torch.ops.aten
DECOMPOSITIONS: Decompositions = {
    _ATEN.kthvalue.default: _kthvalue,
    _ATEN.median.dim: partial(_median, skips_nan=False),
    _ATEN.median.default: partial(_median_of_all, skips_nan=False),
    _ATEN.nanmedian.dim: partial(_median, skips_nan=True),
    _ATEN.nanmedian.default: partial(_median_of_all, skips_nan=True),
    _ATEN.mode.default: _mode,
    _ATEN.searchsorted.Tensor: _searchsorted,
    _ATEN.searchsorted.Scalar: _searchsorted,
    _ATEN.bucketize.Tensor: _bucketize,
    _ATEN.bucketize.Scalar: _bucketize,
    _ATEN.histc.default: _histc,
    _ATEN.repeat_interleave.Tensor: _repeat_interleave,
    _ATEN.nonzero_static.default: _nonzero_static,
    _ATEN.roll.default: _roll,
}
