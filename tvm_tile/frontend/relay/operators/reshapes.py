"""Operators of Relay that keep all elements in one order, or permute axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.layouts import relayout
from tvm_tile.frontend.relay.operators.padding import padded
from tvm_tile.frontend.relay.operators.reshape_codes import (
    target_like,
    target_shape,
    with_ones,
    without_ones,
)
from tvm_tile.frontend.relay.values import (
    counted_axes,
    permuted,
    reshaped,
    shape_of,
    sliced,
)


def reshape_target(call: OperatorCall) -> tuple[int, ...]:
    """The shape that ``reshape``, ``dyn.reshape`` or ``contrib_reverse_reshape`` makes.

    Raises:
        NotImplementedError: it is known only at run time.
    """
    shape = shape_of(call.arguments[0])
    if call.name == "dyn.reshape" or len(call.arguments) > 1:
        codes = call.parameter(1, "a shape").reshape(-1).tolist()
    else:
        codes = [int(code) for code in call.attributes["newshape"]]
    zero_is_extent = bool(call.attributes.get("allowzero"))
    if call.name != "contrib_reverse_reshape":
        return target_shape(shape, codes, zero_is_extent=zero_is_extent)
    if -4 in codes:
        raise NotImplementedError("extents that are split from the right")
    return target_shape(shape[::-1], codes[::-1], zero_is_extent=zero_is_extent)[::-1]


def _reshape(call: OperatorCall) -> Value:
    return reshaped(call, call.arguments[0], reshape_target(call))


def _reshape_like(call: OperatorCall) -> Value:
    x, like = call.arguments
    begin, end, first, last = (
        call.attributes.get(f"{side}_{bound}")
        for side in ("lhs", "rhs")
        for bound in ("begin", "end")
    )
    shape = target_like(shape_of(x), shape_of(like), (begin or 0, end), (first or 0, last))
    return reshaped(call, x, shape)


def _squeeze(call: OperatorCall) -> Value:
    (x,) = call.arguments
    return reshaped(call, x, without_ones(shape_of(x), call.attributes["axis"]))


def _expand_dims(call: OperatorCall) -> Value:
    (x,) = call.arguments
    axis, count = (int(call.attributes[name]) for name in ("axis", "num_newaxis"))
    return reshaped(call, x, with_ones(shape_of(x), axis, count))


def _transpose(call: OperatorCall) -> Value:
    (x,) = call.arguments
    return permuted(call, x, transposed_axes(len(shape_of(x)), call.attributes["axes"]))


def transposed_axes(rank: int, axes: Sequence[int] | None) -> tuple[int, ...]:
    """The order of axes that a transpose asks for; reversed where it names none.

    Raises:
        ValueError: it names some axes only.
    """
    if not axes:
        return tuple(reversed(range(rank)))
    found = counted_axes(tuple(axes), rank)
    if len(found) != rank:
        raise ValueError(f"axes {list(axes)} of a tensor of {rank} dimensions")
    return found


def _batch_flatten(call: OperatorCall) -> Value:
    (x,) = call.arguments
    rows, *rest = shape_of(x)
    return reshaped(call, x, (rows, math.prod(rest)))


def _layout_transform(call: OperatorCall) -> Value:
    source, target = (str(call.attributes[f"{side}_layout"]) for side in ("src", "dst"))
    return relayout(call, call.arguments[0], source, target)


def _depth_to_space(call: OperatorCall) -> Value:
    """Channels become places of a block: ``DCR`` has the block outermost in a channel's number."""
    (x,) = call.arguments
    size, layout = int(call.attributes["block_size"]), str(call.attributes["layout"])
    x = relayout(call, x, layout, "NCHW")
    n, c, h, w = shape_of(x)
    mode = call.attributes["mode"]
    if mode == "DCR":
        x = reshaped(call, x, (n, size, size, c // size**2, h, w))
        x = permuted(call, x, (0, 3, 4, 1, 5, 2))
    elif mode == "CRD":
        x = reshaped(call, x, (n, c // size**2, size, size, h, w))
        x = permuted(call, x, (0, 1, 4, 2, 5, 3))
    else:
        raise ValueError(f"mode {mode!r}")
    x = reshaped(call, x, (n, c // size**2, h * size, w * size))
    return relayout(call, x, "NCHW", layout)


def _space_to_depth(call: OperatorCall) -> Value:
    (x,) = call.arguments
    size, layout = int(call.attributes["block_size"]), str(call.attributes["layout"])
    x = relayout(call, x, layout, "NCHW")
    n, c, h, w = shape_of(x)
    x = reshaped(call, x, (n, c, h // size, size, w // size, size))
    x = permuted(call, x, (0, 3, 5, 1, 2, 4))
    x = reshaped(call, x, (n, c * size**2, h // size, w // size))
    return relayout(call, x, "NCHW", layout)


def _space_to_batch(call: OperatorCall) -> Value:
    """Places of blocks become batches, the block outermost in a batch's number."""
    (x,) = call.arguments
    sizes = [int(size) for size in call.attributes["block_shape"]]
    pads = [(int(low), int(high)) for low, high in call.attributes["paddings"]]
    m = len(sizes)
    x = padded(call, x, [(0, 0), *pads], float(call.attributes["pad_value"]))
    batches, *extents = shape_of(x)
    rest = extents[m:]
    blocks = [e // s for e, s in zip(extents, sizes, strict=False)]
    pairs = list(zip(blocks, sizes, strict=True))
    x = reshaped(call, x, [batches, *itertools.chain.from_iterable(pairs), *rest])
    order = [*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m, 2)]
    x = permuted(call, x, [*order, *range(2 * m + 1, 2 * m + 1 + len(rest))])
    return reshaped(call, x, [batches * math.prod(sizes), *blocks, *rest])


def _batch_to_space(call: OperatorCall) -> Value:
    (x,) = call.arguments
    sizes = [int(size) for size in call.attributes["block_shape"]]
    crops = [(int(low), int(high)) for low, high in call.attributes["crops"]]
    m, (batches, *extents) = len(sizes), shape_of(x)
    blocks, rest = extents[:m], extents[m:]
    outer = batches // math.prod(sizes)
    x = reshaped(call, x, [*sizes, outer, *blocks, *rest])
    pairs = [(m + 1 + i, i) for i in range(m)]
    order = [m, *itertools.chain.from_iterable(pairs)]
    x = permuted(call, x, [*order, *range(2 * m + 1, 2 * m + 1 + len(rest))])
    whole = [b * s for b, s in zip(blocks, sizes, strict=True)]
    x = reshaped(call, x, [outer, *whole, *rest])
    parts = [range(low, e - high) for e, (low, high) in zip(whole, crops, strict=True)]
    return sliced(call, x, [range(outer), *parts, *(range(extent) for extent in rest)])


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
