"""Writing at indices where updates are joined with what is there: ``scatter_reduce`` and its kin.

As in :mod:`tvm_tile.frontend.torch.operators.scattering`, each element of the result looks for
its updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tvm import relax, te, tirx

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, axis_of, dtype_of, shape_of
from tvm_tile.frontend.torch.operators.scattering import is_update, operands, sum_dtype, update_at
from tvm_tile.loops.keys import extreme_key, extreme_of_key, key_bits


def _scatter_with(
    emit: Emit, x: relax.Expr, dim: int, index: relax.Expr, src: relax.Expr, reduce: str
) -> relax.Expr:
    return _scatter_reduce(emit, x, dim, index, src, _NAMES[reduce])


def _scatter_value_with(
    emit: Emit, x: relax.Expr, dim: int, index: relax.Expr, value: float, reduce: str
) -> relax.Expr:
    src = emit.operand(value, dtype_of(x))
    return _scatter_reduce(emit, x, dim, index, src, _NAMES[reduce])


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
    reduce: str = "sum",
    include_self: bool = True,
) -> relax.Expr:
    """Each element joined with all its updates; without itself where it has any, if so asked."""
    x, src, index, axis = operands(emit, x, dim, src, index)
    if 0 in (*shape_of(index), *shape_of(x)):
        return emit.reshape(x, emit.shape)
    wide, is_integer = sum_dtype(x), not dtype_of(x).is_floating_point
    join = _JOINED[reduce](wide)
    counted = _numbers(emit, x, index, axis) if reduce == "mean" or not include_self else None
    given = (x, src, index) if counted is None else (x, src, index, counted)

    def loops(
        data: te.Tensor, updates: te.Tensor, table: te.Tensor, *counts: te.Tensor
    ) -> te.Tensor:
        def update(at: Sequence[Any], k: Any) -> Any:
            value = join.element(update_at(updates, axis, at, k).astype(wide))
            return tirx.Select(is_update(table, axis, at, k), value, join.neutral)

        joined = _over_updates(data.shape, table.shape[axis], "joined", join.reducer, update)

        def body(*at: Any) -> Any:
            own = data(*at).astype(wide)
            made = join.result(joined(*at), own if include_self else None)
            for count in counts:
                number = count(*at)
                if reduce == "mean":
                    # PyTorch adds up in the type itself.
                    total = made.astype(str(data.dtype)).astype(wide) if is_integer else made
                    made = _mean(total, number + 1 if include_self else number)
                made = tirx.Select(number > 0, made, own)
            return _narrow(made, str(data.dtype))

        return te.compute(data.shape, body, name="scatter_reduce")

    return emit.reshape(emit.te(loops, *given, name="scatter_reduce"), emit.shape)


def _numbers(emit: Emit, x: relax.Expr, index: relax.Expr, axis: int) -> relax.Expr:
    """How many updates each element has; by a kernel of its own, as kernels have one reduction."""

    def loops(data: te.Tensor, table: te.Tensor) -> te.Tensor:
        def update(at: Sequence[Any], k: Any) -> Any:
            return tirx.Cast("int32", is_update(table, axis, at, k))

        return _over_updates(data.shape, table.shape[axis], "counts", te.sum, update)

    return emit(emit.te(loops, x, index, name="updates_of_each"))


def _over_updates(
    shape: Sequence[Any], count: Any, name: str, reducer: Any, update: Callable[..., Any]
) -> te.Tensor:
    """What ``reducer`` makes of ``update(at, k)`` for all ``k``, at each place of a shape."""
    along = te.reduce_axis((0, count), "k")
    return te.compute(shape, lambda *at: reducer(update(at, along.var), axis=along), name=name)


def _narrow(value: Any, dtype: str) -> Any:
    return value != 0 if dtype == "bool" else value.astype(dtype)


def _mean(total: Any, count: Any) -> Any:
    dtype = str(total.ty.dtype)
    count = tirx.max(count, tirx.const(1, "int32")).astype(dtype)
    return total / count if "float" in dtype else tirx.floordiv(total, count)


@dataclass(frozen=True, slots=True)
class _Join:
    """How an element and its updates become one.

    Attributes:
        reducer: of updates' elements.
        neutral: which changes none of these.
        element: of an update.
        result: of what the reducer makes of all updates, and of the element's own value, ``None``
            where that takes no part.
    """

    reducer: Any
    neutral: Any
    element: Callable[[Any], Any]
    result: Callable[[Any, Any], Any]


def _sum(wide: str) -> _Join:
    def result(total: Any, own: Any) -> Any:
        return total if own is None else own + total

    return _Join(te.sum, tirx.const(0, wide), lambda value: value, result)


def _product(wide: str) -> _Join:
    one = tirx.const(1, wide)
    multiply = te.comm_reducer(lambda a, b: a * b, lambda _: one, name="product")

    def result(total: Any, own: Any) -> Any:
        return total if own is None else own * total

    return _Join(multiply, one, lambda value: value, result)


def _extreme(*, largest: bool) -> Callable[[str], _Join]:
    """The largest or the smallest; NaN where one takes part: integers are so ordered."""

    def key(value: Any) -> Any:
        return extreme_key(value, largest=largest)

    def join(wide: str) -> _Join:
        def result(best: Any, own: Any) -> Any:
            value = extreme_of_key(best, wide, largest=largest)
            return value if own is None else tirx.Select(best > key(own), value, own)

        return _Join(te.max, tirx.min_value(f"int{key_bits(wide)}"), key, result)

    return join


_JOINED: dict[str, Callable[[str], _Join]] = {
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
    **overloads(_scatter_reduce, _ATEN.scatter_add.default, _ATEN.scatter_reduce.two),
    _ATEN.index_reduce.default: _index_reduce,
}
