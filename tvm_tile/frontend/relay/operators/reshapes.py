"""Operators of Relay that keep all elements in one order, or permute axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tvm_tile.frontend.ops.values import shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.layouts import relayout
from tvm_tile.frontend.relay.operators.padding import padded
from tvm_tile.frontend.relay.operators.reshape_codes import (
    target_like,
    target_shape,
    with_ones,
    without_ones,
)
from tvm_tile.frontend.relay.values import counted_axes


def _reshape(call: OperatorCall, x: Value, *target: Value) -> Value:
    """The same elements in a shape that an attribute or an argument says in codes."""
    shape, zero = shape_of(x), bool(call.attributes.get("allowzero"))
    codes = call.parameter(1, "a shape").ravel() if target else call.attributes["newshape"]
    codes = [int(code) for code in codes]
    if call.name != "contrib_reverse_reshape":
        return call.reshaped(x, target_shape(shape, codes, zero_is_extent=zero))
    if -4 in codes:
        raise NotImplementedError("extents that are split from the right")
    return call.reshaped(x, target_shape(shape[::-1], codes[::-1], zero_is_extent=zero)[::-1])


def _reshape_like(call: OperatorCall, x: Value, like: Value) -> Value:
    given = call.attributes
    own, other = ((given.get(f"{s}_begin") or 0, given.get(f"{s}_end")) for s in ("lhs", "rhs"))
    return call.reshaped(x, target_like(shape_of(x), shape_of(like), own, other))


def _squeeze(call: OperatorCall, x: Value, *, axis: Sequence[int] | None) -> Value:
    return call.reshaped(x, without_ones(shape_of(x), axis))


def _expand_dims(call: OperatorCall, x: Value, *, axis: int, num_newaxis: int) -> Value:
    return call.reshaped(x, with_ones(shape_of(x), axis, num_newaxis))


def _transpose(call: OperatorCall, x: Value, *, axes: Sequence[int] | None) -> Value:
    """The tensor with its axes in another order; reversed where none are named."""
    rank = len(shape_of(x))
    order = counted_axes(tuple(axes), rank) if axes else tuple(reversed(range(rank)))
    if len(order) != rank:
        raise ValueError(f"axes {order} of a tensor of {rank} dimensions")
    return call.permuted(x, order)


def _batch_flatten(call: OperatorCall, x: Value) -> Value:
    rows, *rest = shape_of(x)
    return call.reshaped(x, (rows, math.prod(rest)))


def _layout_transform(call: OperatorCall, x: Value, *, src_layout: str, dst_layout: str) -> Value:
    return relayout(call, x, src_layout, dst_layout)


def _depth_to_space(
    call: OperatorCall, x: Value, *, block_size: int, layout: str, mode: str
) -> Value:
    """Channels become places of a block: ``DCR`` has the block outermost in a channel's number."""
    size = block_size
    x = relayout(call, x, layout, "NCHW")
    n, c, h, w = shape_of(x)
    if mode == "DCR":
        x = call.reshaped(x, (n, size, size, c // size**2, h, w))
        x = call.permuted(x, (0, 3, 4, 1, 5, 2))
    elif mode == "CRD":
        x = call.reshaped(x, (n, c // size**2, size, size, h, w))
        x = call.permuted(x, (0, 1, 4, 2, 5, 3))
    else:
        raise ValueError(f"mode {mode!r}")
    x = call.reshaped(x, (n, c // size**2, h * size, w * size))
    return relayout(call, x, "NCHW", layout)


def _space_to_depth(call: OperatorCall, x: Value, *, block_size: int, layout: str) -> Value:
    made = blocks_as_channels(call, relayout(call, x, layout, "NCHW"), block_size)
    return relayout(call, made, "NCHW", layout)


def blocks_as_channels(call: OperatorCall, x: Value, size: int) -> Value:
    """An image [n, c, h, w], the places of whose blocks become channels, the block outermost."""
    n, c, h, w = shape_of(x)
    x = call.reshaped(x, (n, c, h // size, size, w // size, size))
    x = call.permuted(x, (0, 3, 5, 1, 2, 4))
    return call.reshaped(x, (n, c * size**2, h // size, w // size))


def _space_to_batch(call: OperatorCall, x: Value, *, block_shape: Sequence[int]) -> Value:
    """Places of blocks become batches, the block outermost in a batch's number."""
    m, attributes = len(block_shape), call.attributes
    x = padded(call, x, [(0, 0), *attributes["paddings"]], float(attributes["pad_value"]))
    batches, *extents = shape_of(x)
    rest = extents[m:]
    blocks = [e // s for e, s in zip(extents, block_shape, strict=False)]
    pairs = zip(blocks, block_shape, strict=True)
    x = call.reshaped(x, [batches, *itertools.chain.from_iterable(pairs), *rest])
    order = [*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m, 2)]
    x = call.permuted(x, [*order, *range(2 * m + 1, 2 * m + 1 + len(rest))])
    return call.reshaped(x, [batches * math.prod(block_shape), *blocks, *rest])


def _batch_to_space(
    call: OperatorCall, x: Value, *, block_shape: Sequence[int], crops: Sequence[tuple[int, int]]
) -> Value:
    m, (batches, *extents) = len(block_shape), shape_of(x)
    blocks, rest = extents[:m], extents[m:]
    outer = batches // math.prod(block_shape)
    x = call.reshaped(x, [*block_shape, outer, *blocks, *rest])
    order = [m, *itertools.chain.from_iterable((m + 1 + i, i) for i in range(m))]
    x = call.permuted(x, [*order, *range(2 * m + 1, 2 * m + 1 + len(rest))])
    whole = [b * s for b, s in zip(blocks, block_shape, strict=True)]
    x = call.reshaped(x, [outer, *whole, *rest])
    parts = [range(low, e - high) for e, (low, high) in zip(whole, crops, strict=True)]
    return call.sliced(x, [range(outer), *parts, *(range(extent) for extent in rest)])


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("reshape", "dyn.reshape", "contrib_reverse_reshape"), _reshape),
    "reshape_like": _reshape_like,
    "squeeze": _squeeze,
    "expand_dims": _expand_dims,
    "transpose": _transpose,
    "nn.batch_flatten": _batch_flatten,
    "layout_transform": _layout_transform,
    "nn.depth_to_space": _depth_to_space,
    "nn.space_to_depth": _space_to_depth,
    "nn.space_to_batch_nd": _space_to_batch,
    "nn.batch_to_space_nd": _batch_to_space,
}
