"""Group and instance norms: layer norms of groups of channels.

Loops over groups and the channels of each, where TVM's are over channels::

    for n, g, c, s: sum[n, g] += x[n, g, c, s]
    for n, g, c, s: squares[n, g] += (x[n, g, c, s] - sum[n, g] / length) ** 2
    for n, g, c, s: y[n, g, c, s] = (x - mean) / sqrt(variance + epsilon) * gamma + beta

The tensors are views of four dimensions: samples, groups, channels of a group, and the rest; so
that a row of the schedule rule for norms is what shares a mean. Half precision is computed in
float32.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te, tirx
from tvm.ir import Op

from tvm_tile.loops.rows import number

_WIDE = {"float16": "float32", "bfloat16": "float32"}


def group_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.nn.group_norm``."""
    return _norm(builder, call, int(call.attrs.num_groups))


def instance_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.nn.instance_norm``: each channel is a group."""
    channels = int(call.args[0].ty.shape[int(call.attrs.channel_axis)])
    return _norm(builder, call, channels)


def _norm(builder: relax.BlockBuilder, call: relax.Call, groups: int) -> relax.Expr:
    x, gamma, beta = call.args
    shape = [int(extent) for extent in x.ty.shape]
    rank = len(shape)
    summed = sorted(int(axis) % rank for axis in call.attrs.axes)
    if int(call.attrs.channel_axis) % rank != 1 or summed != list(range(2, rank)):
        # Of channels elsewhere, and of groups that leave an axis out, TVM knows.
        return Op.get(call.op.name).get_attr("FLegalize")(builder, call)
    batch, channels, *rest = shape
    each, size = channels // groups, math.prod(rest)
    view = builder.emit(relax.op.reshape(x, [batch, groups, each, size]))
    scale, shift = (builder.emit(relax.op.reshape(own, [groups, each, 1])) for own in (gamma, beta))
    name, epsilon = str(call.op.name).rpartition(".")[2], float(call.attrs.epsilon)
    found = builder.call_te(_loops, view, scale, shift, epsilon, primfunc_name_hint=name)
    return relax.op.reshape(builder.emit(found), shape)


def _loops(x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, epsilon: float) -> te.Tensor:
    dtype = str(x.dtype)
    wide = _WIDE.get(dtype, dtype)
    each, size = (int(extent) for extent in x.shape[2:])
    length = tirx.const(each * size, wide)

    def total(name: str, element: Any) -> te.Tensor:
        axes = [te.reduce_axis((0, x.shape[place]), f"k{place}") for place in (2, 3)]
        return te.compute(
            x.shape[:2],
            lambda n, g: te.sum(element(n, g, *(axis.var for axis in axes)), axis=axes),
            name=name,
        )

    def value(*at: Any) -> Any:
        return tirx.Cast(wide, x(*at))

    sums = total("sums", value)

    def difference(*at: Any) -> Any:
        return value(*at) - sums(*at[:2]) / length

    squares = total("squares", lambda *at: difference(*at) * difference(*at))
    zero = number(0)

    def normalized(n: Any, g: Any, c: Any, s: Any) -> Any:
        own = tirx.rsqrt(squares(n, g) / length + tirx.const(epsilon, wide))
        scaled = difference(n, g, c, s) * own * tirx.Cast(wide, gamma(g, c, zero))
        return tirx.Cast(dtype, scaled + tirx.Cast(wide, beta(g, c, zero)))

    return te.compute(x.shape, normalized, name="normalized")
