"""Random arguments for a TensorIR function."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from tvm_tile.graph.functions import is_tensor
from tvm_tile.passes.open.unify import at_point
from tvm_tile.runtime.arrays import numpy_dtype
from tvm_tile.schedule.listed import settlers_of
from tvm_tile.verify.compare import Argument, Array, is_float
from tvm_tile.verify.uses import FEW, Uses


@dataclass(frozen=True, slots=True)
class FunctionInput:
    """A tensor that a function takes, or the value of an open extent.

    Attributes:
        below: limit of its integers, which are drawn from 0 to below it, as they are indices of
            that many elements; ``None`` where any integer of the type may be drawn.
        divides: whether integers are divided by it, so that it is neither 0 nor -1.
        is_output: whether it is written, and its former content is not used.
        value: value of an open extent; ``None`` for a tensor.
        settle: function that makes of random values what the function may be given.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    below: int | None
    divides: bool
    is_output: bool
    value: int | None = None
    settle: Callable[[Array], Array] | None = None


def parameters(
    func: tirx.PrimFunc, in_place: Collection[int] = (), extents: Mapping[str, int] | None = None
) -> tuple[FunctionInput, ...]:
    """The parameters of an unscheduled function, in order.

    Args:
        func: the function.
        in_place: positions of those that hold inputs before they are outputs.
        extents: values of its variables for open extents, by name.
    """
    values = extents or {}
    uses, settlers = Uses.of(func), settlers_of(func)
    found = []
    for position, param in enumerate(func.params):
        if not is_tensor(param):
            name, own = str(param.name), values[str(param.name)]
            found.append(FunctionInput(name, (), np.dtype(np.int64), None, False, False, own))
            continue
        shape = tuple(_value(extent, values) for extent in param.ty.shape)
        dtype = numpy_dtype(str(param.ty.dtype))
        assert dtype is not None, param.ty.dtype
        is_output = position not in in_place and param in uses.written
        below, divides = uses.below.get(param), param in uses.divisors
        told = str(param.name), shape, dtype, below, divides, is_output, None
        found.append(FunctionInput(*told, settlers.get(position)))
    return tuple(found)


def open_variables(func: tirx.PrimFunc) -> frozenset[str]:
    """Names of a function's variables for open extents."""
    tensors = [param for param in func.params if is_tensor(param)]
    shapes = [extent for param in tensors for extent in param.ty.shape]
    used = [var for extent in shapes for var in tirx.analysis.undefined_vars(extent)]
    numbers = [param for param in func.params if not is_tensor(param)]
    return frozenset(str(var.name) for var in (*used, *numbers))


def _value(extent: Any, values: Mapping[str, int]) -> int:
    """An extent at values of its variables."""
    if isinstance(extent, tirx.IntImm):
        return int(extent)
    used = tirx.analysis.undefined_vars(extent)
    return int(at_point(extent, used, tuple(values[str(var.name)] for var in used)))


def drawn(own: FunctionInput, rng: np.random.Generator, *, positive: bool = False) -> Argument:
    """Random values of a parameter; an open extent as it is.

    Args:
        own: the parameter.
        rng: the source.
        positive: whether floats are their magnitudes: roots of negative ones tell nothing.
    """
    if own.value is not None:
        return own.value
    size = math.prod(own.shape)
    if is_float(own.dtype):
        values = rng.standard_normal(size)
        found = (np.abs(values) if positive else values).astype(own.dtype)
    else:
        found = integers(own.dtype, size, rng, own.below, divides=own.divides)
    found = found.reshape(own.shape)
    return found if own.settle is None else own.settle(found)


def integers(
    dtype: np.dtype[Any],
    size: int,
    rng: np.random.Generator,
    below: int | None = None,
    *,
    divides: bool = False,
) -> Array:
    """Random integers from 0 to below a limit, or from all that a type has.

    Args:
        dtype: their type.
        size: number of integers.
        rng: the source.
        below: the limit.
        divides: whether they are divisors.
    """
    if dtype.kind not in "iu" or below is not None:
        few = 2 if dtype.kind == "b" else FEW
        return rng.integers(0, max(1, below or few), size).astype(dtype)
    limits = np.iinfo(dtype)
    found = rng.integers(limits.min, limits.max, size, dtype, endpoint=True)
    return np.where(np.isin(found, (0, -1)), dtype.type(3), found) if divides else found


def moved(array: Array, rng: np.random.Generator) -> Array:
    """Values that are off by a few roundings."""
    if not is_float(array.dtype):
        return array
    few = 8 * float(np.spacing(np.ones((), np.float32)))
    if array.dtype.itemsize < 4:
        few = 2.0**-9 if array.dtype.name == "float16" else 2.0**-6
    factors = 1 + few * rng.standard_normal(array.shape)
    result: Array = (array.astype(np.float64) * factors).astype(array.dtype)
    return result


def poison(dtype: np.dtype[Any]) -> Any:
    """Fill of outputs beforehand that no kernel should leave, nor make."""
    if is_float(dtype):
        return np.nan
    return True if dtype.kind == "b" else np.iinfo(dtype).max - 7
