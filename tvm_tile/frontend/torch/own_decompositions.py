"""Decompositions of ours, where PyTorch's differ from its kernels or from what kernels need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._decomp import decompositions as theirs

from tvm_tile.frontend.torch.frames import OF_FRAMES

_ATEN = torch.ops.aten
_KEYS = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
_MEAN, _SUM = 1, 2  # PyTorch's numbers of reductions

ATTENTION = _ATEN.scaled_dot_product_attention.default


def instance_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> torch.Tensor:
    """A group norm of single channels, or a batch norm by statistics of before."""
    if not use_input_stats:
        given = (weight, bias, running_mean, running_var)
        return torch.batch_norm(input, *given, False, momentum, eps, cudnn_enabled)
    if running_mean is not None or running_var is not None:
        raise NotImplementedError("an instance norm that updates its running statistics")
    return torch.group_norm(input, input.size(1), weight, bias, eps)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """``softmax(query @ key.T * scale + mask) @ value``, of whose weights dropout drops some."""
    if enable_gqa:
        groups = query.size(-3) // key.size(-3)
        key, value = (t.repeat_interleave(groups, -3) for t in (key, value))
    scaled = query * (query.size(-1) ** -0.5 if scale is None else scale)
    scores = torch.matmul(scaled, key.transpose(-2, -1))
    if is_causal:
        rows, columns = (torch.arange(extent) for extent in scores.shape[-2:])
        attn_mask = rows[:, None] >= columns[None, :]
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = torch.where(attn_mask, scores, torch.full((), -torch.inf, dtype=scores.dtype))
        else:
            scores = scores + attn_mask
    weights = _ATEN._safe_softmax(scores, -1)  # 0 where all scores of a row are -inf
    if dropout_p:
        weights = torch.dropout(weights, dropout_p, train=True)
    return torch.matmul(weights, value)


def _multilabel_margin_loss(
    input: torch.Tensor, target: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """How much each other class comes near each label of a row; a label of -1 ends the row.

    PyTorch's own takes what is behind that end for labels of class 0.
    """
    rows, labels = torch.atleast_2d(input), torch.atleast_2d(target)
    classes = torch.arange(rows.shape[1], device=target.device)
    is_label = (labels < 0).cumsum(1) == 0
    label = torch.where(is_label, labels, 0)
    is_target = ((label[:, :, None] == classes) & is_label[:, :, None]).any(1)
    margins = 1 - rows.gather(1, label)[:, :, None] + rows[:, None, :]
    counts = is_label[:, :, None] & ~is_target[:, None, :]
    losses = torch.where(counts, margins.clamp_min(0), 0).sum((1, 2)) / rows.shape[1]
    if reduction in (_MEAN, _SUM):
        loss = losses.mean() if reduction == _MEAN else losses.sum()
    else:
        loss = losses.reshape(input.shape[:-1])
    return loss, is_target.to(input.dtype).reshape(target.shape)


def _nearest_of_images(
    input: torch.Tensor,
    output_size: Sequence[int],
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> torch.Tensor:
    """PyTorch's own, without the scale of an extent that stays or doubles.

    There its kernel for images (no other one) copies, whatever the scale.
    """
    extents = zip(input.shape[-2:], output_size, (scales_h, scales_w), strict=True)
    scales = [None if new in (old, 2 * old) else scale for old, new, scale in extents]
    result: torch.Tensor = theirs._upsample_nearest(input, output_size, scales)
    return result


def _nearest_of_images_by_factors(
    input: torch.Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None
) -> torch.Tensor:
    extents = theirs.upsample_compute_output_size(input.size(), output_size, scale_factors)
    return _nearest_of_images(input, extents, *(scale_factors or ()))


_FOR_TRACING = {
    _ATEN.multilabel_margin_loss_forward.default: _multilabel_margin_loss,
    _ATEN.upsample_nearest2d.default: _nearest_of_images,
    _ATEN.upsample_nearest2d.vec: _nearest_of_images_by_factors,
}

OWN_DECOMPOSITIONS: dict[Any, Any] = {
    ATTENTION: attention,
    _ATEN.instance_norm.default: instance_norm,
    **OF_FRAMES,
    **_FOR_TRACING,
}
"""Operator -> what it becomes, unless it has a converter."""


@contextmanager
def own_decompositions() -> Iterator[None]:
    """A frame within which PyTorch uses our decompositions also where it asks no table.

    It asks none for what it has written in Python for gradients, with the faults of its own.
    """
    former = {operator: dict(operator.py_kernels) for operator in _FOR_TRACING}
    try:
        for operator, how in _FOR_TRACING.items():
            _replace(operator, {key: how for key in _KEYS if key in operator.py_kernels})
        yield
    finally:
        for operator, kernels in former.items():
            _replace(operator, kernels)


def _replace(operator: Any, kernels: dict[Any, Any]) -> None:
    operator.py_kernels.update(kernels)
    operator._dispatch_cache.clear()
