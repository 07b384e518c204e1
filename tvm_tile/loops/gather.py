"""Reads at indices that are data: none is outside of its tensor, whatever the data are.

An index that is out of bounds reads the nearest element; a negative one counts from the end first.
TVM's own loops read wherever the index points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax, te, tirx

from tvm_tile.loops.rows import number


def counted_from_end(index: Any, extent: Any) -> Any:
    """An index as 64 bits, negative ones counted from the end of a dimension."""
    index, extent = tirx.Cast("int64", index), tirx.Cast("int64", extent)
    return tirx.Select(index < number(0), index + extent, index)


def clamped(index: Any, extent: Any) -> Any:
    """The nearest index that a dimension has, of 64 bits."""
    return tirx.max(tirx.min(index, tirx.Cast("int64", extent) - number(1)), number(0))


def is_inside(index: Any, extent: Any) -> Any:
    """Whether a dimension has an index, of 64 bits."""
    return tirx.all(index >= number(0), index < tirx.Cast("int64", extent))


def take(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.take``; its mode says what an index out of bounds means.

    ``"fast"``: the nearest element, negative ones counted from the end; ``"clip"``: the nearest
    element, which for negative ones is the first; ``"wrap"``: the index modulo the extent;
    ``"nan"``: no element but NaN.
    """
    data, indices, mode = call.args[0], call.args[1], str(call.attrs.mode)
    # Without an axis, the data have one dimension.
    place = int(call.attrs.axis or 0) % len(data.ty.shape)
    is_number = ir.is_prim_expr(indices)

    def loops(data: te.Tensor, indices: Any) -> te.Tensor:
        _check_elements(data.shape[place])
        shape = () if is_number else tuple(indices.shape)

        def element(*at: Any) -> Any:
            own = at[place : place + len(shape)]
            index = tirx.Cast("int64", indices if is_number else indices(*own))
            before, behind = at[:place], at[place + len(shape) :]
            return _taken(lambda i: data(*before, i, *behind), index, data.shape[place], mode)

        whole = (*data.shape[:place], *shape, *data.shape[place + 1 :])
        return te.compute(whole, element, name="take")

    return builder.call_te(loops, data, indices, primfunc_name_hint="take")


def _taken(read: Any, index: Any, extent: Any, mode: str) -> Any:
    """Read at an index, by what ``take``'s mode says of indices out of bounds."""
    if mode == "wrap":
        return read(tirx.floormod(index, tirx.Cast("int64", extent)))
    if mode == "nan":
        value = read(clamped(index, extent))
        dtype = str(value.ty.dtype)
        if not dtype.startswith(("float", "bfloat")):
            raise ValueError(f"take of mode 'nan' is for floating-point numbers, not {dtype}")
        return tirx.Select(is_inside(index, extent), value, tirx.const(float("nan"), dtype))
    if mode == "fast":
        index = counted_from_end(index, extent)
    elif mode != "clip":
        raise ValueError(f"take has no mode {mode!r}")
    return read(clamped(index, extent))


def gather_elements(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.gather_elements``: ``y[..., j, ...] = x[..., index[..., j, ...], ...]``."""
    axis = int(call.attrs.axis) % len(call.args[0].ty.shape)

    def loops(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        _check_elements(data.shape[axis])

        def element(*at: Any) -> Any:
            index = _bounded(indices(*at), data.shape[axis])
            return data(*at[:axis], index, *at[axis + 1 :])

        return te.compute(indices.shape, element, name="gather_elements")

    return builder.call_te(loops, *call.args, primfunc_name_hint="gather_elements")


def gather_nd(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.gather_nd``: the last dimension of the indices is an index of several dimensions."""
    batch = int(call.attrs.batch_dims)

    def loops(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        *outer, last = indices.shape
        count = int(last)
        rest = data.shape[batch + count :]
        for extent in data.shape[batch : batch + count]:
            _check_elements(extent)

        def element(*at: Any) -> Any:
            own = at[: len(outer)]
            found = [
                _bounded(indices(*own, number(place)), data.shape[batch + place])
                for place in range(count)
            ]
            return data(*at[:batch], *found, *at[len(outer) :])

        return te.compute((*outer, *rest), element, name="gather_nd")

    return builder.call_te(loops, *call.args, primfunc_name_hint="gather_nd")


def index_tensor(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.index_tensor``: indices of the first dimensions, broadcast to one shape."""
    fields = call.args[1].ty.fields
    given = [builder.emit(relax.TupleGetItem(call.args[1], i)) for i in range(len(fields))]

    def loops(data: te.Tensor, *indices: te.Tensor) -> te.Tensor:
        shape = broadcast_shape([index.shape for index in indices])
        for extent in data.shape[: len(indices)]:
            _check_elements(extent)

        def element(*at: Any) -> Any:
            own = at[: len(shape)]
            found = [
                _bounded(broadcast_element(index, own), extent)
                for index, extent in zip(indices, data.shape, strict=False)
            ]
            return data(*found, *at[len(shape) :])

        whole = (*shape, *data.shape[len(indices) :])
        return te.compute(whole, element, name="index_tensor")

    return builder.call_te(loops, call.args[0], *given, primfunc_name_hint="index_tensor")


def broadcast_shape(shapes: Sequence[Any]) -> tuple[int, ...]:
    """NumPy's shape of several shapes.

    Raises:
        ValueError: there is none.
    """
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(map(int, shape)) for shape in shapes]
    found = []
    for extents in zip(*padded, strict=True):
        wide = {extent for extent in extents if extent != 1}
        if len(wide) > 1:
            raise ValueError(f"shapes {shapes} cannot be broadcast together")
        found.append(wide.pop() if wide else 1)
    return tuple(found)


def broadcast_element(tensor: te.Tensor, at: Sequence[Any]) -> Any:
    """The element of a tensor at an index of the shape that it is broadcast to."""
    own = at[len(at) - len(tensor.shape) :]
    pairs = zip(own, tensor.shape, strict=True)
    return tensor(*(number(0) if int(extent) == 1 else index for index, extent in pairs))


def _bounded(index: Any, extent: Any) -> Any:
    """An index counted from the end if negative, and moved into the tensor."""
    return clamped(counted_from_end(index, extent), extent)


def _check_elements(extent: Any) -> None:
    """Refuse to read along a dimension without elements."""
    if isinstance(extent, tirx.IntImm) and int(extent) == 0:
        raise ValueError("there is nothing to read along a dimension without elements")
