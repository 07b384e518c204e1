"""The elements that PyTorch makes each one of along a resized dimension, with their shares."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from tvm_tile.frontend.ops.resampling import Taps, cubic_weights

_ATEN = torch.ops.aten
_CHUNK = 1 << 22  # elements of the matrix of which the taps are read, at once
_CUBIC = -0.75  # Keys's coefficient


# How PyTorch itself resizes the last dimension of a matrix: (rows, new extent, corners, scale).
Resize = Callable[[torch.Tensor, int, bool, float | None], torch.Tensor]


def nearest(x: torch.Tensor, extent: int, _: bool, scale: float | None) -> torch.Tensor:
    """Copies of the elements in front."""
    return _ATEN.upsample_nearest1d(x[None], [extent], scale)[0]


def nearest_of_images(x: torch.Tensor, extent: int, _: bool, scale: float | None) -> torch.Tensor:
    """Copies of an image's nearest elements, without a scale where extents stay or double."""
    return _ATEN.upsample_nearest2d(x[:, None, None], [1, extent], None, scale)[:, 0, 0]


def nearest_exact(x: torch.Tensor, extent: int, _: bool, scale: float | None) -> torch.Tensor:
    """Copies of the nearest elements."""
    return _ATEN._upsample_nearest_exact1d(x[None], [extent], scale)[0]


def linear(x: torch.Tensor, extent: int, corners: bool, scale: float | None) -> torch.Tensor:
    """Weighed neighbours."""
    return _ATEN.upsample_linear1d(x[None], [extent], corners, scale)[0]


def _of_images(operator: Any) -> Resize:
    """An operator on images, for rows: each is an image of its own, which no other can reach."""

    def resize(x: torch.Tensor, extent: int, corners: bool, scale: float | None) -> torch.Tensor:
        return operator(x[:, None, None], [1, extent], corners, None, scale)[:, 0, 0]

    return resize


cubic = _of_images(_ATEN.upsample_bicubic2d)
antialiased = _of_images(_ATEN._upsample_bilinear2d_aa)
antialiased_cubic = _of_images(_ATEN._upsample_bicubic2d_aa)


@lru_cache(maxsize=64)
def taps(
    resize: Resize, old: int, new: int, corners: bool, scale: float | None, dtype: torch.dtype
) -> Taps:
    """What PyTorch makes of a dimension: it resizes the unit matrix, column by column.

    A second time with NaN in place of the ones: what that reaches is read, be its weight 0. Which
    elements an element reaches at all may hang on roundings, so that it is asked in one's own type.
    """
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    rows = max(_CHUNK // max(new, old, 1), 1)
    for start in range(0, old, rows):
        count = min(rows, old - start)
        unit = torch.zeros(count, old, dtype=dtype)
        unit[torch.arange(count), torch.arange(start, start + count)] = 1
        weights = resize(unit, new, corners, scale)
        reached = resize(torch.where(unit == 1, torch.nan, unit), new, corners, scale).isnan()
        place, element = np.nonzero(reached.numpy())
        found.append((element, place + start, weights.numpy()[place, element]))
    elements, places, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((places, elements))
    elements, places, values = elements[order], places[order], values[order]
    counts = np.bincount(elements, minlength=new)
    ranks = np.arange(len(elements)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = (new, int(counts.max(initial=1)))
    result = Taps(np.full(shape, -1, np.int32), np.zeros(shape, np.float64))
    result.places[elements, ranks] = places
    result.weights[elements, ranks] = values
    if resize is cubic:
        apart = _cubic_taps(old, new, corners, scale, dtype)
        return apart if _are_same(apart, result, old) else result
    return result


def _cubic_taps(old: int, new: int, corners: bool, scale: float | None, dtype: torch.dtype) -> Taps:
    """Four taps an element, also where several are the one at the border.

    Of an infinite element two weights of different signs make NaN, their sum an infinity.
    """
    number = np.float64 if dtype == torch.float64 else np.float32
    at = np.arange(new, dtype=number)
    if corners:
        center = at * (number(old - 1) / number(new - 1) if new > 1 else number(0))
    else:
        step = number(1 / scale) if scale else number(old) / number(new)
        center = step * (at + number(0.5)) - number(0.5)
    first = np.floor(center)
    t = (center - first).astype(np.float64)
    weights = cubic_weights(t, _CUBIC)
    places = first.astype(np.int64)[:, None] + np.arange(-1, 3)
    return Taps(np.clip(places, 0, old - 1).astype(np.int32), np.stack(weights, 1))


def _are_same(apart: Taps, merged: Taps, extent: int) -> bool:
    """Whether elements are made of the same ones, in the same shares but for roundings."""
    rows = np.arange(len(apart.places))[:, None]
    flat, number = np.unique((rows * extent + apart.places).ravel(), return_inverse=True)
    shares = np.bincount(number.ravel(), apart.weights.ravel())
    given = merged.places >= 0
    if not np.array_equal(flat, (rows * extent + merged.places)[given]):
        return False
    return bool(np.allclose(shares, merged.weights[given], atol=1e-5))
