"""What operators of Relax compute of constants, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import tvm
from tvm import relax

from tvm_tile.graph.arrays import known_extents
from tvm_tile.graph.codes import numpy_dtype
from tvm_tile.graph.constant_tensors import elements_of

Evaluate = Callable[..., np.ndarray]

_SPLIT = tvm.ir.Op.get("relax.split")
_RESHAPES = ("reshape", "expand_dims", "squeeze", "flatten")
_SAME = (  # as NumPy's of this name
    *("negative", "sqrt", "exp", "abs", "sign", "floor", "ceil", "trunc", "add", "subtract"),
    *("multiply", "maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater"),
    *("greater_equal", "logical_not", "logical_and", "logical_or", "logical_xor", "bitwise_not"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"),
)
_ELEMENTWISE: dict[str, Evaluate] = {
    **{f"relax.{name}": getattr(np, name) for name in _SAME},
    "relax.rsqrt": lambda x: 1 / np.sqrt(x),
    "relax.mod": np.fmod,
    "relax.floor_mod": np.mod,
}
OF_NOTHING = frozenset(
    f"relax.{name}" for name in ("full", "full_like", "zeros", "shape_to_tensor", "arange")
)
"""Operators that make a tensor of a shape, of a type, or of numbers."""

PICKS: dict[str, Literal["wrap", "clip"]] = {"wrap": "wrap", "clip": "clip", "fast": "clip"}
"""TVM's modes of ``take``, and NumPy's."""

_TRIANGLES: dict[str, Evaluate] = {"relax.tril": np.tril, "relax.triu": np.triu}
_REDUCTIONS: dict[str, Evaluate] = {
    f"relax.{name}": getattr(np, name) for name in ("sum", "prod", "max", "min")
}


@dataclass(frozen=True, slots=True)
class KnownValues:
    """Values of what constants alone decide.

    Attributes:
        made: a variable -> the expression that it is bound to; ``None``, or itself, of parameters.
        most: elements of a tensor above which it is neither computed nor read.
        known: variable -> its value, as far as it was asked for.
    """

    made: Callable[[Any], Any]
    most: float = math.inf
    known: dict[Any, np.ndarray | None] = field(default_factory=dict)

    def value(self, value: Any) -> np.ndarray | None:
        """A tensor's elements; ``None`` where they are not known here."""
        if isinstance(value, relax.Var):
            if value not in self.known:
                self.known[value] = None
                self.known[value] = self.value(self.made(value))
            return self.known[value]
        if isinstance(value, tvm.ir.GenericConst):
            is_read = hasattr(value.value, "numpy") and math.prod(value.value.shape) <= self.most
            return elements_of(value) if is_read else None
        if isinstance(value, relax.TupleGetItem):
            split = self.made(value.tuple_value)
            is_split = isinstance(split, relax.Call) and split.op == _SPLIT
            whole = self.value(split.args[0]) if is_split else None
            return None if whole is None else part_of_split(split, whole, value.index)
        return self.result(value, value.ty) if isinstance(value, relax.Call) else None

    def result(self, call: relax.Call, ty: Any) -> np.ndarray | None:
        """The elements of the result of a call, which is of a type; ``None`` if not known here."""
        shape, name = static_shape(ty), getattr(call.op, "name", "")
        if shape is None or not call.args or math.prod(shape) > self.most:
            return None
        dtype = str(ty.dtype)
        if isinstance(call.args[0], relax.Tuple):
            fields = [self.value(part) for part in call.args[0].fields]
            parts = [part for part in fields if part is not None]
            found = joined_parts(name, call, parts) if len(parts) == len(fields) else None
        else:
            first = self.value(call.args[0])
            if first is None and name not in OF_NOTHING:
                return None  # the others, weights perhaps, are not read
            operands = [first, *map(self.value, call.args[1:])]
            found = evaluate(name, call, operands, shape, dtype)
        if found is None or found.shape != shape:
            return None
        return found.astype(numpy_dtype(dtype), copy=False)


