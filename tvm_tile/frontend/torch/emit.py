"""What a converter reads values with, and writes Relax operators with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import tvm
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes
from tvm import relax, te, tirx

from tvm_tile.frontend.random_state import Draws

# Element types that TVM computes with. Others (complex, quantized) are refused.
DTYPES = frozenset(
    {
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
        *(torch.float8_e4m3fn, torch.float8_e5m2),
    }
)

_LARGEST_SIGNED = torch.iinfo(torch.int64).max
_LARGEST_E4M3 = 448.0
_LARGEST_ROUNDED = 464.0  # to that number, by ties to even


class Refusal(Exception):
    """An operator, or a form of one, that a converter does not do; the message says which."""


def dtype_name(dtype: torch.dtype) -> str:
    """TVM's name of an element type; raises :class:`Refusal` of one that TVM lacks."""
    if dtype not in DTYPES:
        raise Refusal(f"element type {dtype}")
    return str(dtype).removeprefix("torch.")


def dtype_of(value: relax.Expr) -> torch.dtype:
    """The element type of a value, as PyTorch calls it."""
    found = getattr(torch, str(value.ty.dtype))
    assert isinstance(found, torch.dtype)
    return found


def shape_of(value: relax.Expr) -> tuple[int, ...]:
    """The extents of a value. All are known: programs with open ones are fixed beforehand."""
    return tuple(int(extent) for extent in value.ty.shape)


def axis_of(dim: int, rank: int) -> int:
    """A dimension counted from the front; a tensor of rank 0 has the dimensions 0 and -1."""
    return dim % max(rank, 1)


def constant(value: float | bool, dtype: torch.dtype) -> relax.Expr:
    """A scalar of some element type, rounded to it once, as PyTorch does."""
    return relax.const(_exact(value).to(dtype).item(), dtype_name(dtype))


def is_held(value: float | bool, dtype: torch.dtype) -> bool:
    """Whether an element type has a number, if that is a type of half precision; NaN, too."""
    if dtype not in (torch.float16, torch.bfloat16) or not math.isfinite(value):
        return True
    return bool(_exact(value).to(dtype).item() == value)


def _exact(value: float | bool) -> torch.Tensor:
    if isinstance(value, float):  # else it would be of PyTorch's default type, float32
        return torch.tensor(value, dtype=torch.float64)
    return torch.tensor(value, dtype=torch.uint64 if value > _LARGEST_SIGNED else None)


