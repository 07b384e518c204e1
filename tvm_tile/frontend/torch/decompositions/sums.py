"""Sums of products and of powers: distances, and norms by the statistics of a whole batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch._decomp import decompositions as theirs
from torch._refs import linalg as _refs

from tvm_tile.frontend.torch.decompositions.formulas import Decompositions, widened

_ATEN = torch.ops.aten
_MATRICES = 3  # dimensions of a tensor of matrices


def _cdist(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """The distance of each row of ``x1`` from each of ``x2``."""
    return _distance(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def _pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """The distances of each row from the later ones."""
    rows, columns = torch.triu_indices(x.size(0), x.size(0), 1, device=x.device)
    return _distance(x[rows] - x[columns], p)


def _distance(difference: Tensor, p: float) -> Tensor:
    if not difference.size(-1):
        return difference.new_zeros(difference.shape[:-1])
    return torch.linalg.vector_norm(difference, p, -1)


def _vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """PyTorch's formula; some releases' keeps dimensions of one element that are to go."""
    kept = _refs.vector_norm(x, ord, dim, True, dtype=dtype)
    if keepdim:
        return kept
    return kept.squeeze(dim) if dim else kept.reshape(())


def _addbmm(x: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if not x.is_floating_point():
        beta, alpha = int(beta), int(alpha)
    total = torch.bmm(left, right).sum(0, dtype=x.dtype)
    scaled = total if alpha == 1 else total * alpha
    return torch.add(scaled, x, alpha=beta) if beta else scaled


def grouped_mm(
    x: Tensor,
    w: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Products of groups: of one size each, or of rows that lie side by side, up to ``offs`` each.

    Rows behind the last group, which PyTorch leaves as they are, get the product with its matrix.
    """
    if bias is not None or w.ndim != _MATRICES:
        return NotImplemented
    if x.ndim == _MATRICES:
        found = torch.bmm(x, w)
    elif offs is None:
        return NotImplemented
    else:
        row = torch.arange(x.size(0), device=x.device)
        group = (row[:, None] >= offs[None, :]).sum(-1).clamp_max(w.size(0) - 1)
        found = torch.bmm(x.unsqueeze(1), w[group]).squeeze(1)
    return found if out_dtype is None else found.to(out_dtype)


def _trilinear(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    factors = []
    for value, added in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for axis in sorted(added):
            value = value.unsqueeze(axis)
        factors.append(value)
    product = factors[0] * factors[1] * factors[2]
    return product.sum(sumdim, dtype=product.dtype) if sumdim else product


def _var_mean(
    x: Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    wide = widened(x)
    mean = wide.mean(dim, keepdim=True)
    off = wide - mean
    left = x.numel() / max(mean.numel(), 1) - (1 if correction is None else correction)
    variance = (off * off).sum(dim, keepdim=keepdim) / max(left, 0)
    return variance.to(x.dtype), mean.reshape(variance.shape).to(x.dtype)


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    *how: float,
) -> Sequence[Tensor]:
    """By the batch's own statistics, if no running ones change by that, or by given ones."""
    if not training:
        return _ATEN._native_batch_norm_legit_no_training(x, weight, bias, mean, var, *how)
    if mean is not None or var is not None:
        return NotImplemented
    return theirs._native_batch_norm_legit_no_stats(x, weight, bias, training, *how)


def _functional_batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    training: bool,
    *how: float,
) -> Sequence[Tensor]:
    """Make the running statistics after the batch, too."""
    given = (x, weight, bias, mean, var, training, *how)
    if training:
        return theirs._native_batch_norm_legit_functional(*given)
    return *_batch_norm(*given), mean.clone(), var.clone()


DECOMPOSITIONS: Decompositions = {
    _ATEN.var_mean.correction: _var_mean,
    _ATEN._cdist_forward.default: _cdist,
    _ATEN._pdist_forward.default: _pdist,
    _ATEN.linalg_vector_norm.default: _vector_norm,
    _ATEN.addbmm.default: _addbmm,
    _ATEN._grouped_mm.default: grouped_mm,
    _ATEN._trilinear.default: _trilinear,
    _ATEN.native_batch_norm.default: _batch_norm,
    _ATEN._native_batch_norm_legit_functional.default: _functional_batch_norm,
}
