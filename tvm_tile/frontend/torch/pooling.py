"""Pooling: the largest or the average of windows, of one to three dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tvm import relax, te, tirx, topi

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, Refusal, dtype_of, shape_of
from tvm_tile.loops.keys import is_nan

_MAX = {1: relax.op.nn.max_pool1d, 2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}
_AVERAGE = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}
_HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows along one dimension.

    Attributes:
        extent: elements of the input.
        kernel: elements of a window.
        stride: from a window's start to the next one's.
        padding: positions before the first element at which windows may start; as many may be
            behind the last.
        dilation: from an element of a window to the next.
        count: windows.
    """

    extent: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    count: int

    @property
    def behind(self) -> int:
        """Positions behind the last element that windows reach."""
        last = (self.count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1
        return max(last - self.extent - self.padding, 0)

    @property
    def is_regular(self) -> bool:
        """Whether no window reaches further than the padding."""
        return self.behind <= self.padding

    def position(self, window: Any, element: Any) -> Any:
        """Where a window's element lies; negative or beyond the extent in the padding."""
        return window * self.stride + element * self.dilation - self.padding


def _windows(
    emit: Emit,
    x: relax.Expr,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
) -> tuple[Windows, ...]:
    """The windows that PyTorch's result has, one for each of the kernel's dimensions.

    How many there are in ``ceil_mode`` is seen from the result's shape.
    """
    rank = len(emit.shape) - 2 if len(emit.shape) > len(kernel_size) + 1 else len(emit.shape) - 1
    settings = (kernel_size, stride or kernel_size, padding, dilation)
    each = [list(values) * (rank if len(values) == 1 else 1) for values in map(_listed, settings)]
    extents = shape_of(x)[-rank:]
    return tuple(
        Windows(*of) for of in zip(extents, *each, emit.shape[-rank:], strict=True)
    )


def _listed(values: int | Sequence[int]) -> Sequence[int]:
    return [values] if isinstance(values, int) else values


def _max_pool(
    emit: Emit,
    x: relax.Expr,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> relax.Expr:
    windows = _windows(emit, x, kernel_size, stride, padding, dilation)
    return _largest(emit, x, windows, emit.shape)


def _max_pool_with_indices(
    emit: Emit,
    x: relax.Expr,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> tuple[relax.Expr | None, relax.Expr | None]:
    windows = _windows(emit, x, kernel_size, stride, padding, dilation)
    if emit.wanted <= {0}:
        return _largest(emit, x, windows, emit.shape), None

    def loops(data: te.Tensor) -> list[te.Tensor]:
        def elements(at: Sequence[Any], along: Sequence[Any]) -> tuple[list[Any], Any]:
            places = [w.position(i, k) for w, i, k in zip(windows, at, along, strict=True)]
            inside = [
                condition
                for w, place in zip(windows, places, strict=True)
                for condition in _is_inside(w, place)
            ]
            return places, tirx.all(*inside) if inside else None

        extents = [w.kernel for w in windows]
        return _largest_and_where(data, extents, [w.count for w in windows], elements)

    return tuple(emit(relax.TupleGetItem(emit.te(loops, x, name="max_pool_places"), i)) for i in (0, 1))


def _is_inside(windows: Windows, place: Any) -> list[Any]:
    """The conditions that a place of some windows is an element and no padding."""
    conditions = [place >= 0] if windows.padding else []
    return [*conditions, place < windows.extent] if windows.behind else conditions


def _largest(
    emit: Emit, x: relax.Expr, windows: Sequence[Windows], shape: Sequence[int]
) -> relax.Expr:
    """Max pooling, without the places of the largest elements."""
    dtype = dtype_of(x)
    if not dtype.is_floating_point:
        return _reduced(emit, x, windows, te.max, torch.iinfo(dtype).min)
    batched, restored = _batched(emit, x, len(windows))
    pooled = _MAX[len(windows)](
        batched,
        pool_size=[w.kernel for w in windows],
        strides=[w.stride for w in windows],
        padding=[*(w.padding for w in windows), *(w.behind for w in windows)],
        dilation=[w.dilation for w in windows],
    )
    return restored(emit(pooled))


def _batched(
    emit: Emit, x: relax.Expr, rank: int
) -> tuple[relax.Expr, Callable[[relax.Expr], relax.Expr]]:
    """An input with a batch dimension, and what takes that away from a result."""
    shape = shape_of(x)
    if len(shape) == rank + 2:
        return x, lambda result: result
    return emit.reshape(x, (1, *shape)), lambda result: emit.reshape(result, emit.shape)


def _avg_pool(
    emit: Emit,
    x: relax.Expr,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None = None,
) -> relax.Expr:
    windows = _windows(emit, x, kernel_size, stride, padding)
    plain = all(w.is_regular for w in windows) and divisor_override is None
    if plain and dtype_of(x).is_floating_point:
        batched, restored = _batched(emit, x, len(windows))
        pooled = _AVERAGE[len(windows)](
            batched,
            pool_size=[w.kernel for w in windows],
            strides=[w.stride for w in windows],
            padding=[*(w.padding for w in windows), *(w.behind for w in windows)],
            count_include_pad=count_include_pad,
        )
        return restored(emit(pooled))

    def divisor(*at: Any) -> Any:
        if divisor_override is not None:
            return divisor_override
        return math.prod(
            _elements(w, i, w.padding if count_include_pad else 0)
            for w, i in zip(windows, at[-len(windows) :], strict=True)
        )

    return _reduced(emit, x, windows, te.sum, 0, divisor)


def _avg_pool1d(
    emit: Emit,
    x: relax.Expr,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
) -> relax.Expr:
    return _avg_pool(emit, x, kernel_size, stride, padding, ceil_mode, count_include_pad)


def _elements(windows: Windows, window: Any, padding: int) -> Any:
    """How many positions a window has among the elements and so much padding at both ends."""
    start = windows.position(window, 0)
    end = tirx.min(start + windows.kernel, windows.extent + windows.padding)
    return tirx.min(end, windows.extent + padding) - tirx.max(start, -padding)


def _reduced(
    emit: Emit,
    x: relax.Expr,
    windows: Sequence[Windows],
    reduce: Callable[..., Any],
    outside: float,
    divisor: Callable[..., Any] | None = None,
) -> relax.Expr:
    """A reduction of the windows, with a value for the padding; sums of halves are float32."""
    dtype = dtype_of(x)
    wide = "float32" if dtype in _HALVES else str(x.ty.dtype)

    def loops(data: te.Tensor) -> te.Tensor:
        lead = len(data.shape) - len(windows)
        padded = topi.nn.pad(
            data,
            [*[0] * lead, *(w.padding for w in windows)],
            [*[0] * lead, *(w.behind for w in windows)],
            pad_value=tirx.const(outside, str(data.dtype)),
        )
        along = [te.reduce_axis((0, w.kernel), f"k{i}") for i, w in enumerate(windows)]

        def body(*at: Any) -> Any:
            places = [
                i * w.stride + k.var * w.dilation
                for w, i, k in zip(windows, at[lead:], along, strict=True)
            ]
            return reduce(padded(*at[:lead], *places).astype(wide), axis=along)

        shape = [*data.shape[:lead], *(w.count for w in windows)]
        result = te.compute(shape, body, name="windows")
        if divisor is not None:
            result = te.compute(
                shape, lambda *at: _quotient(result(*at), divisor(*at)), name="quotients"
            )
        if wide == str(data.dtype):
            return result
        return te.compute(shape, lambda *at: result(*at).astype(data.dtype), name="narrowed")

    return emit.te(loops, x, name="pool")


def _quotient(total: Any, divisor: Any) -> Any:
    """A sum by a count; of integers towards zero."""
    dtype = str(total.ty.dtype)
    divisor = tirx.const(divisor, dtype) if isinstance(divisor, int) else divisor.astype(dtype)
    return total / divisor if "float" in dtype else tirx.truncdiv(total, divisor)


def _adaptive_avg_pool(emit: Emit, x: relax.Expr, output_size: Sequence[int]) -> relax.Expr:
    rank = len(output_size)
    extents = shape_of(x)[-rank:]
    if all(count == 1 for count in output_size):
        lead = len(shape_of(x)) - rank
        return relax.op.mean(x, list(range(lead, lead + rank)), keepdims=True)
    if all(extent % count == 0 for extent, count in zip(extents, output_size, strict=True)):
        sizes = [extent // count for extent, count in zip(extents, output_size, strict=True)]
        return _avg_pool(emit, x, sizes, sizes, [0] * rank, False, True)
    wide = "float32" if dtype_of(x) in _HALVES else str(x.ty.dtype)

    def loops(data: te.Tensor) -> te.Tensor:
        parts = _parts(extents, output_size)
        lead = len(data.shape) - rank
        along = [te.reduce_axis((0, part.longest), f"k{i}") for i, part in enumerate(parts)]
        shape = [*data.shape[:lead], *output_size]

        def body(*at: Any) -> Any:
            places, inside = _places(parts, at[lead:], [k.var for k in along])
            value = data(*at[:lead], *places).astype(wide)
            return te.sum(tirx.if_then_else(inside, value, tirx.const(0, wide)), axis=along)

        total = te.compute(shape, body, name="parts")

        def quotient(*at: Any) -> Any:
            count = math.prod(part.size(i) for part, i in zip(parts, at[lead:], strict=True))
            return (total(*at) / count.astype(wide)).astype(data.dtype)

        return te.compute(shape, quotient, name="quotients")

    return emit.te(loops, x, name="adaptive_avg_pool")


@dataclass(frozen=True, slots=True)
class _Part:
    """The parts of nearly equal length into which adaptive pooling cuts a dimension."""

    extent: int
    count: int

    def start(self, i: Any) -> Any:
        return (i * self.extent) // self.count

    def size(self, i: Any) -> Any:
        return ((i + 1) * self.extent + (self.count - 1)) // self.count - self.start(i)

    @property
    def longest(self) -> int:
        return max((self.size(i) for i in range(self.count)), default=0)


def _parts(extents: Sequence[int], counts: Sequence[int]) -> list[_Part]:
    return [_Part(extent, count) for extent, count in zip(extents, counts, strict=True)]


def _places(
    parts: Sequence[_Part], at: Sequence[Any], along: Sequence[Any]
) -> tuple[list[Any], Any]:
    """Where the elements of a part lie, and whether they belong to it; any other place is valid."""
    pairs = list(zip(parts, at, along, strict=True))
    places = [tirx.min(part.start(i) + k, part.extent - 1) for part, i, k in pairs]
    return places, tirx.all(*(k < part.size(i) for part, i, k in pairs))


def _adaptive_max_pool(
    emit: Emit, x: relax.Expr, output_size: Sequence[int]
) -> tuple[relax.Expr, relax.Expr]:
    parts = _parts(shape_of(x)[-len(output_size) :], output_size)

    def loops(data: te.Tensor) -> list[te.Tensor]:
        def elements(at: Sequence[Any], along: Sequence[Any]) -> tuple[list[Any], Any]:
            return _places(parts, at, along)

        return _largest_and_where(data, [p.longest for p in parts], output_size, elements)

    both = emit.te(loops, x, name="adaptive_max_pool")
    return tuple(emit(relax.TupleGetItem(both, i)) for i in (0, 1))


def _largest_and_where(
    data: te.Tensor,
    extents: Sequence[int],
    counts: Sequence[int],
    elements: Callable[[Sequence[Any], Sequence[Any]], tuple[list[Any], Any]],
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
        elements: from a window and the number of an element, by dimension, to the element's
            place, by dimension, and whether it belongs to the window (``None``: always).
    """
    if 0 in extents or 0 in [int(extent) for extent in data.shape]:
        raise Refusal("windows without elements")
    dtype, lead = str(data.dtype), len(data.shape) - len(counts)
    sizes = [int(extent) for extent in data.shape[lead:]]
    shape = [*data.shape[:lead], *counts]
    is_float = "float" in dtype
    least = tirx.const(-math.inf, dtype) if is_float else tirx.min_value(dtype)
    # TVM's own maximum starts from the least finite value.
    maximum = te.comm_reducer(lambda a, b: tirx.max(a, b), lambda _: least, name="max")
    none = tirx.const(math.prod(sizes), "int32")

    def reduction(name: str, value: Callable[..., Any], reduce: Callable[..., Any]) -> te.Tensor:
        along = [te.reduce_axis((0, extent), f"k{i}") for i, extent in enumerate(extents)]

        def body(*at: Any) -> Any:
            places, inside = elements(at[lead:], [k.var for k in along])
            flat = places[0]
            for place, size in zip(places[1:], sizes[1:], strict=True):
                flat = flat * size + place
            safe = [
                tirx.max(tirx.min(place, size - 1), 0)
                for place, size in zip(places, sizes, strict=True)
            ]
            element = data(*at[:lead], *safe)
            return reduce(value(at, element, flat.astype("int32"), inside), axis=along)

        return te.compute(shape, body, name=name)

    def chosen(condition: Any, inside: Any, value: Any, other: Any) -> Any:
        given = [c for c in (condition, inside) if c is not None]
        return tirx.Select(tirx.all(*given), value, other) if given else value

    def number(_: Any, element: Any, __: Any, inside: Any) -> Any:
        is_number = tirx.Not(is_nan(element)) if is_float else None
        return chosen(is_number, inside, element, least)

    largest = reduction("largest", number, maximum)

    def equal(at: Any, element: Any, flat: Any, inside: Any) -> Any:
        # Not less, so that an infinity that stands for nothing matches, too.
        return chosen(element >= largest(*at), inside, flat, none)

    first = reduction("first", equal, te.min)
    if not is_float:
        place = te.compute(shape, lambda *at: first(*at).astype("int64"), name="place")
        return [largest, place]

    def undefined(_: Any, element: Any, flat: Any, inside: Any) -> Any:
        return chosen(is_nan(element), inside, flat, tirx.const(-1, "int32"))

    nan = reduction("nan", undefined, te.max)
    value = te.compute(
        shape,
        lambda *at: tirx.Select(nan(*at) >= 0, tirx.const(math.nan, dtype), largest(*at)),
        name="value",
    )
    place = te.compute(
        shape,
        lambda *at: tirx.Select(nan(*at) >= 0, nan(*at), first(*at)).astype("int64"),
        name="place",
    )
    return [value, place]


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    **overloads(
        _max_pool, _ATEN.max_pool1d.default, _ATEN.max_pool2d.default, _ATEN.max_pool3d.default
    ),
    **overloads(
        _max_pool_with_indices,
        _ATEN.max_pool2d_with_indices.default,
        _ATEN.max_pool3d_with_indices.default,
    ),
    _ATEN.avg_pool1d.default: _avg_pool1d,
    **overloads(_avg_pool, _ATEN.avg_pool2d.default, _ATEN.avg_pool3d.default),
    **overloads(
        _adaptive_avg_pool,
        _ATEN.adaptive_avg_pool1d.default,
        _ATEN._adaptive_avg_pool2d.default,
        _ATEN._adaptive_avg_pool3d.default,
    ),
    **overloads(
        _adaptive_max_pool,
        _ATEN.adaptive_max_pool2d.default,
        _ATEN.adaptive_max_pool3d.default,
    ),
}