@np.errstate(all="ignore")  # NaN and infinities are meant
def evaluate(
    name: str,
    call: relax.Call,
    operands: list[np.ndarray | None],
    shape: tuple[int, ...],
    dtype: str,
) -> np.ndarray | None:
    """The result of one operator; ``None`` where it is not known here or not constant.

    Args:
        name: the operator's name, such as ``relax.add``.
        call: the operator's call.
        operands: arguments that are constants; ``None`` of any other.
        shape: the result's extents.
        dtype: the result's dtype.
    """
    if 0 in shape:  # TVM reads no constants without elements back
        return None
    if name in ("relax.full", "relax.full_like") and operands[1] is not None:
        return np.full(shape, operands[1])
    if name == "relax.zeros":
        return np.zeros(shape)
    if name == "relax.shape_to_tensor":
        return _extents(call.args[0].ty)
    if name == "relax.arange":
        bounds = _integers(call.args)
        return None if bounds is None or "int" not in dtype else np.arange(*bounds, dtype=dtype)
    first = operands[0]
    if first is None or not first.size:
        return None
    if name == "relax.astype":
        return _cast(first, dtype)
    elsewhere = moved(name, call, first, shape)
    if name in _TRIANGLES:
        return _TRIANGLES[name](first, int(call.args[1]))
    known = [operand for operand in operands if operand is not None]
    if elsewhere is not None or len(known) < len(operands):
        return elsewhere
    if name == "relax.take" and call.attrs.axis is not None and call.attrs.mode in PICKS:
        return np.take(first, known[1], int(call.attrs.axis), mode=PICKS[call.attrs.mode])
    if name == "relax.gather_elements":
        return _gathered(first, known[1], int(call.attrs.axis))
    if name == "relax.where":
        condition, yes, no = known
        return np.where(condition, yes, no)
    if name in _REDUCTIONS:
        return _reduced(_REDUCTIONS[name], call, first)
    if name == "relax.sort" and first.dtype.kind in "iu":
        ascending = np.sort(first, int(call.attrs.axis))
        return np.flip(ascending, int(call.attrs.axis)) if call.attrs.descending else ascending
    if name == "relax.power":
        return _power_of_two(known[0], known[1])
    if name in ("relax.divide", "relax.floor_divide"):
        return _quotient(known[0], known[1], name == "relax.floor_divide")
    if name == "relax.matmul" and all(operand.dtype.kind == "f" for operand in known):
        return np.matmul(*(operand.astype(np.float64) for operand in known))
    return _ELEMENTWISE[name](*known) if name in _ELEMENTWISE else None


