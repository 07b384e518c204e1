"""Operators of Relay that write elements at places that are data, and that sort."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.ops.values import constant, counted_axis, dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.indices import index_last, numbers, require_within
from tvm_tile.frontend.relay.operators.shapes import broadcast
from tvm_tile.frontend.relay.values import require_numbers

_REDUCTIONS = ("update", "add", "mul", "min", "max")


def _reduction(name: str) -> str:
    """What becomes of an element and its update.

    Raises:
        NotImplementedError: it depends on the updates' order.
    """
    if name not in _REDUCTIONS:
        raise NotImplementedError(f"reduction {name!r}")
    return name


def _scatter_elements(call: OperatorCall, x: Value, indices: Value, updates: Value) -> Value:
    """Along an axis each update goes where its index says."""
    shape, places = shape_of(x), shape_of(indices)
    axis = counted_axis(call.attributes.get("axis") or 0, len(shape))
    require_within(shape, places, axis)
    _require_updates(x, updates, places)
    given = "add" if call.name == "scatter_add" else call.attributes.get("reduction")
    reduction = _reduction(given or "update")
    if 0 in places:
        return x
    return call.emit(op.scatter_elements(x, numbers(call, indices), updates, axis, reduction))


def _require_updates(x: Value, updates: Value, shape: tuple[int, ...]) -> None:
    if shape_of(updates) != shape or dtype_of(updates) != dtype_of(x):
        raise ValueError(
            f"updates of {list(shape_of(updates))} and {dtype_of(updates)} "
            f"for indices of {list(shape)} into {dtype_of(x)}"
        )
    require_numbers(x)


def _scatter_nd(
    call: OperatorCall, x: Value, indices: Value, updates: Value, *, mode: str = ""
) -> Value:
    """Each update goes where an index of several dimensions says."""
    shape, (count, *places) = shape_of(x), shape_of(indices)
    if count > len(shape):
        raise ValueError(f"indices of {count} dimensions for a tensor of {list(shape)}")
    _require_updates(x, updates, (*places, *shape[count:]))
    reduction = _reduction(mode or "update")
    if 0 in shape_of(updates):
        return x
    return call.emit(op.scatter_nd(x, index_last(call, indices), updates, reduction))


def _sparse_to_dense(call: OperatorCall, indices: Value, values: Value, *default: Value) -> Value:
    """Values at places of an otherwise constant tensor."""
    shape, places = tuple(call.attributes["output_shape"]), shape_of(indices)
    other = default[0] if default else constant(0, dtype_of(values))
    whole = broadcast(call, call.cast(call.reshaped(other, ()), dtype_of(values)), shape)
    count = places[0] if places else 1
    if len(places) > 2 or math.prod(places) != count * len(shape):
        raise ValueError(f"indices of {list(places)} for a tensor of {list(shape)}")
    if 0 in shape or not count:
        return whole
    require_numbers(values)
    wide = call.reshaped(numbers(call, indices), (count, len(shape)))
    return call.emit(op.scatter_nd(whole, wide, broadcast(call, values, (count,)), "update"))


def _invert_permutation(call: OperatorCall, x: Value) -> Value:
    """Where in a permutation each number is."""
    dtype, (count,) = dtype_of(x), shape_of(x)
    nothing, places = (constant(v, dtype) for v in (np.zeros(count), np.arange(count)))
    return call.emit(op.scatter_elements(nothing, numbers(call, x), places, 0)) if count else x


def _sort(call: OperatorCall, x: Value, *, axis: int, is_ascend: bool) -> Value:
    require_numbers(x)
    return call.emit(op.sort(x, counted_axis(axis, len(shape_of(x))), not is_ascend))


def _argsort(call: OperatorCall, x: Value, *, axis: int, is_ascend: bool, dtype: str = "") -> Value:
    require_numbers(x)
    axis = counted_axis(axis, len(shape_of(x)))
    return call.cast(call.emit(op.argsort(x, axis, not is_ascend, "int32")), dtype or "int32")


def _topk(call: OperatorCall, x: Value, *given: Value, axis: int, ret_type: str) -> Value:
    """The first ``k`` elements in order, their places, or both; all where ``k`` is below 1."""
    require_numbers(x)
    attributes, shape = call.attributes, shape_of(x)
    dtype = str(attributes.get("dtype") or "int32")
    axis = counted_axis(axis, len(shape))
    count = call.parameter(1, "a number of elements").item() if given else attributes["k"]
    count = shape[axis] if count < 1 else count
    if ret_type not in ("both", "values", "indices"):
        raise ValueError(f"ret_type {ret_type!r}")
    if count > shape[axis]:
        raise ValueError(f"{count} elements of {shape[axis]}")
    if 0 in shape:
        whole = (*shape[:axis], count, *shape[axis + 1 :])
        both = call.filled(whole, 0, dtype_of(x)), call.filled(whole, 0, dtype)
    else:
        pair = call.emit(op.topk(x, count, axis, "both", not attributes["is_ascend"], "int32"))
        values, places = (call.emit(relax.TupleGetItem(pair, i)) for i in (0, 1))
        both = values, call.cast(places, dtype)
    return {"both": both, "values": both[0], "indices": both[1]}[ret_type]


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("scatter_elements", "scatter", "scatter_add"), _scatter_elements),
    "scatter_nd": _scatter_nd,
    "sparse_to_dense": _sparse_to_dense,
    "invert_permutation": _invert_permutation,
    "sort": _sort,
    "argsort": _argsort,
    **dict.fromkeys(("topk", "dyn.topk"), _topk),
}