@dataclass(frozen=True, slots=True)
class Emit:
    """Writes the operators that one node of a program becomes.

    Attributes:
        builder: inside the function and the dataflow block that are being written.
        results: tensors without data: PyTorch's own shapes and types of the node's results.
        wanted: positions of the results that someone uses; ``None`` may stand for the others.
        examples: argument's name -> a tensor without data like the argument.
        made: operators that :meth:`once` has written, in the whole program.
        draws: what random numbers are drawn by; None where none can be drawn.
    """

    builder: relax.BlockBuilder
    results: tuple[torch.Tensor, ...]
    wanted: frozenset[int]
    examples: Mapping[str, torch.Tensor]
    made: dict[tuple[Any, relax.Expr], relax.Var]
    draws: Draws | None

    def __call__(self, value: relax.Expr) -> relax.Expr:
        """Bind an operator's result to a variable, whose type is then known."""
        if isinstance(value, relax.Var | tvm.ir.Constant):
            return value
        return self.builder.emit(value)

    def te(self, function: Callable[..., Any], *arguments: Any, name: str = "") -> relax.Expr:
        """Bind what a tensor expression computes.

        Args:
            function: takes ``te.Tensor`` for each Relax value among ``arguments``, the others as
                they are, and returns one ``te.Tensor`` or several.
            arguments: its arguments.
            name: name of the loops; the function's where empty.
        """
        label = name or function.__name__.lstrip("_")
        return self.builder.emit_te(function, *arguments, primfunc_name_hint=label)

    def once(self, function: Callable[[relax.Expr], relax.Expr], value: relax.Expr) -> relax.Expr:
        """``function(value)``, written a single time however many nodes ask for it."""
        if (function, value) not in self.made:
            self.made[function, value] = self(function(value))
        return self.made[function, value]

    @property
    def dtype(self) -> torch.dtype:
        """The element type of the (first) result."""
        return self.results[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the (first) result."""
        return tuple(self.results[0].shape)

    def cast(self, value: relax.Expr, dtype: torch.dtype) -> relax.Expr:
        """The value in another element type; the value itself where it has that type."""
        found = dtype_of(value)
        if found == dtype:
            return value
        if dtype == torch.bool:  # TVM would cut 0.5 off to 0
            return self(relax.op.not_equal(value, constant(0, found)))
        if dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            value = self._within_8_bits(value, dtype)
        return self(relax.op.astype(value, dtype_name(dtype)))

    def _within_8_bits(self, value: relax.Expr, dtype: torch.dtype) -> relax.Expr:
        """Numbers that e4m3 has; of larger ones what this PyTorch makes of them."""
        if dtype == torch.float8_e5m2 or not dtype_of(value).is_floating_point:
            raise Refusal(f"rounding {dtype_of(value)} to {dtype}")
        wide = self.cast(value, torch.float32)
        if not torch.tensor(math.inf).to(dtype).float().isnan():  # from 2.13 on
            return self(relax.op.clip(wide, -_LARGEST_E4M3, _LARGEST_E4M3))
        size = self(relax.op.abs(wide))
        is_large = self(relax.op.greater(size, constant(_LARGEST_ROUNDED, torch.float32)))
        return self(relax.op.where(is_large, constant(math.nan, torch.float32), wide))

    def wide(self, value: relax.Expr) -> relax.Expr:
        """The value in the element type in which formulas of several steps are computed."""
        is_half = dtype_of(value) in (torch.float16, torch.bfloat16)
        return self.cast(value, torch.float32) if is_half else value

    def scaled(self, *terms: tuple[relax.Expr, float]) -> list[relax.Expr]:
        """Values of one element type, each times a number: in float32 where theirs lacks one."""
        if not all(is_held(factor, dtype_of(value)) for value, factor in terms):
            terms = tuple((self.wide(value), factor) for value, factor in terms)
        return [
            value
            if factor == 1
            else self(relax.op.multiply(value, constant(factor, dtype_of(value))))
            for value, factor in terms
        ]

    def full(self, value: float | bool) -> relax.Expr:
        """The (first) result, all of whose elements are equal."""
        return self(relax.op.full(self.shape, constant(value, self.dtype)))

    def promoted(
        self,
        *values: relax.Expr | complex,
        kind: ELEMENTWISE_TYPE_PROMOTION_KIND = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT,
    ) -> list[relax.Expr]:
        """Values and Python's numbers in the one element type in which PyTorch joins them."""
        dtype = result_type(*values, kind=kind)
        return [self.operand(value, dtype) for value in values]

    def operand(self, value: relax.Expr | complex, dtype: torch.dtype) -> relax.Expr:
        """A value or a Python number as a value of an element type."""
        if isinstance(value, relax.Expr):
            return self.cast(value, dtype)
        if isinstance(value, complex):
            raise Refusal("complex numbers")
        return constant(value, dtype)

    def nothing(self, like: relax.Expr, shape: Sequence[int], dtype: torch.dtype) -> relax.Expr:
        """A tensor without elements; it only seems to need ``like``, lest it is folded.

        TVM cannot read back a constant without elements, and its passes on views fail on others.
        """

        def loops(_: te.Tensor) -> te.Tensor:
            return te.compute(tuple(shape), lambda *_: tirx.const(0, dtype_name(dtype)), "nothing")

        return self.te(loops, like, name="nothing")

    def reshape(self, value: relax.Expr, shape: Sequence[int]) -> relax.Expr:
        """The same elements in the same order; nothing where the shape is the value's."""
        if shape_of(value) == tuple(shape):
            return value
        if 0 in shape:  # TVM reads 0 as "the extent that was there"
            return self.nothing(value, shape, dtype_of(value))
        return self(relax.op.reshape(value, tuple(shape)))


def result_type(
    *values: relax.Expr | complex,
    kind: ELEMENTWISE_TYPE_PROMOTION_KIND = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT,
) -> torch.dtype:
    """The element type in which PyTorch joins values and Python's numbers.

    Tensors of rank 0 and numbers weigh less than other tensors, as in PyTorch.
    """
    examples = [_example(value) if isinstance(value, relax.Expr) else value for value in values]
    return elementwise_dtypes(*examples, type_promotion_kind=kind)[1]


def _example(value: relax.Expr) -> torch.Tensor:
    shape = (1,) * min(value.ty.ndim, 1)
    return torch.empty(shape, dtype=dtype_of(value), device="meta")
