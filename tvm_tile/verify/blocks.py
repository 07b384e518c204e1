"""Evaluation of unscheduled functions in NumPy: block by block, all places of one at once.

A reference of its own: nothing of TVM's code generation, nor of ours, takes part. Sums are added up
in float64, or in int64 and wrapped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from tvm_tile.graph.expression import is_load_of, loads_of
from tvm_tile.graph.functions import is_tensor
from tvm_tile.runtime.arrays import numpy_dtype
from tvm_tile.verify.compare import Argument, Array, is_float
from tvm_tile.verify.expressions import Known, NotEvaluatedError

_AT_ONCE = 1 << 24  # numbers of an intermediate tensor
_MOST_STEPS = 1 << 14  # of a reduction that is none of NumPy's
_REDUCTIONS = {tirx.Max: np.maximum, tirx.Min: np.minimum, tirx.Mul: np.multiply}


def evaluated(func: tirx.PrimFunc, arguments: Sequence[Argument]) -> list[Array]:
    """Copies of the arguments as an unscheduled function leaves them.

    Args:
        func: blocks one behind the other.
        arguments: arguments in the order of its parameters; numbers are values of open extents.

    Raises:
        NotEvaluatedError: the function has loops written by hand, or calls a function that is not
            known here.
    """
    given = [np.array(argument) for argument in arguments]
    values = _extents(func, arguments)
    tensors: dict[Any, Array] = {
        param: array for param, array in zip(func.params, given, strict=True) if is_tensor(param)
    }
    scope = Known(tensors, values, {}, 0)
    body = func.body
    if isinstance(body, SBlockRealize) and body.block.name_hint == "root":
        for buffer in body.block.alloc_buffers:
            shape = tuple(int(scope(extent)) for extent in buffer.ty.shape)
            tensors[buffer] = np.zeros(shape, numpy_dtype(str(buffer.ty.dtype)))
        body = body.block.body
    with np.errstate(all="ignore"):
        for statement in body if isinstance(body, tirx.SeqStmt) else [body]:
            _run(_block_of(statement), scope)
    return given


def _extents(func: tirx.PrimFunc, arguments: Sequence[Argument]) -> dict[Any, Array]:
    """The values of a function's variables."""
    values: dict[Any, Array] = {}
    for param, argument in zip(func.params, arguments, strict=True):
        named = zip(param.ty.shape, np.shape(argument), strict=True) if is_tensor(param) else ()
        for var, value in (*named, *(() if is_tensor(param) else [(param, argument)])):
            if isinstance(var, tirx.Var):
                values.setdefault(var, np.asarray(value, np.int64))
    return values


def _block_of(statement: Any) -> SBlock:
    """The block that a statement runs for all of its places."""
    loops: dict[Any, tirx.For] = {}
    while isinstance(statement, tirx.For):
        loops[statement.loop_var] = statement
        statement = statement.body
    if not isinstance(statement, SBlockRealize) or not _is_one(statement.predicate):
        raise NotEvaluatedError("loops that are no block's")
    for own, value in zip(statement.block.iter_vars, statement.iter_values, strict=True):
        loop = loops.pop(value, None) if isinstance(value, tirx.Var) else None
        is_whole = loop is not None and tvm_ffi.structural_equal(
            (loop.min, loop.extent), (own.dom.min, own.dom.extent)
        )
        if not is_whole and not _is_one(own.dom.extent):
            raise NotEvaluatedError("a block that runs through its places in another order")
    if not all(_is_one(loop.extent) for loop in loops.values()):
        raise NotEvaluatedError("a block that runs several times")
    return statement.block


def _is_one(expr: Any) -> bool:
    """Whether an extent is known to be 1."""
    return isinstance(expr, tirx.IntImm) and int(expr) == 1


