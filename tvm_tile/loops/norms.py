"""Group and instance norms: layer norms of groups of channels.

Sums of groups, where TVM's are of channels; each tensor has its own shape::

    for n, g, c, y, x: sum[n, g] += X[n, g * 8 + c, y, x]
    for n, g, c, y, x: squares[n, g] += (X[n, g * 8 + c, y, x] - sum[n, g] / length) ** 2
    for n, c, y, x: Y[n, c, y, x] = (X - mean[n, c // 8]) * rsqrt(...) * gamma[c] + beta[c]

so that a row of the schedule rule for norms is what shares a mean. Channels may be any axis but the
first: where layouts were changed for convolutions, they are the last. Half precision is computed in
float32.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te, tirx
from tvm.ir import Op

_WIDE = {"float16": "float32", "bfloat16": "float32"}


def group_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Write ``relax.nn.group_norm`` as loops."""
    return _norm(builder, call, int(call.attrs.num_groups))


def instance_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.nn.instance_norm``: each channel is a group."""
    channels = int(call.args[0].ty.shape[int(call.attrs.channel_axis)])
    return _norm(builder, call, channels)


def _norm(builder: relax.BlockBuilder, call: relax.Call, groups: int) -> relax.Expr:
    """Loops of a norm over groups of channels."""
    x, gamma, beta = call.args
    rank = len(x.ty.shape)
    channels = int(call.attrs.channel_axis) % rank
    summed = {int(axis) % rank for axis in call.attrs.axes}
    if not channels or summed != set(range(1, rank)) - {channels}:
        # Of channels that are the first axis, and of groups that leave one out, TVM knows.
        return Op.get(call.op.name).get_attr("FLegalize")(builder, call)
    name, epsilon = str(call.op.name).rpartition(".")[2], float(call.attrs.epsilon)
    return builder.call_te(
        _loops, x, gamma, beta, channels, groups, epsilon, primfunc_name_hint=name
    )


def _loops(
    x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, channels: int, groups: int, epsilon: float
) -> te.Tensor:
    """Mean, variance and normalized values of groups of channels."""
    batch, *rest = (int(extent) for extent in x.shape)
    each = rest.pop(channels - 1) // groups
    dtype = str(x.dtype)
    wide = _WIDE.get(dtype, dtype)
    length = tirx.const(each * math.prod(rest), wide)

    def value(n: Any, c: Any, *place: Any) -> Any:
        return tirx.Cast(wide, x(n, *place[: channels - 1], c, *place[channels - 1 :]))

    def total(name: str, element: Any) -> te.Tensor:
        within = [each, *rest] if each > 1 else rest
        axes = [te.reduce_axis((0, extent), f"k{at}") for at, extent in enumerate(within)]

        def of_group(n: Any, g: Any) -> Any:
            place = [axis.var for axis in axes]
            own = [g * each + place[0], *place[1:]] if each > 1 else [g, *place]
            return te.sum(element(n, g, *own), axis=axes)

        return te.compute((batch, groups), of_group, name=name)

    sums = total("sums", lambda n, g, *own: value(n, *own))

    def difference(n: Any, g: Any, *own: Any) -> Any:
        return value(n, *own) - sums(n, g) / length

    squares = total("squares", lambda *at: difference(*at) * difference(*at))

    def normalized(n: Any, *at: Any) -> Any:
        c, place = at[channels - 1], (*at[: channels - 1], *at[channels:])
        g = c // each if each > 1 else c
        own = tirx.rsqrt(squares(n, g) / length + tirx.const(epsilon, wide))
        scaled = difference(n, g, c, *place) * own * tirx.Cast(wide, gamma(c))
        return tirx.Cast(dtype, scaled + tirx.Cast(wide, beta(c)))

    return te.compute(x.shape, normalized, name="normalized")
