"""A softmax one of whose rows' elements has no value behind it: a sink.

::

    most[i] = max(most[i], x[i, k]);  top[i] = max(most[i], sink[i])
    total[i] += exp(x[i, k] - top[i])
    y[i, k] = exp(x[i, k] - top[i]) / (total[i] + exp(sink[i] - top[i]))

Rows are as long as what is weighed, not one longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

# Beside a score as high as this one those that models hide by a number weigh nothing.
LEAST_SINK = -(2.0**14)


def softmax_with_sink(x: te.Tensor, sink: te.Tensor, least: float | None = None) -> te.Tensor:
    """The softmax along the last axis of ``x``, each of whose rows has one more element.

    Args:
        x: ``[..., keys]``, of a float type.
        sink: the rows' last elements, ``[..., 1]``, of the same type.
        least: no sink is below it, which the loops then say; ``None``: nobody knows.

    Returns:
        The weights of ``x``, in its shape and type.
    """
    *rows, keys = x.shape

    def own_sink(*at: Any) -> Any:
        value = sink(*at, 0)
        return value if least is None else te.max(value, tirx.const(least, str(sink.dtype)))

    def along(reduce: Callable[..., Any], value: te.Tensor, name: str) -> te.Tensor:
        k = te.reduce_axis((0, keys), "k")
        return te.compute(rows, lambda *at: reduce(value(*at, k), axis=k), name=name)

    most = along(te.max, x, "most")
    top = te.compute(rows, lambda *at: te.max(most(*at), own_sink(*at)), name="top")
    power = te.compute(x.shape, lambda *at: te.exp(x(*at) - top(*at[:-1])), name="power")
    total = along(te.sum, power, "total")
    own = te.compute(rows, lambda *at: te.exp(own_sink(*at) - top(*at)), name="own")
    whole = te.compute(rows, lambda *at: total(*at) + own(*at), name="whole")
    return te.compute(x.shape, lambda *at: power(*at) / whole(*at[:-1]), name="weight")
