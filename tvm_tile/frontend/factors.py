"""Operands of products that are made of 8-bit codes: ``(codes - zero) * scale``, however written.

An importer's dequantization is a chain of casts, a difference, a multiplication and moves between.
It is read from its end to the codes, which may be constants or what a model rounds to 8 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax

from tvm_tile.frontend.evaluate import KnownValues, broadcast_shape, static_shape
from tvm_tile.graph.eight_bits import FLOATS, INTEGERS, NOTHING, Span, dtype_for, span_of

HALVES = ("float16", "bfloat16")
# That hold every difference of two 8-bit integers.
_WIDE = ("int16", "int32", "int64", "float16", "float32", "float64")
_SCALED = ("float32", "float64", *HALVES)
_MOVES = ("permute_dims", "reshape", "expand_dims", "squeeze", "flatten")
_LARGEST_ZERO = 1 << 10  # differences from larger ones are not exact in float16


@dataclass(frozen=True, slots=True)
class Factor:
    """``(codes - zero) * scale * ...``, each of which broadcasts with the others.

    Attributes:
        codes: a tensor of 8-bit integers, or of 8-bit floats; has the operand's shape.
        zero: int32; ``None`` where it is 0.
        zeros: where its elements lie.
        scales: float32, whatever the model computes with.
        is_rounded: whether the model rounds a scaled number to half precision.
    """

    codes: Any
    zero: Any = None
    zeros: Span = NOTHING
    scales: tuple[Any, ...] = ()
    is_rounded: bool = False

    @property
    def is_integer(self) -> bool:
        """Whether its codes are integers."""
        return dtype_of(self.codes) in INTEGERS

    @property
    def parameters(self) -> tuple[Any, ...]:
        """The zero point of the codes, if any, and their scales."""
        return (*(() if self.zero is None else (self.zero,)), *self.scales)


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads operands of products.

    Attributes:
        builder: where what is made of their parts goes.
        constants: tells what values are bound to, and the values that constants alone decide.
        others: variables that are made of no codes, as far as they were asked for.
    """

    builder: relax.BlockBuilder
    constants: KnownValues
    others: set[Any]

    def factor(self, value: Any) -> Factor | None:
        """The codes behind an operand; ``None`` where it is made otherwise."""
        if value in self.others:  # a product of products would be read over and over
            return None
        found = self._factor(value)
        if found is None and isinstance(value, relax.Var):
            self.others.add(value)
        return found

    def _factor(self, value: Any) -> Factor | None:
        if static_shape(value.ty) is None:
            return None
        dtype, call = dtype_of(value), self.constants.made(value)
        if dtype in (*INTEGERS, *FLOATS):
            return Factor(value)
        if dtype == "int32" and (codes := self._codes(value)) is not None:
            return Factor(codes)
        if not isinstance(call, relax.Call):
            return None
        name = name_of(call)
        if name == "multiply":
            return self._multiplied(call, dtype)
        if name not in ("astype", "subtract", *_MOVES):
            return None
        inner = self.factor(call.args[0])
        if inner is None:
            return None
        if name == "astype":
            return _cast(inner, dtype)
        if name == "subtract":
            return self._shifted(inner, call, dtype)
        return self._moved(inner, call)

    def _codes(self, value: Any) -> Any | None:
        """Known integers in 8 bits each, if these hold them."""
        known = self.constants.value(value)
        if known is None or not known.size:
            return None
        dtype = dtype_for(Span(int(known.min()), int(known.max())))
        return None if dtype is None else relax.const(known.astype(dtype))

    def _multiplied(self, call: relax.Call, dtype: str) -> Factor | None:
        """A scaled factor, whichever of the two operands it is."""
        if dtype not in _SCALED:
            return None
        for number, scale in (call.args, reversed(call.args)):
            inner = self.factor(number)
            if inner is None or static_shape(number.ty) != static_shape(call.ty):
                continue
            known = self.constants.value(scale)
            if known is not None and not np.isfinite(known.astype(np.float32)).all():
                return None
            own = self._parameter(scale, "float32")
            is_rounded = inner.is_rounded or dtype in HALVES
            return replace(inner, scales=(*inner.scales, own), is_rounded=is_rounded)
        return None

    def _shifted(self, inner: Factor, call: relax.Call, dtype: str) -> Factor | None:
        """A factor less its zero point."""
        number, zero = call.args
        is_plain = inner.is_integer and inner.zero is None and not inner.scales
        if not is_plain or dtype not in _WIDE or static_shape(number.ty) != static_shape(call.ty):
            return None
        zeros = self._integers(zero)
        if zeros is None or zeros.largest > _LARGEST_ZERO:
            return None
        if zeros == NOTHING:
            return inner
        return replace(inner, zero=self._parameter(zero, "int32"), zeros=zeros)

    def _moved(self, inner: Factor, move: relax.Call) -> Factor | None:
        """A factor elsewhere; what is not the same for all elements goes along with permutations
        only."""
        is_permutation = name_of(move) == "permute_dims"
        if not is_permutation and any(own.ty.ndim for own in inner.parameters):
            return None
        rank = inner.codes.ty.ndim

        def moved(own: Any) -> Any:
            if not own.ty.ndim:
                return own
            wide = self._emitted(relax.op.reshape(own, broadcast_shape(own.ty, rank)))
            return self._emitted(relax.Call(move.op, [wide], move.attrs))

        codes = self._emitted(relax.Call(move.op, [inner.codes, *move.args[1:]], move.attrs))
        zero = None if inner.zero is None else moved(inner.zero)
        return replace(inner, codes=codes, zero=zero, scales=tuple(map(moved, inner.scales)))

    def _integers(self, value: Any) -> Span | None:
        """Where the elements lie of what is known to be integers; ``None`` of anything else."""
        array = self.constants.value(value)
        if array is not None:
            wide = array.astype(np.float64)
            is_whole = wide.size > 0 and np.array_equal(wide, np.round(wide))
            return Span(int(wide.min()), int(wide.max())) if is_whole else None
        if static_shape(value.ty) is None:
            return None
        dtype, call = dtype_of(value), self.constants.made(value)
        if "int" not in dtype:
            is_cast = isinstance(call, relax.Call) and name_of(call) in ("astype", *_MOVES)
            return self._integers(call.args[0]) if is_cast else None
        low, high = self._bounds(value)
        return Span(math.ceil(low), math.floor(high)) if math.isfinite(high - low) else None

    def _bounds(self, value: Any) -> tuple[float, float]:
        """Where the elements of a tensor lie, infinite where that is not known."""
        anywhere = (-math.inf, math.inf)
        dtype, call = dtype_of(value), self.constants.made(value)
        if dtype in INTEGERS:
            own = span_of(dtype)
            return own.low, own.high
        if not isinstance(call, relax.Call):
            return anywhere
        name = name_of(call)
        if name in ("astype", "round", *_MOVES):
            return self._bounds(call.args[0])
        if name == "clip" and all(hasattr(bound, "value") for bound in call.args[1:]):
            return float(call.args[1].value), float(call.args[2].value)
        if name in ("minimum", "maximum"):
            known = self.constants.value(call.args[1])
            low, high = self._bounds(call.args[0])
            if known is None or not known.size:
                return anywhere
            is_lower = name == "minimum"
            return (
                (low, min(high, float(known.max())))
                if is_lower
                else (max(low, float(known.min())), high)
            )
        return anywhere

    def _parameter(self, value: Any, dtype: str) -> Any:
        """A zero point or a scale, without dimensions if it is one number."""
        array = self.constants.value(value)
        if array is not None:
            array = array.astype(dtype)
            return relax.const(array.reshape(()) if array.size == 1 else array)
        if dtype_of(value) != dtype:
            value = self._emitted(relax.op.astype(value, dtype))
        shape = broadcast_shape(value.ty, 0)
        is_one = shape and all(extent == 1 for extent in shape)
        return self._emitted(relax.op.reshape(value, ())) if is_one else value

    def _emitted(self, call: relax.Call) -> Any:
        return self.builder.emit(call)


def _cast(inner: Factor, dtype: str) -> Factor | None:
    if inner.scales:
        if dtype not in _SCALED:
            return None
        return replace(inner, is_rounded=inner.is_rounded or dtype in HALVES)
    # bfloat16 has 8 bits: it holds codes, but not their differences.
    holds = dtype in (("float32", *HALVES) if not inner.is_integer else _WIDE)
    holds |= dtype == "bfloat16" and inner.zero is None
    return inner if holds else None


def dtype_of(value: Any) -> str:
    """The element type of a value."""
    return str(value.ty.dtype)


def name_of(call: relax.Call) -> str:
    """The operator that is called, such as ``"matmul"``."""
    return getattr(call.op, "name", "").removeprefix("relax.")
