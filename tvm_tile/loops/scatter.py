"""Writes at indices that are data, by their owners: each element looks for what is written to it.

No thread writes an element of another's, so that nothing is lost where indices are equal, sums are
the same each time, and an index that is out of bounds writes nothing. Loops of an update::

    for p, t: last[p] = max(last[p], t if index[t] == p else -1)
    for p:    y[p] = updates[last[p]] if last[p] >= 0 else x[p]

and of a sum::

    for p, t: s[p] += updates[t] if index[t] == p else 0
    for p:    y[p] = x[p] + s[p]

A negative index counts from the end. Of equal indices the last update stays. The work is the number
of elements times that of updates along the axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import relax, te, tirx

from tvm_tile.loops.gather import (
    broadcast_element,
    broadcast_shape,
    clamped,
    counted_from_end,
    is_inside,
)
from tvm_tile.loops.keys import extreme_key, extreme_of_key, key_bits
from tvm_tile.loops.rows import number

_HALVES = ("float16", "bfloat16")
_NOWHERE = -1
Index = Sequence[Any]


@dataclass(frozen=True, slots=True)
class _Updates:
    """Updates that may be written to the elements of a tensor.

    Attributes:
        data: the tensor.
        count: updates that an element must look at.
        is_for: function of an element's index and an update's number: whether the update is for the
            element.
        value: function of the same that gives the update.
    """

    data: te.Tensor
    count: int
    is_for: Callable[[Index, Any], Any]
    value: Callable[[Index, Any], Any]

    def reduced(self, name: str, dtype: str, reduce: Any, element: Callable[..., Any]) -> te.Tensor:
        """``reduce`` over all updates of ``element(at, t)``."""
        along = te.reduce_axis((0, number(self.count)), "t")

        def body(*at: Any) -> Any:
            return reduce(element(at, along.var), axis=along)

        return te.compute(self.data.shape, body, name=f"{name}_{dtype}")

    def last(self, name: str) -> te.Tensor:
        """The number of the last update of each element; -1 where there is none."""

        def own(at: Index, t: Any) -> Any:
            none = tirx.const(_NOWHERE, "int64")
            return tirx.Select(self.is_for(at, t), tirx.Cast("int64", t), none)

        return self.reduced(name, "last", te.max, own)

    def found(self, at: Index, place: Any) -> Any:
        """The update of a number that may be -1."""
        return self.value(at, clamped(place, self.count))


def _written(updates: _Updates, reduction: str, name: str) -> te.Tensor:
    """A tensor with updates, joined by a reduction."""
    data = updates.data
    if not updates.count:
        return te.compute(data.shape, lambda *at: data(*at), name=name)
    if reduction in ("add", "mul", "mean"):
        return _accumulated(updates, reduction, name)
    if reduction in ("max", "min"):
        return _extreme(updates, name, largest=reduction == "max")
    if reduction != "update":
        raise ValueError(f"scatter has no reduction {reduction!r}")
    last = updates.last(name)

    def element(*at: Any) -> Any:
        is_updated = last(*at) >= number(0)
        return tirx.Select(is_updated, updates.found(at, last(*at)), data(*at))

    return te.compute(data.shape, element, name=name)


def _accumulated(updates: _Updates, reduction: str, name: str) -> te.Tensor:
    """A tensor with updates added or multiplied, or their mean."""
    data = updates.data
    dtype = str(data.dtype)
    if dtype == "bool":
        raise ValueError("scatter does not add up truth values")
    wide = "float32" if dtype in _HALVES else dtype
    nothing = tirx.const(int(reduction == "mul"), wide)

    def own(at: Index, t: Any) -> Any:
        value = tirx.Cast(wide, updates.value(at, t))
        return tirx.Select(updates.is_for(at, t), value, nothing)

    reduce = _product if reduction == "mul" else te.sum
    total = updates.reduced(name, "total", reduce, own)
    if reduction != "mean":

        def element(*at: Any) -> Any:
            first, second = tirx.Cast(wide, data(*at)), total(*at)
            return tirx.Cast(dtype, first * second if reduction == "mul" else first + second)

        return te.compute(data.shape, element, name=name)
    one, none = tirx.const(1, wide), tirx.const(0, wide)
    count = updates.reduced(
        name, "count", te.sum, lambda at, t: tirx.Select(updates.is_for(at, t), one, none)
    )

    def mean(*at: Any) -> Any:
        whole, number_of = tirx.Cast(wide, data(*at)) + total(*at), count(*at) + one
        is_float = wide.startswith("float")
        return tirx.Cast(dtype, whole / number_of if is_float else whole // number_of)

    return te.compute(data.shape, mean, name=name)


def _extreme(updates: _Updates, name: str, *, largest: bool) -> te.Tensor:
    """The largest or smallest of an element and its updates; NaN wins."""
    data, dtype = updates.data, str(updates.data.dtype)

    def key(value: Any) -> Any:
        return extreme_key(value, largest=largest)

    def own(at: Index, t: Any) -> Any:
        none = tirx.min_value(f"int{key_bits(dtype)}")
        return tirx.Select(updates.is_for(at, t), key(updates.value(at, t)), none)

    best = updates.reduced(name, "best", te.max, own)

    def element(*at: Any) -> Any:
        wins = best(*at) > key(data(*at))
        found = extreme_of_key(best(*at), dtype, largest=largest)
        return tirx.Select(wins, found, data(*at))

    return te.compute(data.shape, element, name=name)


_product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="product")


def scatter_elements(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.scatter_elements``: ``y[..., index[..., t, ...], ...] = updates[..., t, ...]``."""
    axis = int(call.attrs.axis) % len(call.args[0].ty.shape)
    reduction = str(call.attrs.reduction)

    def loops(data: te.Tensor, indices: te.Tensor, values: te.Tensor) -> te.Tensor:
        extent = data.shape[axis]

        def position(at: Index, t: Any) -> list[Any]:
            """The place of an update in the tensor of indices, maybe smaller than the data."""
            own = [
                index if int(small) == int(whole) else clamped(tirx.Cast("int64", index), small)
                for index, small, whole in zip(at, indices.shape, data.shape, strict=True)
            ]
            return [*own[:axis], t, *own[axis + 1 :]]

        def is_for(at: Index, t: Any) -> Any:
            index = counted_from_end(indices(*position(at, t)), extent)
            others = [
                tirx.Cast("int64", own) < tirx.Cast("int64", small)
                for place, (own, small) in enumerate(zip(at, indices.shape, strict=True))
                if place != axis and int(small) != int(data.shape[place])
            ]
            return tirx.all(index == tirx.Cast("int64", at[axis]), *others)

        def value(at: Index, t: Any) -> Any:
            return values(*position(at, t))

        count = int(indices.shape[axis]) if math.prod(map(int, indices.shape)) else 0
        return _written(_Updates(data, count, is_for, value), reduction, "scatter_elements")

    return builder.call_te(loops, *call.args, primfunc_name_hint="scatter_elements")


