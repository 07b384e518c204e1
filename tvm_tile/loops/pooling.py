"""Maxima of windows, as PyTorch, NumPy and ONNX have them of infinities.

::

    pad_temp[n, c, i] = X[n, c, i - before] if inside else -inf
    pool_max[n, c, o] = max over k of pad_temp[n, c, o * stride + k * dilation]

TVM's own pad with the lowest finite number, which is then the maximum of a window of -inf.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx, topi

_SPATIAL = "DHW"
_FLOATS = ("float", "bfloat")


def windows_of_maxima(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.nn.max_pool1d``, ``2d`` and ``3d``."""
    attrs = call.attrs
    if attrs.out_layout != attrs.layout:
        raise ValueError(f"a pooling from layout {attrs.layout} to {attrs.out_layout}")
    axes = [str(attrs.layout).index(letter) for letter in _SPATIAL if letter in str(attrs.layout)]
    size, strides, dilation, padding = (
        [int(n) for n in numbers]
        for numbers in (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding)
    )
    shape = [*call.ty.shape]
    windows = _Placed(axes, size, strides, dilation, padding[: len(axes)])
    name = str(call.op.name).rpartition(".")[2]
    return builder.call_te(windows.maxima, call.args[0], shape, primfunc_name_hint=name)


class _Placed:
    """Places of a pooling's windows, one number an axis that it goes along."""

    def __init__(
        self,
        axes: Sequence[int],
        size: Sequence[int],
        strides: Sequence[int],
        dilation: Sequence[int],
        before: Sequence[int],
    ) -> None:
        self._axes, self._size, self._strides = axes, size, strides
        self._dilation, self._before = dilation, before

    def maxima(self, data: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
        """The largest of each of as many windows as ``shape`` says."""
        before, after = [0] * len(shape), [0] * len(shape)
        for i, axis in enumerate(self._axes):
            reach = (int(shape[axis]) - 1) * self._strides[i] + self._reach(i)
            before[axis] = self._before[i]
            after[axis] = max(0, reach - int(data.shape[axis]) - self._before[i])
        dtype = str(data.dtype)
        lowest = tirx.const(-math.inf, dtype) if _is_float(dtype) else tirx.min_value(dtype)
        padded = data
        if any(before) or any(after):
            padded = topi.nn.pad(data, before, after, lowest, name="pad_temp")
        within = [te.reduce_axis((0, size), f"rv{i}") for i, size in enumerate(self._size)]

        def largest(*at: Any) -> Any:
            place = list(at)
            for i, axis in enumerate(self._axes):
                place[axis] = at[axis] * self._strides[i] + within[i] * self._dilation[i]
            return te.max(padded(*place), axis=within)

        return te.compute(shape, largest, name="pool_max", tag="pool_max")

    def _reach(self, i: int) -> int:
        """Places that a window reaches along an axis."""
        return (self._size[i] - 1) * self._dilation[i] + 1


def _is_float(dtype: str) -> bool:
    """Whether a type is a floating-point type."""
    return dtype.startswith(_FLOATS)
