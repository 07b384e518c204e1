"""Relay's layouts, such as ``NHWC``, ``HWIO``, ``NCHW4c`` or ``OIHW4i8o``, as orders of axes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from tvm_tile.frontend.ops.values import shape_of
from tvm_tile.frontend.relay.call import OperatorCall, Value

_LAYOUT = re.compile(r"(?:[A-Z]|[1-9][0-9]*[a-z])+")
_DIMENSION = re.compile(r"([0-9]*)([A-Za-z])")


@dataclass(frozen=True, slots=True)
class Layout:
    """What the dimensions of a tensor are.

    Attributes:
        letters: of each dimension the axis that it belongs to.
        parts: of each dimension 0, or its extent where it is an inner part of a split axis.
    """

    letters: str
    parts: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Layout:
        """A layout as Relay writes it: an upper case letter an axis, ``4c`` a part of axis C.

        Raises:
            ValueError: it is none.
        """
        found = _DIMENSION.findall(text) if _LAYOUT.fullmatch(text) else []
        letters = "".join(letter for _, letter in found)
        axes = [letter for letter in letters if letter.isupper()]
        if not found or len(set(axes)) < len(axes) or not set(letters.upper()) <= set(axes):
            raise ValueError(f"a layout {text!r}")
        return cls(letters.upper(), tuple(int(part or 0) for part, _ in found))

    @property
    def axes(self) -> str:
        """The axes, in order."""
        both = zip(self.letters, self.parts, strict=True)
        return "".join(letter for letter, part in both if not part)

    def dimensions(self, axis: str) -> list[int]:
        """The dimensions that make up an axis, from the outermost to the innermost part."""
        own = [i for i, letter in enumerate(self.letters) if letter == axis]
        return sorted(own, key=lambda i: self.parts[i] > 0)


def relayout(call: OperatorCall, value: Value, source: str, target: str) -> Value:
    """A tensor in another layout of the same axes.

    Raises:
        ValueError: the layouts do not fit each other or the tensor.
    """
    if source == target:
        return value
    old, new = Layout.parse(source), Layout.parse(target)
    shape = shape_of(value)
    if sorted(old.axes) != sorted(new.axes):
        raise ValueError(f"layout {target} of a tensor in layout {source}")
    if len(shape) != len(old.letters) or any(
        part not in (0, extent) for part, extent in zip(old.parts, shape, strict=True)
    ):
        raise ValueError(f"a tensor of {list(shape)} in layout {source}")
    together = [old.dimensions(axis) for axis in new.axes]
    whole = [math.prod(shape[i] for i in dimensions) for dimensions in together]
    value = call.permuted(value, [i for dimensions in together for i in dimensions])
    apart = [new.dimensions(axis) for axis in new.axes]
    split = []
    for extent, dimensions in zip(whole, apart, strict=True):
        parts = [new.parts[i] for i in dimensions[1:]]
        if extent % math.prod(parts):
            raise ValueError(f"an axis of {extent} in parts of {math.prod(parts)}")
        split += [extent // math.prod(parts), *parts]
    value = call.reshaped(value, split)
    return call.permuted(value, np.argsort([i for d in apart for i in d]).tolist())


def spatial_axes(layout: str) -> str:
    """The axes of a layout along which windows move, in Relay's order: some of D, H and W."""
    axes = Layout.parse(layout).axes
    return "".join(letter for letter in "DHW" if letter in axes)