def moved(
    name: str, call: relax.Call, source: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray | None:
    """The elements of one constant elsewhere; ``None`` where an operator does not move any."""
    if name.removeprefix("relax.") in _RESHAPES:
        return source.reshape(shape)
    if name == "relax.broadcast_to":
        return np.broadcast_to(source, shape)
    if name == "relax.permute_dims":
        axes = call.attrs.axes
        return np.transpose(source, None if axes is None else [int(axis) for axis in axes])
    if name == "relax.flip":
        return np.flip(source, int(call.attrs.axis))
    if name == "relax.repeat":
        axis = call.attrs.axis
        return np.repeat(source, int(call.attrs.repeats), None if axis is None else int(axis))
    if name == "relax.tile":
        return np.tile(source, [int(count) for count in call.attrs.repeats])
    if name == "relax.strided_slice":
        return _slice(source, *map(_integers, call.args[1:]))
    if name == "relax.nn.pad" and call.attrs.pad_mode == "constant":
        width = np.reshape([int(count) for count in call.attrs.pad_width], (-1, 2))
        return np.pad(source, width, constant_values=float(call.attrs.pad_value))
    return None


def joined_parts(name: str, call: relax.Call, parts: list[np.ndarray]) -> np.ndarray | None:
    """Tensors side by side, or as the elements of a new dimension."""
    if name not in ("relax.concat", "relax.stack"):
        return None
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    return np.concatenate(parts, axis) if name == "relax.concat" else np.stack(parts, axis)


def part_of_split(split: relax.Call, whole: np.ndarray, index: int) -> np.ndarray:
    """One of the parts that ``relax.split`` makes of a tensor."""
    ends = split.attrs.indices_or_sections
    ends = int(ends) if isinstance(ends, tvm.tirx.IntImm) else [int(end) for end in ends]
    return np.array_split(whole, ends, int(split.attrs.axis))[int(index)]


def _power_of_two(base: np.ndarray, exponent: np.ndarray) -> np.ndarray | None:
    """Powers of 2 by whole numbers, as scales are; of others the last bit is not NumPy's."""
    wide = exponent.astype(np.float64)
    is_whole = "int" not in base.dtype.name and np.all(base == 2) and np.all(wide == np.rint(wide))
    return np.exp2(wide) if is_whole else None


def _quotient(a: np.ndarray, b: np.ndarray, rounds_down: bool) -> np.ndarray | None:
    """Integers divided, and rounded down or towards zero; of others none is rounded down here, as
    the last bit is not NumPy's."""
    if a.dtype.kind not in "iu":
        return None if rounds_down else np.divide(a, b)
    if not np.all(b):
        return None
    return np.floor_divide(a if rounds_down else a - np.fmod(a, b), b)


def _reduced(function: Evaluate, call: relax.Call, x: np.ndarray) -> np.ndarray | None:
    """Integers reduced, in their own type; sums of others depend on the order."""
    if x.dtype.kind not in "iu":
        return None
    axes = None if call.attrs.axis is None else tuple(int(axis) for axis in call.attrs.axis)
    return np.asarray(function(x, axis=axes, keepdims=bool(call.attrs.keepdims))).astype(x.dtype)


def _cast(array: np.ndarray, dtype: str) -> np.ndarray | None:
    """An array in another type; ``None`` where NumPy has no such type, or C may make other numbers
    of those that the type cannot hold."""
    if not _numpy_knows(dtype):
        return None
    if array.dtype.kind == "f" and np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        whole = np.trunc(array.astype(np.float64))
        if not np.all((whole >= limits.min) & (whole <= limits.max)):
            return None
    return array.astype(dtype)


def _gathered(source: np.ndarray, numbers: np.ndarray, axis: int) -> np.ndarray | None:
    """For each place the element of that number along an axis; ``None`` where there is none."""
    others = [np.delete(array.shape, axis).tolist() for array in (source, numbers)]
    is_within = bool(np.all((numbers >= 0) & (numbers < source.shape[axis])))
    return (
        np.take_along_axis(source, numbers, axis) if is_within and others[0] == others[1] else None
    )


def _slice(source: np.ndarray, *places: tuple[int, ...] | None) -> np.ndarray | None:
    """A tensor's part, by axes, their begins, their ends, and perhaps their strides."""
    known = [place for place in places if place is not None]
    if len(known) < len(places):
        return None
    parts = [slice(None)] * source.ndim
    for axis, *part in zip(*known, strict=True):
        parts[axis] = slice(*part)
    return source[tuple(parts)]


def _integers(values: Any) -> tuple[int, ...] | None:
    """Values of an operator's arguments, or of one that is a tuple; ``None`` where one is open."""
    values = values.fields if isinstance(values, relax.Tuple) else values
    if isinstance(values, relax.Expr) or not all(isinstance(v, tvm.tirx.IntImm) for v in values):
        return None
    return tuple(int(value) for value in values)


def _extents(shape: Any) -> np.ndarray | None:
    """A static shape as a tensor of int64."""
    values = shape.values if isinstance(shape, relax.ShapeType) else None
    if values is None or not all(isinstance(extent, tvm.tirx.IntImm) for extent in values):
        return None
    return np.array([int(extent.value) for extent in values], "int64")


def _numpy_knows(dtype: str) -> bool:
    try:
        np.dtype(dtype)
    except TypeError:
        return False
    return True


def static_shape(ty: Any) -> tuple[int, ...] | None:
    """Extents of a tensor type; ``None`` of any other, and where one is open."""
    return known_extents(ty.shape) if isinstance(ty, relax.TensorType) else None


def broadcast_shape(ty: Any, rank: int) -> tuple[int, ...]:
    """Extents of a tensor type of known ones, with as many of 1 before them as make it ``rank``."""
    shape = static_shape(ty)
    assert shape is not None
    return (1,) * (rank - len(shape)) + shape
