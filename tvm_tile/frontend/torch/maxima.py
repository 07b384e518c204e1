"""The largest elements of windows with their places, as max pooling returns them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from tvm_tile.frontend.torch.emit import Refusal
from tvm_tile.loops.keys import is_nan

# From a window and the number of an element, by dimension: the element's place, by dimension, and
# whether it belongs to the window (``None``: always).
Elements = Callable[[Sequence[Any], Sequence[Any]], tuple[list[Any], Any]]


def largest_and_where(
    data: te.Tensor, extents: Sequence[int], counts: Sequence[int], elements: Elements
) -> list[te.Tensor]:
    """The largest elements of windows and, counted over all pooled dimensions, their places.

    The place is that of the first of equal ones; the last NaN wins over all else, as in PyTorch.
    Two reductions of integers follow one of values, which meets no NaN::

        largest[w] = max(x[k] for k in w if x[k] is not NaN)
        nan[w]     = max(k for k in w if x[k] is NaN), or -1
        first[w]   = min(k for k in w if x[k] == largest[w])

    Args:
        data: dimensions that are not pooled, then those that are.
        extents: elements of the largest window, by dimension.
        counts: windows, by dimension.
        elements: where the elements of a window are.
    """
    if 0 in extents or 0 in [int(extent) for extent in data.shape]:
        raise Refusal("windows without elements")
    windows = _Windows(data, tuple(extents), tuple(counts), elements)
    dtype = str(data.dtype)
    is_float = "float" in dtype
    least = tirx.const(-math.inf, dtype) if is_float else tirx.min_value(dtype)
    none = tirx.const(math.prod(windows.sizes), "int32")

    def number(_: Any, element: Any, __: Any, inside: Any) -> Any:
        return _if((tirx.Not(is_nan(element)) if is_float else None, inside), element, least)

    # TVM's own maximum starts from the least finite value.
    maximum = te.comm_reducer(lambda a, b: tirx.max(a, b), lambda _: least, name="max")
    largest = windows.reduced("largest", number, maximum)

    def equal(at: Any, element: Any, flat: Any, inside: Any) -> Any:
        return _if((element >= largest(*at), inside), flat, none)

    first = windows.reduced("first", equal, te.min)
    shape = first.shape
    if not is_float:
        return [largest, te.compute(shape, lambda *at: first(*at).astype("int64"), name="place")]

    def undefined(_: Any, element: Any, flat: Any, inside: Any) -> Any:
        return _if((is_nan(element), inside), flat, tirx.const(-1, "int32"))

    last = windows.reduced("last_nan", undefined, te.max)

    def value(*at: Any) -> Any:
        return tirx.Select(last(*at) >= 0, tirx.const(math.nan, dtype), largest(*at))

    def place(*at: Any) -> Any:
        return tirx.Select(last(*at) >= 0, last(*at), first(*at)).astype("int64")

    return [te.compute(shape, value, name="value"), te.compute(shape, place, name="place")]


def _if(conditions: Sequence[Any], value: Any, other: Any) -> Any:
    """The value where all conditions hold that are not ``None``."""
    given = [condition for condition in conditions if condition is not None]
    return tirx.Select(tirx.all(*given), value, other) if given else value


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows of a tensor; the attributes are the arguments of :func:`largest_and_where`."""

    data: te.Tensor
    extents: tuple[int, ...]
    counts: tuple[int, ...]
    elements: Elements

    @property
    def sizes(self) -> list[int]:
        """The extents of the pooled dimensions."""
        return [int(extent) for extent in self.data.shape[-len(self.counts) :]]

    def reduced(
        self, name: str, value: Callable[..., Any], reduce: Callable[..., Any]
    ) -> te.Tensor:
        """A reduction over each window of ``value(position, element, place, is_inside)``."""
        lead = len(self.data.shape) - len(self.counts)
        along = [te.reduce_axis((0, extent), f"k{i}") for i, extent in enumerate(self.extents)]

        def body(*at: Any) -> Any:
            places, inside = self.elements(at[lead:], [k.var for k in along])
            flat: Any = 0
            for place, size in zip(places, self.sizes, strict=True):
                flat = flat * size + place
            safe = [
                tirx.max(tirx.min(place, size - 1), 0)
                for place, size in zip(places, self.sizes, strict=True)
            ]
            element = self.data(*at[:lead], *safe)
            return reduce(value(at, element, flat.astype("int32"), inside), axis=along)

        return te.compute([*self.data.shape[:lead], *self.counts], body, name=name)
