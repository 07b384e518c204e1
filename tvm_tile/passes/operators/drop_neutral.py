"""Operators that leave elements as they are go, as do sums of one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import mutator

from tvm_tile.frontend.evaluate import static_shape
from tvm_tile.graph.constant_tensors import elements_of
from tvm_tile.graph.functions import calls_in
from tvm_tile.loops.sorting import find_sort
from tvm_tile.passes.ir.rewriter import ModuleRewriter, is_call_tir, is_in_place, written_over

_RESHAPES = frozenset(f"relax.{name}" for name in ("reshape", "expand_dims", "squeeze", "flatten"))

_FINDERS = frozenset(f"relax.{name}" for name in ("argsort", "argmax", "argmin"))

_BEST = "relax.topk"  # its second result

_MATRIX = 2  # dimensions
_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})


def _is_nothing(values: np.ndarray) -> bool:
    """Whether all values are zero."""
    return not values.any()


def _is_one(values: np.ndarray) -> bool:
    """Whether all values are one."""
    return bool((values == 1).all())


# Operator -> what is neutral to it, and whether on its left side, too.
_NEUTRAL: Mapping[str, tuple[Callable[[np.ndarray], bool], bool]] = MappingProxyType(
    {
        "relax.add": (_is_nothing, True),
        "relax.subtract": (_is_nothing, False),
        "relax.multiply": (_is_one, True),
    }
)


@tvm.transform.module_pass(opt_level=0, name="DropNeutral")
@dataclass(frozen=True, slots=True)
class DropNeutral:
    """Take values from where they first are, in their shape or another one.

    before: ``at = squeeze(position); places = add([0], at); y = take(table, expand_dims(places))``
    after:  ``y = take(table, reshape(position, (1, 1)))``

    or:     ``y = concat((strided_slice(x, [1], [0], [4]), strided_slice(x, [1], [4], [9])), 1)``
    after:  ``y = x``, where these are all of ``x``; nor are empty tensors concatenated

    Positions of a step are computed so, each by a kernel of its own. Only integers lose what is
    neutral: a sum of floating-point zeros is another zero. What is written in place, or handed to a
    function that may do so, is not taken later than before.

    Products with constants of depth one, as of positions and rates of rotary embeddings, are no
    sums, and become elements of what follows: ``matmul(x, w)`` is ``multiply(x, w)``. Other
    products may have another depth in another call, where extents are open.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return _NeutralDropping(mod).rewritten(mod)


