"""Where a view's elements lie in the tensor that it is of, however many views are between the two.

PyTorch itself makes the views, of a tensor without data that is dense in row-major order: negative
bounds, bounds beyond the end and dimensions that are dropped or moved are what it makes of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class ViewStep:
    """An operator that makes a view of a tensor.

    Attributes:
        operator: PyTorch's.
        arguments: behind the tensor, by the schema's names.
    """

    operator: Any
    arguments: tuple[tuple[str, Any], ...]

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The view of a tensor."""
        made: torch.Tensor = self.operator(tensor, **dict(self.arguments))
        return made


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a view's elements.

    Attributes:
        shape: the view's extents.
        axes: for each dimension of the tensor, its first place, and how far one step along each
            dimension of the view goes there.
    """

    shape: tuple[int, ...]
    axes: tuple[tuple[int, tuple[int, ...]], ...]

    def at(self, index: Sequence[Any]) -> list[Any]:
        """The place in the tensor of an element of the view; both are one number a dimension."""
        return [
            sum((i * s for i, s in zip(index, steps, strict=True) if s), first)
            for first, steps in self.axes
        ]


def view_of(shape: Sequence[int], steps: Sequence[ViewStep]) -> torch.Tensor | None:
    """A view, without data, of a dense tensor; none where these steps make none of it."""
    tensor = torch.empty(tuple(shape), device="meta")
    try:
        for step in steps:
            tensor = step.of(tensor)
    except (RuntimeError, IndexError):  # such as elements that do not lie as view() needs it
        return None
    return tensor


def is_same_view(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Whether two views, of tensors of one shape, are of the same places in the same order."""
    return one is not None and other is not None and _geometry(one) == _geometry(other)


def _geometry(view: torch.Tensor) -> tuple[Any, ...]:
    # How far a step goes along one element means nothing, nor where nothing begins.
    strides = (s for s, extent in zip(view.stride(), view.shape, strict=True) if extent > 1)
    return tuple(view.shape), *((*strides, view.storage_offset()) if view.numel() else ())


def places_of(shape: Sequence[int], view: torch.Tensor) -> Places | None:
    """The places of a view's elements in the dense tensor that it is of.

    Returns:
        None where two elements may share a place, or where a dimension of the view goes through
        several of the tensor's as if they were one.
    """
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if not view.numel():
        return Places(tuple(view.shape), tuple((0, (0,) * view.ndim) for _ in shape))
    firsts = _digits(view.storage_offset(), strides)
    moving = [0 if extent == 1 else s for s, extent in zip(view.stride(), view.shape, strict=True)]
    steps = [_digits(stride, strides) for stride in moving]
    axes = tuple((first, tuple(step[axis] for step in steps)) for axis, first in enumerate(firsts))
    for (first, along), extent in zip(axes, shape, strict=True):
        if first + _reach(along, view.shape) >= extent:
            return None
    return Places(tuple(view.shape), axes) if _is_apart(moving, view.shape) else None


def _digits(distance: int, strides: Sequence[int]) -> list[int]:
    """How far a distance in a dense tensor goes along each of its dimensions."""
    digits = []
    for stride in strides:
        digit, distance = divmod(distance, stride)
        digits.append(digit)
    return digits


def _reach(steps: Sequence[int], extents: Sequence[int]) -> int:
    return sum(step * (extent - 1) for step, extent in zip(steps, extents, strict=True))


def _is_apart(strides: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether no two elements of a view share a place: each step is longer than all shorter ones
    together."""
    pairs = sorted((s, e) for s, e in zip(strides, extents, strict=True) if e > 1)
    shorter = itertools.accumulate((s * (e - 1) for s, e in pairs), initial=0)
    return all(stride > reach for (stride, _), reach in zip(pairs, shorter, strict=False))