def scatter_nd(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.scatter_nd``: the last dimension of the indices is an index of several dimensions."""
    reduction = str(call.attrs.reduction)

    def loops(data: te.Tensor, indices: te.Tensor, values: te.Tensor) -> te.Tensor:
        *outer, last = (int(extent) for extent in indices.shape)

        def column(place: int) -> Callable[[Index], Any]:
            return lambda at: indices(*at, number(place))

        return _scattered(
            data,
            outer,
            [column(place) for place in range(last)],
            lambda at, rest: values(*at, *rest),
            reduction,
            "scatter_nd",
        )

    return builder.call_te(loops, *call.args, primfunc_name_hint="scatter_nd")


def index_put(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.index_put``: indices of the first dimensions, broadcast to one shape."""
    data, indices, values = call.args
    is_tuple = isinstance(indices.ty, relax.TupleType)
    count = len(indices.ty.fields) if is_tuple else 1
    given = (
        [builder.emit(relax.TupleGetItem(indices, place)) for place in range(count)]
        if is_tuple
        else [indices]
    )

    def loops(data: te.Tensor, values: te.Tensor, *own: te.Tensor) -> te.Tensor:
        outer = broadcast_shape([index.shape for index in own])
        return _scattered(
            data,
            outer,
            [partial(broadcast_element, index) for index in own],
            lambda at, rest: broadcast_element(values, [*at, *rest]),
            "add" if call.attrs.accumulate else "update",
            "index_put",
        )

    return builder.call_te(loops, data, values, *given, primfunc_name_hint="index_put")


def _scattered(
    data: te.Tensor,
    outer: Sequence[int],
    indices: Sequence[Callable[[Index], Any]],
    value: Callable[[Index, Index], Any],
    reduction: str,
    name: str,
) -> te.Tensor:
    """Updates of the first dimensions of a tensor, each of all that is behind these.

    Args:
        data: the tensor.
        outer: the shape of the updates' numbers.
        indices: function of the position of an update that gives its index in each of the first
            dimensions.
        value: function of the position of an update, and the index behind, that gives its element.
        reduction: operation that joins an element and its updates.
        name: name of the operator.
    """
    first = len(indices)

    def split(t: Any) -> list[Any]:
        found = []
        for place in range(len(outer)):
            below = number(math.prod(outer[place + 1 :]))
            digit = tirx.floordiv(t, below)
            found.append(tirx.floormod(digit, number(outer[place])) if place else digit)
        return found

    def one(t: Any) -> Any:
        """The flat number of the elements that an update is for; -1 where they are outside."""
        at, flat, inside = split(t), number(0), []
        for index, extent in zip(indices, data.shape, strict=False):
            own = counted_from_end(index(at), extent)
            inside.append(is_inside(own, extent))
            flat = flat * tirx.Cast("int64", extent) + own
        return tirx.Select(tirx.all(*inside), flat, number(_NOWHERE))

    count = math.prod(outer)
    targets = te.compute((number(max(1, count)),), one, name=f"{name}_targets") if count else None

    def is_for(at: Index, t: Any) -> Any:
        assert targets is not None
        flat = number(0)
        for index, extent in zip(at[:first], data.shape, strict=False):
            flat = flat * tirx.Cast("int64", extent) + tirx.Cast("int64", index)
        return targets(t) == flat

    updates = _Updates(data, count, is_for, lambda at, t: value(split(t), at[first:]))
    return _written(updates, reduction, name)