@mutator
class _NeutralDropping(ModuleRewriter):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._written = _written(mod)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if getattr(call.op, "name", "") == "relax.concat":
            return self._concatenated(call)
        if _is_outer(call):
            return relax.op.multiply(*(_as_type(own, str(call.ty.dtype)) for own in call.args))
        shape, source = static_shape(call.ty), self._kept(call)
        if shape is None or source is None:
            return call
        first = self._first(source)
        if static_shape(first.ty) == shape and str(first.ty.dtype) == str(call.ty.dtype):
            return call if first in self._written else first
        is_same = first.same_as(call.args[0]) and call.op.name in _RESHAPES
        return call if is_same or first in self._written else relax.op.reshape(first, shape)

    def _concatenated(self, call: relax.Call) -> relax.Expr:
        """A concatenation without empty tensors; the tensor, whose parts in order are its own."""
        fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else ()
        shapes = [static_shape(own.ty) for own in fields]
        if not fields or None in shapes or call.attrs.axis is None:
            return call
        axis = int(call.attrs.axis) % call.ty.ndim
        sizes = [shape[axis] for shape in shapes if shape is not None]
        parts = [own for own, size in zip(fields, sizes, strict=True) if size]
        if len(parts) > 1:
            whole = self._sliced(parts, [size for size in sizes if size], axis)
            if whole is not None:
                return whole
        if not parts or len(parts) == len(fields) or parts[0] in self._written:
            return call
        return parts[0] if len(parts) == 1 else relax.op.concat(parts, axis)

    def _sliced(
        self, parts: Sequence[relax.Expr], sizes: Sequence[int], axis: int
    ) -> relax.Expr | None:
        """The tensor whose slices along an axis some values are, all of them, in order."""
        whole, at = None, 0
        for part, size in zip(parts, sizes, strict=True):
            found = _slice_of(self.lookup_binding(part)) if isinstance(part, relax.Var) else None
            if found is None or found[1:] != (axis, at):
                return None
            if whole is not None and not whole.same_as(found[0]):
                return None
            whole, at = found[0], at + size
        shape = None if whole is None or whole in self._written else static_shape(whole.ty)
        return whole if shape is not None and shape[axis] == at else None

    def _kept(self, call: relax.Expr) -> relax.Expr | None:
        """The value whose elements are all that a call gives, in their order."""
        name = str(getattr(call.op, "name", "")) if isinstance(call, relax.Call) else ""
        if name in _RESHAPES:
            return call.args[0] if static_shape(call.args[0].ty) is not None else None
        if name == "relax.where":
            return self._from_front(call)
        if name not in _NEUTRAL or "int" not in str(call.ty.dtype):
            return None
        is_neutral, is_either = _NEUTRAL[name]
        left, right = call.args
        for other, value in ((right, left), (left, right))[: 1 + is_either]:
            keeps = isinstance(other, ir.Constant) and _elements(value) == _elements(call)
            if keeps and is_neutral(elements_of(other)):
                return value
        return None

    def _from_front(self, call: relax.Call) -> relax.Expr | None:
        """The places that a choice counts from the front, if none of these counts from the end."""
        is_negative, _, places = call.args
        made = self.made(is_negative)
        is_place = isinstance(places, relax.Var) and self._is_place(places)
        if not is_place or getattr(getattr(made, "op", None), "name", "") != "relax.less":
            return None
        limit = made.args[1]
        is_zero = isinstance(limit, ir.Constant) and _is_nothing(elements_of(limit))
        return places if is_zero and made.args[0].same_as(places) else None

    def _is_place(self, value: relax.Expr) -> bool:
        """Whether a value is places that a search or a sort found, in whatever shape."""
        made = self.made(value)
        if isinstance(made, relax.TupleGetItem):
            found = self.made(made.tuple_value)
            if str(getattr(getattr(found, "op", None), "name", "")) == _BEST:
                return int(made.index) == 1
            is_sort = is_call_tir(found) and find_sort(self.builder_.get()[found.args[0]])
            return bool(is_sort) and int(made.index) == len(found.ty_args[0].fields) - 1
        name = str(getattr(getattr(made, "op", None), "name", ""))
        if name in _FINDERS:
            return True
        is_moved = name in _RESHAPES or name in ("relax.astype", "relax.strided_slice")
        is_whole = is_moved and "int" in str(made.args[0].ty.dtype)
        return is_whole and self._is_place(made.args[0])

    def _first(self, value: relax.Expr) -> relax.Expr:
        """The value that another one is in another shape; as far as that is not written over."""
        while isinstance(value, relax.Var) and value not in self._written:
            source = self._kept(self.lookup_binding(value))
            if not isinstance(source, relax.Var) or source in self._written:
                return value
            value = source
        return value


def _slice_of(value: Any) -> tuple[relax.Expr, int, int] | None:
    """The tensor of which a value is a slice along one axis, the axis, and where it begins."""
    if not isinstance(value, relax.Call) or getattr(value.op, "name", "") != "relax.strided_slice":
        return None
    numbers = [
        [getattr(own, "value", None) for own in given.fields]
        for given in value.args[1:]
        if isinstance(given, relax.Tuple)
    ]
    if len(numbers) != len(value.args) - 1 or any(len(own) != 1 for own in numbers):
        return None
    (axis,), (begin,), _, *steps = numbers
    shape = static_shape(value.args[0].ty)
    if not isinstance(axis, int) or not isinstance(begin, int) or shape is None:
        return None
    begin += shape[axis] if begin < 0 else 0
    return None if steps not in ([], [[1]]) else (value.args[0], axis % len(shape), begin)


def _is_outer(call: relax.Expr) -> bool:
    """Whether a call is a product of floating-point matrices, one constant, whose depth is one."""
    if not isinstance(call, relax.Call) or getattr(call.op, "name", "") != "relax.matmul":
        return False
    left, right = (static_shape(own.ty) for own in call.args)
    is_floating = all(str(own.ty.dtype) in _FLOATS for own in (*call.args, call))
    is_fixed = any(isinstance(own, ir.Constant) for own in call.args)
    if left is None or right is None or not is_floating or not is_fixed:
        return False
    return min(len(left), len(right)) >= _MATRIX and left[-1] == 1


def _as_type(value: relax.Expr, dtype: str) -> relax.Expr:
    """A value's elements in a type."""
    return value if str(value.ty.dtype) == dtype else relax.op.astype(value, dtype)


def _elements(value: relax.Expr) -> int | None:
    """Number of a tensor's elements, if its shape is known."""
    shape = static_shape(value.ty)
    return None if shape is None else math.prod(shape)


def _written(mod: tvm.IRModule) -> set[Any]:
    """The values that calls write over, or hand to functions, which may."""
    found: set[Any] = set()
    for call in calls_in(mod):
        if is_in_place(call):
            found.update(home for home in written_over(call) if home is not None)
        elif not isinstance(call.op, ir.Op):
            for argument in call.args:
                found.update(relax.analysis.free_vars(argument))
    return found