def _run(block: SBlock, scope: Known) -> None:
    """Run a block, in parts where its values are too many for one."""
    axes = list(block.iter_vars)
    extents = [int(scope(own.dom.extent)) for own in axes]
    if 0 in extents:
        raise NotEvaluatedError("loops over nothing")
    summed = [own.iter_type != tirx.IterVar.DataPar for own in axes]
    factors = _factors(block) if any(summed) else None
    sizes = {own.var: extent for own, extent in zip(axes, extents, strict=True)}
    largest = max(_size(part, sizes) for part in factors or [tuple(sizes)])
    cut = max(
        (n for n, is_sum in enumerate(summed) if not is_sum),
        key=lambda n: extents[n],
        default=None,
    )
    step = max(extents, default=1)
    if cut is not None and largest > _AT_ONCE:
        step = max(1, extents[cut] * _AT_ONCE // largest)
    for start in range(0, 1 if cut is None else extents[cut], max(1, step)):
        parts = [slice(0, extent) for extent in extents]
        if cut is not None:
            parts[cut] = slice(start, min(extents[cut], start + step))
        own = _at(scope, [own.var for own in axes], parts)
        if not any(summed):
            _execute(block.body, own)
        elif factors is not None:
            _sum_up(block, own, summed, factors)
        elif not _reduce(block, own, summed):
            _step_through(block, own, [n for n, is_sum in enumerate(summed) if is_sum], parts)


def _at(scope: Known, variables: Sequence[Any], parts: Sequence[slice]) -> Known:
    """A scope with the values of a block's variables."""
    rank = len(variables)
    values = dict(scope.values)
    for axis, (var, part) in enumerate(zip(variables, parts, strict=True)):
        shape = [-1 if n == axis else 1 for n in range(rank)]
        numbers = np.arange(part.start, part.stop, dtype=str(var.ty.dtype))
        values[var] = numbers.reshape(shape)
    runs = {
        var: (axis, part) for axis, (var, part) in enumerate(zip(variables, parts, strict=True))
    }
    return Known(scope.tensors, values, runs, rank)


def _size(expr: Any, sizes: Mapping[Any, int]) -> int:
    """How many values an expression has, or several variables together."""
    if isinstance(expr, tuple):
        return math.prod(sizes[var] for var in expr)
    return math.prod(sizes[v] for v in set(tirx.analysis.undefined_vars(expr)) if v in sizes)


def _execute(statement: Any, scope: Known) -> None:
    """Run a statement of a block's body in NumPy, for all values of the block's axes at once."""
    if isinstance(statement, tirx.SeqStmt):
        for part in statement:
            _execute(part, scope)
    elif isinstance(statement, tirx.Bind):
        scope.values[statement.var] = scope(statement.value)
    elif isinstance(statement, tirx.BufferStore):
        _store(scope, statement, scope(statement.value))
    else:
        raise NotEvaluatedError(f"a {type(statement).__name__} in a block")


def _store(scope: Known, store: tirx.BufferStore, values: Array) -> None:
    """Store values at all places of a block."""
    tensor = scope.tensor(store.buffer)
    own = scope.view(store.buffer, store.indices)
    if own is not None and own.size >= values.size:
        own[...] = values
    else:
        *places, every = np.broadcast_arrays(*scope.places(store.buffer, store.indices), values)
        tensor[tuple(places)] = every


def _terms(block: SBlock) -> tuple[type, Any] | None:
    """How a block adds to what it stores, and what; ``None`` where it does something else."""
    store, value = block.body, getattr(block.body, "value", None)
    if not isinstance(store, tirx.BufferStore) or not isinstance(block.init, tirx.BufferStore):
        return None
    if not isinstance(value, tirx.Add | tirx.Max | tirx.Min | tirx.Mul):
        return None
    for own, term in ((value.a, value.b), (value.b, value.a)):
        is_own = is_load_of(own, store.buffer)
        if (
            is_own
            and all(
                tvm_ffi.structural_equal(a, b)
                for a, b in zip(own.indices, store.indices, strict=True)
            )
            and not loads_of(term, store.buffer)
        ):
            return type(value), term
    return None


def _factors(block: SBlock) -> tuple[Any, ...] | None:
    """The factors of what a block adds up, or that itself; ``None`` where it is no sum."""
    found = _terms(block)
    if found is None or found[0] is not tirx.Add:
        return None
    term = found[1]
    return (term.a, term.b) if isinstance(term, tirx.Mul) else (term,)


def _sum_up(block: SBlock, scope: Known, summed: Sequence[bool], factors: Sequence[Any]) -> None:
    """Store sums of products, as products of matrices."""
    dtype = scope.tensor(block.body.buffer).dtype
    wide: np.dtype[Any] = np.dtype(np.float64)
    if not is_float(dtype) and any(_bits(factor) > 16 for factor in factors):
        wide = np.dtype(np.int64)  # float64 is exact where products have 32 bits
    first, second = (
        _of_rank(scope(factor).astype(wide), scope.rank)
        for factor in (*factors, tirx.IntImm("int32", 1))[:2]
    )
    whole = np.broadcast_shapes(first.shape, second.shape)
    extents = [scope(own.var).size for own in block.iter_vars]
    # An axis that no factor knows is summed as often as it is long.
    times = math.prod(e for e, n, s in zip(extents, whole, summed, strict=True) if s and n == 1)
    total = _multiplied(first, second, summed) * times
    if not is_float(dtype):
        total = total.astype(np.int64)
    initial = scope(block.init.value).astype(total.dtype)
    _store(scope, block.init, (initial + total).astype(dtype))


def _of_rank(values: Array, rank: int) -> Array:
    """Values with a dimension for each axis of a block, also where they are one constant."""
    return values.reshape((1,) * (rank - values.ndim) + values.shape)


def _bits(factor: Any) -> int:
    """Bits of the numbers that a factor is cast from."""
    while isinstance(factor, tirx.Cast):
        factor = factor.value
    return int(numpy_dtype(str(factor.ty.dtype)).itemsize) * 8  # type: ignore[union-attr]


def _multiplied(a: Array, b: Array, summed: Sequence[bool]) -> Array:
    """``(a * b).sum(summed)`` of arrays that NumPy broadcasts, summed axes kept as of one."""
    only = [
        tuple(n for n, s in enumerate(summed) if s and x.shape[n] > 1 == y.shape[n])
        for x, y in ((a, b), (b, a))
    ]
    a, b = (x.sum(axes, keepdims=True, dtype=x.dtype) for x, axes in zip((a, b), only, strict=True))
    pairs = list(enumerate(zip(a.shape, b.shape, strict=True)))
    depth = [n for n, (x, y) in pairs if summed[n]]
    left = [n for n, (x, y) in pairs if not summed[n] and y == 1]
    right = [n for n, (x, y) in pairs if not summed[n] and y > 1 == x]
    batch = [n for n, (x, y) in pairs if not summed[n] and x > 1 and y > 1]
    shape = [
        [a.shape[n] * b.shape[n] if n in left or n in right else a.shape[n] for n in axes]
        for axes in (batch, left, right)
    ]
    count = math.prod(shape[0])
    rows = a.transpose(*batch, *left, *right, *depth).reshape(count, math.prod(shape[1]), -1)
    columns = b.transpose(*batch, *depth, *left, *right).reshape(count, rows.shape[-1], -1)
    product = np.matmul(rows, columns).reshape([*itertools.chain(*shape), *(1 for _ in depth)])
    return product.transpose(np.argsort([*batch, *left, *right, *depth]))


def _reduce(block: SBlock, scope: Known, summed: Sequence[bool]) -> bool:
    """Store maxima, minima or products; whether the block's are such."""
    found = _terms(block)
    if found is None or found[0] not in _REDUCTIONS:
        return False
    kind, term = found
    axes = tuple(n for n, is_sum in enumerate(summed) if is_sum)
    extents = [scope(own.var).size for own in block.iter_vars]
    values = _of_rank(scope(term), scope.rank)
    shape = [
        extent if is_sum else own
        for extent, own, is_sum in zip(extents, values.shape, summed, strict=True)
    ]
    values = np.broadcast_to(values, shape)
    initial = scope(block.init.value)
    if kind is tirx.Mul:
        best = np.multiply.reduce(values, axes, keepdims=True, dtype=values.dtype)
    else:
        best = _REDUCTIONS[kind].reduce(values, axes, keepdims=True)
    _store(scope, block.init, _REDUCTIONS[kind](initial, best).astype(values.dtype))
    return True


def _step_through(block: SBlock, scope: Known, axes: Sequence[int], parts: Sequence[slice]) -> None:
    """Run a reduction step by step, in each for all places."""
    variables = [own.var for own in block.iter_vars]
    steps = math.prod(parts[axis].stop for axis in axes)
    if steps > _MOST_STEPS or block.init is None:
        raise NotEvaluatedError("a long reduction that is no sum")
    _execute(block.init, scope)
    for at in _steps([parts[axis] for axis in axes]):
        ranges = list(parts)
        for axis, number in zip(axes, at, strict=True):
            ranges[axis] = slice(number, number + 1)
        _execute(block.body, _at(scope, variables, ranges))


def _steps(parts: Sequence[slice]) -> Iterator[tuple[int, ...]]:
    """Values of several axes within these parts, one combination after the other."""
    return itertools.product(*(range(part.start, part.stop) for part in parts))
