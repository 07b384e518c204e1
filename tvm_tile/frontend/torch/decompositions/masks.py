"""Writing where a mask is true: its k-th true element takes the k-th of some values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tvm_tile.frontend.torch.decompositions.formulas import Decompositions

_MASKS = (torch.bool, torch.uint8)


def _index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """``x[mask] = values``, if there is a mask and no other index, of one value or of many."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    mask = indices[axes[0]] if axes else None
    if mask is None or mask.dtype not in _MASKS or len(axes) > 1:
        return NotImplemented
    axis, flags = axes[0], (mask != 0).flatten()
    rows = x.reshape(*x.shape[:axis], mask.numel(), *x.shape[axis + mask.dim() :])
    values = values.reshape(*(1,) * (rows.dim() - values.dim()), *values.shape)
    if values.size(axis) > 1:
        values = values.index_select(axis, _ranks(flags))
    taken = rows + values if accumulate else values
    column = flags.reshape(mask.numel(), *(1,) * (rows.dim() - axis - 1))
    return torch.where(column, taken, rows).reshape(x.shape)


def _ranks(flags: Tensor) -> Tensor:
    """How many true elements come before each true one."""
    return (flags.cumsum(0) - 1).clamp_min(0)


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Where the source has too few elements, its last is taken."""
    wide, flags = torch.broadcast_tensors(x, mask != 0)
    if not source.numel():
        return wide.clone()
    taken = source.flatten().index_select(0, _ranks(flags.flatten()))
    return torch.where(flags, taken.reshape(wide.shape), wide)


_ATEN = torch.ops.aten
DECOMPOSITIONS: Decompositions = {
    _ATEN.index_put.default: _index_put,
    _ATEN._unsafe_index_put.default: _index_put,
    _ATEN.masked_scatter.default: _masked_scatter,
}
