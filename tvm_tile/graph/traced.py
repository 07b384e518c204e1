"""A tensor that is computed of codes, as far as it has been followed, in NumPy.

What was done to its elements is kept as it was done, and carried out only where somebody asks for
values: of some codes and boxes, or of the whole tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tvm_tile.graph.codes import Array, looked_up, numpy_dtype

HALVES = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True, eq=False)
class StepOperand:
    """Operand of a step, which subtracts, multiplies or adds it; it broadcasts with the codes."""

    values: Array
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A step of the computation: one operator's arithmetic on each element.

    Attributes:
        dtype: element type of the result.
        function: function of the element and the operand; ``None`` for a cast.
        operand: broadcasts with the codes; ``None`` of a cast.
    """

    dtype: str
    function: np.ufunc | None = None
    operand: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A tensor that is computed of codes, so far.

    Attributes:
        codes: integers, truth values, or floats of 8 or 4 bits.
        dtype: element type of the values.
        steps: steps that were computed of the codes, or of the entries that they number.
        table: floats that the codes number, if they are entries of a table.
        zero: numbers that were subtracted first, as formats know it.
        scales: factors of the multiplications behind that.
        offset: numbers that were added last.
    """

    codes: Array
    dtype: str
    steps: tuple[Step, ...]
    table: Array | None = None
    zero: StepOperand | None = None
    scales: tuple[StepOperand, ...] = ()
    offset: StepOperand | None = None

    @classmethod
    def of(cls, codes: Array, dtype: str, table: Array | None = None) -> Traced:
        """Codes, or the entries of a table that they number, cast to an element type."""
        return cls(codes, dtype, (Step(dtype),), table)

    @property
    def is_float(self) -> bool:
        """Whether the values are floating-point numbers."""
        return "float" in self.dtype

    def values(self) -> Array:
        """The tensor as its steps compute it."""
        return np.broadcast_to(self._computed(self.codes, lambda own: own), self.codes.shape)

    def of_each(self, codes: Array, box: Sequence[int]) -> Array:
        """Values that some codes would have in each box of the tensor.

        Args:
            codes: codes in one dimension.
            box: extents of boxes, in each of which elements have the same operands.

        Returns:
            The values, of ``len(codes)`` and of the numbers of boxes in each dimension, or 1 where
            all of them have the same operands.
        """
        sides = tuple(box)

        def first_of_boxes(own: Array) -> Array:
            steps = sides[len(sides) - own.ndim :]
            return own[tuple(slice(None, None, side) for side in steps)]

        return self._computed(codes.reshape(-1, *(1 for _ in sides)), first_of_boxes)

    def _computed(self, codes: Array, chosen: Callable[[Array], Array]) -> Array:
        """Values of codes after all steps; ``chosen`` gives each operand's numbers."""
        value = codes if self.table is None else looked_up(self.table, codes)
        with np.errstate(all="ignore"):  # NaN and infinities are meant
            for step in self.steps:
                if step.function is not None and step.operand is not None:
                    value = step.function(value, chosen(step.operand))
                value = value.astype(numpy_dtype(step.dtype), copy=False)
        return value

    def cast(self, dtype: str) -> Traced:
        """The same values in another element type.

        A product that is rounded to float32 and then to a half, is the half's own product where
        the first rounding changed nothing, as it does not for codes of 8 bits.
        """
        steps, scales = (*self.steps, Step(dtype)), self.scales
        if dtype in HALVES and scales and self.offset is None:
            *others, last = scales
            if last.dtype == "float32" and holds(last.values, dtype):
                scales = (*others, StepOperand(last.values, dtype))
        return replace(self, dtype=dtype, steps=steps, scales=scales)

    def less(self, values: Array) -> Traced | None:
        """Subtract values; ``None`` where no format has such a step."""
        return self._followed(np.subtract, values, self._less(values))

    def plus(self, values: Array) -> Traced | None:
        """The sum with others; ``None`` where no format has such a step.

        Nor has any a sum with a product in float32: compilers may fuse the two, and the last bit is
        another one then.
        """
        return self._followed(np.add, values, self._plus(values))

    def times(self, values: Array) -> Traced | None:
        """The product with others; ``None`` where no format has such a step."""
        if not self.is_float or self.offset is not None:
            return None
        scales = (*self.scales, StepOperand(values, self.dtype))
        return self._followed(np.multiply, values, replace(self._like(values), scales=scales))

    def _followed(self, function: np.ufunc, values: Array, found: Traced | None) -> Traced | None:
        """The tensor behind one more step, if that fits the format."""
        step = Step(self.dtype, function, values)
        return None if found is None else replace(found, steps=(*self.steps, step))

    def _less(self, values: Array) -> Traced | None:
        """The tensor with values subtracted; ``None`` if the format cannot hold that."""
        if self.scales or self.zero is not None:
            return self._plus(-values) if self.is_float else None
        return replace(self._like(values), zero=StepOperand(values, self.dtype))

    def _plus(self, values: Array) -> Traced | None:
        """The tensor with values added; ``None`` if the format cannot hold that."""
        if not self.scales and self.zero is None:
            return self._less(-values if self.is_float else -values.astype(np.int64))
        is_fused = any(own.dtype not in HALVES for own in self.scales[-1:])
        if not self.is_float or self.offset is not None or is_fused:
            return None
        return replace(self._like(values), offset=StepOperand(values, self.dtype))

    def moved(self, move: Callable[[Array], Array | None]) -> Traced | None:
        """The elements elsewhere, as a function of a tensor of them moves them."""
        codes = move(self.codes)
        if codes is None:
            return None
        known: dict[int, Array] = {}

        def array(own: Array) -> Array:
            if own.size == 1:
                return own.reshape(())
            if id(own) not in known:
                values = move(np.broadcast_to(own, self.codes.shape))
                assert values is not None
                known[id(own)] = values
            return known[id(own)]

        def operand(own: StepOperand) -> StepOperand:
            return StepOperand(array(own.values), own.dtype)

        return replace(
            self,
            codes=codes,
            steps=tuple(
                own if own.operand is None else replace(own, operand=array(own.operand))
                for own in self.steps
            ),
            zero=None if self.zero is None else operand(self.zero),
            scales=tuple(map(operand, self.scales)),
            offset=None if self.offset is None else operand(self.offset),
        )

    def _like(self, values: Array) -> Traced:
        """The tensor, broadcast to the shape that it has together with an operand."""
        shape = np.broadcast_shapes(self.codes.shape, values.shape)
        return replace(self, codes=np.broadcast_to(self.codes, shape))


def holds(values: Array, dtype: str) -> bool:
    """Whether an element type has all these numbers, signs of zeros included."""
    with np.errstate(all="ignore"):
        there: Array = values.astype(numpy_dtype(dtype)).astype(values.dtype)
    return np.array_equal(there, values) and np.array_equal(np.signbit(there), np.signbit(values))
