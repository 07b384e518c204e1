"""Elements of constants, read where they lie, and constants made of parts in one copy.

TVM's own ``numpy()`` copies a constant, and ``relax.const`` copies an array up to three times: of
a language model's weights, that is more memory than the weights take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax

from tvm_tile.graph.tile_graph import stored_bytes

# Rows of a matrix that are transposed at once, so that both sides' lines stay in the cache.
_STRIP = 128


def elements_of(constant: Any) -> np.ndarray:
    """The elements of a Relax constant, an array that nobody may write to.

    It is the constant's memory, which it keeps alive; elements of less than a byte are copies.
    """
    tensor = constant.value
    return tensor.numpy() if tensor.dtype.bits % 8 else _view(tensor, is_read_only=True)


def bytes_of(tensor: Any) -> np.ndarray:
    """The bytes of a tensor in TVM's CPU memory, where they lie, which nobody may write to."""
    return np.asarray(_HostBytes(tensor, is_read_only=True))


def constant_of_parts(parts: Sequence[np.ndarray], axis: int, dtype: str) -> Any:
    """Arrays one behind the other along an axis, as a Relax constant.

    Args:
        parts: arrays of one element type and of equal extents, but for those of ``axis``; they may
            be transposed views.
        axis: number of the axis, from the first one.
        dtype: TVM's name of their element type.
    """
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    tensor = tvm.runtime.empty(tuple(shape), dtype)
    whole = np.moveaxis(_view(tensor, is_read_only=False), axis, 0)
    start = 0
    for part in parts:
        moved = np.moveaxis(part, axis, 0)
        _copy(whole[start : start + len(moved)], moved)
        start += len(moved)
    return relax.const(tensor)


def transposed(constant: Any) -> Any:
    """A Relax constant with its last two axes exchanged."""
    elements = np.swapaxes(elements_of(constant), -1, -2)
    return constant_of_parts([elements], 0, str(constant.ty.dtype))


def _copy(target: np.ndarray, source: np.ndarray) -> None:
    """Copy an array; where one side is transposed, strip by strip."""
    if target.ndim != 2 or target.flags.c_contiguous == source.flags.c_contiguous:
        target[...] = source
        return
    by_rows = source.flags.c_contiguous
    for start in range(0, source.shape[0 if by_rows else 1], _STRIP):
        strip = slice(start, start + _STRIP)
        place = (strip,) if by_rows else (slice(None), strip)
        target[place] = source[place]


def _view(tensor: Any, *, is_read_only: bool) -> np.ndarray:
    """A tensor's elements where they lie."""
    shape, name = tuple(map(int, tensor.shape)), str(tensor.dtype)
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    return np.asarray(_HostBytes(tensor, is_read_only=is_read_only)).view(dtype).reshape(shape)


class _HostBytes:
    """Bytes of a tensor in TVM's CPU memory, by NumPy's array interface, which keeps it alive."""

    def __init__(self, tensor: Any, *, is_read_only: bool) -> None:
        self._tensor = tensor
        size = stored_bytes(tensor)
        self.__array_interface__ = {
            "data": (tensor.data_ptr(), is_read_only),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }
