"""Windows along the last dimensions of a tensor, and reductions of each window."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from tvm_tile.loops.keys import is_nan


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one length along one dimension.

    Attributes:
        extent: elements of the input.
        kernel: elements of a window.
        stride: from a window's start to the next one's.
        before: positions of padding before the first element.
        after: positions of padding behind the last element.
        dilation: from an element of a window to the next.
        count: windows; the last ones may reach further than the padding.
    """

    extent: int
    kernel: int
    stride: int
    before: int
    after: int
    dilation: int
    count: int

    @property
    def behind(self) -> int:
        """Positions behind the last element that windows reach."""
        last = (self.count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1
        return max(last - self.extent - self.before, 0)

    def place(self, window: Any, number: Any) -> Any:
        """Where a window's element lies; another element's place where it is padding."""
        place = self._position(window, number)
        place = tirx.max(place, 0) if self.before else place
        return tirx.min(place, self.extent - 1) if self.behind else place

    def inside(self, window: Any, number: Any) -> list[Any]:
        """The conditions that an element of a window is no padding."""
        place = self._position(window, number)
        conditions = [place >= 0] if self.before else []
        return [*conditions, place < self.extent] if self.behind else conditions

    def elements(self, window: Any, before: int = 0, after: int = 0) -> Any:
        """How many elements a window has, at least one, where some of the padding counts."""
        start = self._position(window, 0)
        first = tirx.max(-before - start + self.dilation - 1, 0) // self.dilation
        end = (self.extent + after - start + self.dilation - 1) // self.dilation
        return tirx.max(tirx.min(end, self.kernel) - first, 1)

    def _position(self, window: Any, number: Any) -> Any:
        return window * self.stride + number * self.dilation - self.before


@dataclass(frozen=True, slots=True)
class AdaptiveParts:
    """The parts of nearly equal length into which adaptive pooling cuts a dimension.

    Attributes:
        extent: elements of the input.
        count: parts.
    """

    extent: int
    count: int

    @property
    def kernel(self) -> int:
        """Elements of the longest part."""
        return max((self.elements(i) for i in range(self.count)), default=0)

    def place(self, part: Any, number: Any) -> Any:
        """Where a part's element lies; another element's place where the part is shorter."""
        return tirx.min(self._start(part) + number, self.extent - 1)

    def inside(self, part: Any, number: Any) -> list[Any]:
        """The condition that a part has an element of a number."""
        return [number < self.elements(part)]

    def elements(self, part: Any) -> Any:
        """How many elements a part has."""
        return ((part + 1) * self.extent + (self.count - 1)) // self.count - self._start(part)

    def _start(self, part: Any) -> Any:
        return (part * self.extent) // self.count


def over_windows(
    data: te.Tensor,
    windows: Sequence[Windows | AdaptiveParts],
    name: str,
    value: Callable[..., Any],
    reduce: Callable[..., Any],
) -> te.Tensor:
    """A reduction over each window of ``value(position, element, place, conditions)``.

    ``place`` is the element's, counted over all dimensions that have windows, in int32;
    ``conditions``, that it belongs to the window, may be none.
    """
    lead = len(data.shape) - len(windows)
    along = [te.reduce_axis((0, each.kernel), f"k{i}") for i, each in enumerate(windows)]

    def body(*at: Any) -> Any:
        triples = [(w, i, k.var) for w, i, k in zip(windows, at[lead:], along, strict=True)]
        places = [w.place(i, k) for w, i, k in triples]
        flat: Any = 0
        for w, place in zip(windows, places, strict=True):
            flat = flat * w.extent + place
        conditions = [condition for w, i, k in triples for condition in w.inside(i, k)]
        element = data(*at[:lead], *places)
        return reduce(value(at, element, flat.astype("int32"), conditions), axis=along)

    return te.compute([*data.shape[:lead], *(w.count for w in windows)], body, name=name)


def where_all(conditions: Sequence[Any], value: Any, other: Any) -> Any:
    """The value where all conditions hold, of which there may be none."""
    return tirx.Select(tirx.all(*conditions), value, other) if conditions else value


def largest_and_where(
    data: te.Tensor, windows: Sequence[Windows | AdaptiveParts]
) -> list[te.Tensor]:
    """The largest elements of windows and, counted over all pooled dimensions, their places.

    The place is that of the first of equal ones; the last NaN wins over all else, as in PyTorch.
    Two reductions of integers follow one of values, which meets no NaN::

        largest[w] = max(x[k] for k in w if x[k] is not NaN)
        nan[w]     = max(k for k in w if x[k] is NaN), or -1
        first[w]   = min(k for k in w if x[k] == largest[w])

    Raises:
        ValueError: windows, or the tensor, have no elements.
    """
    if 0 in [w.kernel for w in windows] or 0 in [int(extent) for extent in data.shape]:
        raise ValueError("windows without elements")
    dtype = str(data.dtype)
    is_float = "float" in dtype
    least = tirx.const(-math.inf, dtype) if is_float else tirx.min_value(dtype)
    none = tirx.const(math.prod(w.extent for w in windows), "int32")

    def number(_: Any, element: Any, __: Any, inside: list[Any]) -> Any:
        return where_all(
            [*([tirx.Not(is_nan(element))] if is_float else []), *inside], element, least
        )

    # TVM's own maximum starts from the least finite value.
    maximum = te.comm_reducer(lambda a, b: tirx.max(a, b), lambda _: least, name="max")
    largest = over_windows(data, windows, "largest", number, maximum)

    def equal(at: Any, element: Any, flat: Any, inside: list[Any]) -> Any:
        return where_all([element >= largest(*at), *inside], flat, none)

    first = over_windows(data, windows, "first", equal, te.min)
    shape = first.shape
    if not is_float:
        return [largest, te.compute(shape, lambda *at: first(*at).astype("int64"), name="place")]

    def undefined(_: Any, element: Any, flat: Any, inside: list[Any]) -> Any:
        return where_all([is_nan(element), *inside], flat, tirx.const(-1, "int32"))

    last = over_windows(data, windows, "last_nan", undefined, te.max)

    def value(*at: Any) -> Any:
        return tirx.Select(last(*at) >= 0, tirx.const(math.nan, dtype), largest(*at))

    def place(*at: Any) -> Any:
        return tirx.Select(last(*at) >= 0, last(*at), first(*at)).astype("int64")

    return [te.compute(shape, value, name="value"), te.compute(shape, place, name="place")]
