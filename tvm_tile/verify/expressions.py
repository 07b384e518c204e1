"""Expressions of TensorIR in NumPy, for all places of a block at once.

Nothing here is shared with what builds kernels. Each operation is done in its own type: integers
wrap, floating-point numbers are rounded, those of 16 bits, too. What functions such as exp return
is computed in a wider type and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from tvm_tile.runtime.arrays import numpy_dtype
from tvm_tile.verify.compare import Array, is_float
from tvm_tile.verify.philox import philox


class NotEvaluatedError(Exception):
    """A function has something that NumPy is not told to compute."""


@dataclass(frozen=True, slots=True)
class Known:
    """Values of tensors and variables where an expression stands.

    Attributes:
        tensors: tensors by their buffers.
        values: values of variables. Those of a block have a dimension for each axis of it, of
            extent 1 but for their own; so have all values of expressions, which NumPy broadcasts.
        runs: variables of a block whose values follow one another -> their axis, and their values.
        rank: axes of the block.
    """

    tensors: Mapping[Any, Array]
    values: dict[Any, Array]
    runs: Mapping[Any, tuple[int, slice]]
    rank: int

    def tensor(self, buffer: Any) -> Array:
        """The tensor of a buffer."""
        if buffer not in self.tensors:
            raise NotEvaluatedError("memory that is a loop's own")
        return self.tensors[buffer]

    def __call__(self, expr: Any) -> Array:
        """The values of an expression."""
        found = self.values.get(expr) if isinstance(expr, tirx.Var) else None
        return self._computed(expr) if found is None else found

    def view(self, buffer: Any, indices: Sequence[Any]) -> Array | None:
        """A tensor's elements as dimensions of the block, where each index is a variable of its
        own or a constant; ``None`` elsewhere."""
        tensor = self.tensor(buffer)
        axes: list[int] = []
        cut: list[Any] = []
        for index in indices:
            if isinstance(index, tirx.IntImm):
                cut.append(int(index))
            elif isinstance(index, tirx.Var) and index in self.runs:
                axis, part = self.runs[index]
                axes.append(axis)
                cut.append(part)
            else:
                return None
        if len(set(axes)) < len(axes) or any(
            isinstance(part, slice) and part.stop > extent
            for part, extent in zip(cut, tensor.shape, strict=True)
        ):
            return None
        cut.append(Ellipsis)
        found: Array = tensor[tuple(cut)].transpose(np.argsort(axes))
        extents = iter(found.shape)
        return found.reshape([next(extents) if a in axes else 1 for a in range(self.rank)])

    def places(self, buffer: Any, indices: Sequence[Any]) -> tuple[Array, ...]:
        """Indices as NumPy takes them. What a guard keeps from being used may lie outside."""
        shape = self.tensor(buffer).shape
        pairs = zip(map(self, indices), shape, strict=True)
        return tuple(np.clip(index, 0, max(0, extent - 1)) for index, extent in pairs)

    def _computed(self, expr: Any) -> Array:
        """Values of an expression, by its kind."""
        if isinstance(expr, tvm.ir.TensorLoad):
            found = self.view(expr.source, expr.indices)
            if found is None:
                places = self.places(expr.source, expr.indices)
                found = np.asarray(self.tensor(expr.source)[places])
            return found
        if isinstance(expr, tirx.IntImm | tirx.FloatImm):
            return np.asarray(expr.value).astype(_dtype(expr))
        if isinstance(expr, tirx.Select):
            return self._chosen((expr.condition, expr.true_value, expr.false_value))
        if isinstance(expr, tirx.Cast):
            return as_type(self(expr.value), _dtype(expr))
        if isinstance(expr, tirx.Not | tirx.BitwiseNot):
            return (np.logical_not if isinstance(expr, tirx.Not) else np.invert)(self(expr.a))
        if isinstance(expr, tvm.ir.Call):
            return self._called(expr)
        if type(expr) in _BINARY:
            left, right = self(expr.a), self(expr.b)
            return np.asarray(_BINARY[type(expr)](left, right)).astype(_dtype(expr))
        raise NotEvaluatedError(f"a {type(expr).__name__} in an expression")

    def _chosen(self, parts: Sequence[Any]) -> Array:
        """One of two values for each element, by a condition."""
        condition, this, other = map(self, parts)
        return np.where(condition, this, other)

    def _called(self, call: Any) -> Array:
        """Values of a call of a function that NumPy has, too."""
        name = str(getattr(call.op, "name", call.op)).rpartition(".")[2]
        dtype = _dtype(call)
        if name == "if_then_else":
            return self._chosen(call.args)
        if name == "reinterpret":
            return np.ascontiguousarray(self(call.args[0])).view(dtype)
        if name in _EXACT:
            return np.asarray(_EXACT[name](*map(self, call.args))).astype(dtype)
        if name not in _FUNCTIONS or not is_float(_dtype(call.args[0])):
            raise NotEvaluatedError(f"the function {name} of {_dtype(call.args[0])}")
        arguments = [wider(self(argument)) for argument in call.args]
        return np.asarray(_FUNCTIONS[name](*arguments)).astype(dtype)


def wider(array: Array) -> Array:
    """Floating-point numbers with more digits than they are rounded to in the end."""
    return array.astype(np.float64 if array.dtype.itemsize >= 4 else np.float32)


def as_type(array: Array, dtype: np.dtype[Any]) -> Array:
    """Numbers in another type; integers wrap, and what is no integer is cut off."""
    if is_float(array.dtype) and dtype.kind in "iu" and dtype.itemsize < 8:
        array = array.astype(np.int64)
    elif is_float(array.dtype) and dtype.kind == "b":
        return array != 0
    return array.astype(dtype)


def _dtype(expr: Any) -> np.dtype[Any]:
    """NumPy's type of an expression; raises where it has none."""
    dtype = numpy_dtype(str(expr.ty.dtype))
    if dtype is None:
        raise NotEvaluatedError(f"numbers of type {expr.ty.dtype}")
    return dtype


def _quotient(a: Array, b: Array) -> Array:
    """Divide; quotients of integers are rounded towards zero."""
    if is_float(a.dtype):
        return np.divide(a, b)
    return np.floor_divide(a - np.fmod(a, b), b)


def _rounded(a: Array) -> Array:
    """Halves away from zero."""
    whole = np.trunc(a)
    return whole + np.copysign(np.abs(a - whole) >= 0.5, a)


_BINARY: Mapping[type, Callable[[Array, Array], Any]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.Div: _quotient,
    tirx.Mod: np.fmod,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
    tirx.BitwiseAnd: np.bitwise_and,
    tirx.BitwiseOr: np.bitwise_or,
    tirx.BitwiseXor: np.bitwise_xor,
    tirx.expr.LShift: np.left_shift,
    tirx.expr.RShift: np.right_shift,
}
_EXACT: Mapping[str, Callable[..., Any]] = {
    "likely": np.asarray,
    "as_written": np.asarray,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "philox": philox,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "log", "log2", "log10", "log1p")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "sqrt")},
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc", "fabs", "fmod", "hypot")},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "atan2")},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("asinh", "acosh", "atanh")},
    "copysign": np.copysign,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "fma": lambda a, b, c: a * b + c,
    "nearbyint": np.rint,
    "pow": np.power,
    "round": _rounded,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
}
