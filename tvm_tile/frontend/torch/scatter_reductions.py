"""Writing at indices where updates are joined with what is there: ``scatter_reduce`` and its kin.

As in :mod:`tvm_tile.frontend.torch.scattering`, each element of the result looks for its updates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import relax, te, tirx

from tvm_tile.frontend.torch.convert import Converters
from tvm_tile.frontend.torch.emit import Emit, axis_of, dtype_of, shape_of
from tvm_tile.frontend.torch.scattering import is_update, operands, sum_dtype, update_at
from tvm_tile.loops.keys import is_nan


def _scatter_add(
    emit: Emit, x: relax.Expr, dim: int, index: relax.Expr, src: relax.Expr
) -> relax.Expr:
    return _scatter_reduce(emit, x, dim, index, src, "sum", True)


def _scatter_with(
    emit: Emit, x: relax.Expr, dim: int, index: relax.Expr, src: relax.Expr, reduce: str
) -> relax.Expr:
    return _scatter_reduce(emit, x, dim, index, src, _NAMES[reduce], True)


def _scatter_value_with(
    emit: Emit, x: relax.Expr, dim: int, index: relax.Expr, value: float, reduce: str
) -> relax.Expr:
    src = emit.operand(value, dtype_of(x))
    return _scatter_reduce(emit, x, dim, index, src, _NAMES[reduce], True)


_NAMES = {"add": "sum", "multiply": "prod"}


def _index_reduce(
    emit: Emit,
    x: relax.Expr,
    dim: int,
    index: relax.Expr,
    source: relax.Expr,
    reduce: str,
    include_self: bool,
) -> relax.Expr:
    shape = shape_of(source) or (1,)
    axis = axis_of(dim, len(shape))
    column = emit.reshape(index, [shape[i] if i == axis else 1 for i in range(len(shape))])
    wide = emit(relax.op.broadcast_to(column, shape)) if 0 not in shape else index
    if 0 in shape:
        return x
    return _scatter_reduce(emit, x, dim, wide, source, reduce, include_self)


def _scatter_reduce(
    emit: Emit,
    x: relax.Expr,
    dim: int,
    index: relax.Expr,
    src: relax.Expr,
    reduce: str,
    include_self: bool,
) -> relax.Expr:
    """Each element joined with all its updates; without itself where it has any, if so asked."""
    x, src, index, axis = operands(emit, x, dim, src, index)
    if 0 in (*shape_of(index), *shape_of(x)):
        return emit.reshape(x, emit.shape)
    wide = sum_dtype(x)

    def loops(data: te.Tensor, updates: te.Tensor, table: te.Tensor) -> te.Tensor:
        def reduction(name: str, reducer: Any, neutral: Any, value: Callable[[Any], Any]) -> Any:
            along = te.reduce_axis((0, table.shape[axis]), "k")

            def body(*at: Any) -> Any:
                found = is_update(table, axis, at, along.var)
                update = value(update_at(updates, axis, at, along.var).astype(wide))
                return reducer(tirx.Select(found, update, neutral), axis=along)

            return te.compute(data.shape, body, name=name)

        joined = _JOINED[reduce](reduction, wide)
        if include_self and reduce != "mean":
            count = None
        else:
            zero = tirx.const(0, "int32")
            count = reduction("counts", te.sum, zero, lambda _: tirx.const(1, "int32"))

        def body(*at: Any) -> Any:
            own = data(*at).astype(wide)
            with_own = joined(at, own)
            if count is None:
                return _narrow(with_own, str(data.dtype))
            number = count(*at)
            alone = with_own if include_self else joined(at, None)
            if reduce == "mean":
                alone = _mean(alone, number + 1 if include_self else number)
            return _narrow(tirx.Select(number > 0, alone, own), str(data.dtype))

        return te.compute(data.shape, body, name="scatter_reduce")

    return emit.reshape(emit.te(loops, x, src, index, name="scatter_reduce"), emit.shape)


def _narrow(value: Any, dtype: str) -> Any:
    return value != 0 if dtype == "bool" else value.astype(dtype)


def _mean(total: Any, count: Any) -> Any:
    dtype = str(total.ty.dtype)
    count = tirx.max(count, tirx.const(1, "int32")).astype(dtype)
    return total / count if "float" in dtype else tirx.floordiv(total, count)


# From a position and the element's own value, if it takes part, to what all updates make of it.
_Join = Callable[[Sequence[Any], Any], Any]


def _sum(reduction: Callable[..., Any], wide: str) -> _Join:
    total = reduction("sums", te.sum, tirx.const(0, wide), lambda value: value)
    return lambda at, own: total(*at) if own is None else own + total(*at)


def _product(reduction: Callable[..., Any], wide: str) -> _Join:
    one = tirx.const(1, wide)
    multiply = te.comm_reducer(lambda a, b: a * b, lambda _: one, name="product")
    total = reduction("products", multiply, one, lambda value: value)
    return lambda at, own: total(*at) if own is None else own * total(*at)


def _extreme(*, largest: bool) -> Callable[[Callable[..., Any], str], _Join]:
    """The largest or the smallest; NaN where one takes part."""
    better = tirx.max if largest else tirx.min

    def join(reduction: Callable[..., Any], wide: str) -> _Join:
        is_float = "float" in wide
        worst = _worst(wide, largest=largest)
        reducer = te.comm_reducer(lambda a, b: better(a, b), lambda _: worst, name="extreme")
        if not is_float:
            best = reduction("extremes", reducer, worst, lambda value: value)
            return lambda at, own: best(*at) if own is None else better(own, best(*at))
        number = lambda value: tirx.Select(is_nan(value), worst, value)  # noqa: E731
        best = reduction("extremes", reducer, worst, number)
        zero = tirx.const(0, "int32")
        flags = reduction("undefined", te.max, zero, lambda v: tirx.Cast("int32", is_nan(v)))
        nan = tirx.const(math.nan, wide)

        def joined(at: Sequence[Any], own: Any) -> Any:
            if own is None:
                return tirx.Select(flags(*at) > 0, nan, best(*at))
            undefined = tirx.any(flags(*at) > 0, is_nan(own))
            return tirx.Select(undefined, nan, better(own, best(*at)))

        return joined

    return join


def _worst(dtype: str, *, largest: bool) -> Any:
    if "float" in dtype:
        return tirx.const(-math.inf if largest else math.inf, dtype)
    return tirx.min_value(dtype) if largest else tirx.max_value(dtype)


_JOINED: dict[str, Callable[[Callable[..., Any], str], _Join]] = {
    "sum": _sum,
    "mean": _sum,
    "prod": _product,
    "amax": _extreme(largest=True),
    "amin": _extreme(largest=False),
}


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    _ATEN.scatter.reduce: _scatter_with,
    _ATEN.scatter.value_reduce: _scatter_value_with,
    _ATEN.scatter_add.default: _scatter_add,
    _ATEN.scatter_reduce.two: _scatter_reduce,
    _ATEN.index_reduce.default: _index_reduce,
}
