"""Operators of Relay that write elements at places that are data, and that sort."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.indices import index_last, numbers, require_within
from tvm_tile.frontend.relay.operators.shapes import broadcast
from tvm_tile.frontend.relay.values import (
    cast,
    constant,
    counted_axis,
    dtype_of,
    filled,
    reshaped,
    shape_of,
)

_REDUCTIONS = ("update", "add", "mul", "min", "max")


def _reduction(name: str) -> str:
    """What becomes of an element and its update.

    Raises:
        NotImplementedError: it depends on the updates' order.
    """
    if name not in _REDUCTIONS:
        raise NotImplementedError(f"reduction {name!r}")
    return name


def _scatter_elements(call: OperatorCall) -> Value:
    """Along an axis each update goes where its index says."""
    x, indices, updates = call.arguments
    shape, places = shape_of(x), shape_of(indices)
    axis = counted_axis(int(call.attributes.get("axis") or 0), len(shape))
    require_within(shape, places, axis)
    _require_updates(x, updates, places)
    is_sum = call.name == "scatter_add"
    name = "add" if is_sum else str(call.attributes.get("reduction") or "update")
    reduction = _reduction(name)
    if 0 in places:
        return x
    return call.emit(op.scatter_elements(x, numbers(call, indices), updates, axis, reduction))


def _require_updates(x: Value, updates: Value, shape: tuple[int, ...]) -> None:
    if shape_of(updates) != shape or dtype_of(updates) != dtype_of(x):
        raise ValueError(
            f"updates of {list(shape_of(updates))} and {dtype_of(updates)} "
            f"for indices of {list(shape)} into {dtype_of(x)}"
        )
    if dtype_of(x) == "bool":
        raise NotImplementedError("elements of bool")


def _scatter_nd(call: OperatorCall) -> Value:
    """Each update goes where an index of several dimensions says."""
    if len(call.arguments) != 3:
        raise NotImplementedError("updates without a tensor that they are for")
    x, indices, updates = call.arguments
    shape, (count, *places) = shape_of(x), shape_of(indices)
    if count > len(shape):
        raise ValueError(f"indices of {count} dimensions for a tensor of {list(shape)}")
    _require_updates(x, updates, (*places, *shape[count:]))
    reduction = _reduction(str(call.attributes.get("mode") or "update"))
    if 0 in shape_of(updates):
        return x
    return call.emit(op.scatter_nd(x, index_last(call, indices), updates, reduction))


def _sparse_to_dense(call: OperatorCall) -> Value:
    """Values at places of an otherwise constant tensor."""
    indices, values = call.arguments[:2]
    shape = tuple(int(extent) for extent in call.attributes["output_shape"])
    dtype, places = dtype_of(values), shape_of(indices)
    if len(call.arguments) > 2:
        default = cast(call, reshaped(call, call.arguments[2], ()), dtype)
        whole = broadcast(call, default, shape)
    else:
        whole = filled(call, shape, 0, dtype)
    count = places[0] if places else 1
    if len(places) > 2 or math.prod(places) != count * len(shape):
        raise ValueError(f"indices of {list(places)} for a tensor of {list(shape)}")
    if 0 in shape or not count:
        return whole
    if dtype == "bool":
        raise NotImplementedError("elements of bool")
    wide = reshaped(call, numbers(call, indices), (count, len(shape)))
    updates = broadcast(call, values, (count,))
    return call.emit(op.scatter_nd(whole, wide, updates, "update"))


def _invert_permutation(call: OperatorCall) -> Value:
    """Where in a permutation each number is."""
    (x,) = call.arguments
    dtype, (count,) = dtype_of(x), shape_of(x)
    if not count:
        return x
    nothing, places = (constant(v, dtype) for v in (np.zeros(count), np.arange(count)))
    found = op.scatter_elements(nothing, numbers(call, x), places, 0)
    return call.emit(found)


def _axis(call: OperatorCall) -> int:
    return counted_axis(int(call.attributes["axis"]), len(shape_of(call.arguments[0])))


def _orderable(call: OperatorCall) -> Value:
    x = call.arguments[0]
    if dtype_of(x) == "bool":
        raise NotImplementedError("elements of bool")
    return x


def _sort(call: OperatorCall) -> Value:
    x, axis = _orderable(call), _axis(call)
    if 0 in shape_of(x):
        return x
    return call.emit(op.sort(x, axis, not call.attributes["is_ascend"]))


def _argsort(call: OperatorCall) -> Value:
    x, axis = _orderable(call), _axis(call)
    dtype = str(call.attributes.get("dtype") or "int32")
    if 0 in shape_of(x):
        return filled(call, shape_of(x), 0, dtype)
    places = call.emit(op.argsort(x, axis, not call.attributes["is_ascend"], "int32"))
    return cast(call, places, dtype)


def _topk(call: OperatorCall) -> Value:
    """The first ``k`` elements in order, their places, or both; all where ``k`` is below 1."""
    x, axis = _orderable(call), _axis(call)
    attributes = call.attributes
    if len(call.arguments) > 1:
        count = int(call.parameter(1, "a number of elements").item())
    else:
        count = int(attributes["k"])
    shape = shape_of(x)
    count = shape[axis] if count < 1 else count
    wanted, dtype = attributes["ret_type"], str(attributes.get("dtype") or "int32")
    if wanted not in ("both", "values", "indices"):
        raise ValueError(f"ret_type {wanted!r}")
    if count > shape[axis]:
        raise ValueError(f"{count} elements of {shape[axis]}")
    if 0 in shape:
        whole = (*shape[:axis], count, *shape[axis + 1 :])
        both = filled(call, whole, 0, dtype_of(x)), filled(call, whole, 0, dtype)
    else:
        pair = call.emit(op.topk(x, count, axis, "both", not attributes["is_ascend"], "int32"))
        values, places = (call.emit(relax.TupleGetItem(pair, i)) for i in (0, 1))
        both = values, cast(call, places, dtype)
    return {"both": both, "values": both[0], "indices": both[1]}[wanted]


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("scatter_elements", "scatter", "scatter_add"), _scatter_elements),
    "scatter_nd": _scatter_nd,
    "sparse_to_dense": _sparse_to_dense,
    "invert_permutation": _invert_permutation,
    "sort": _sort,
    "argsort": _argsort,
    **dict.fromkeys(("topk", "dyn.topk"), _topk),
}
