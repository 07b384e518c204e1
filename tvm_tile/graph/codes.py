"""Codes of a few bits in NumPy: packed into bytes, unpacked, decoded to values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from tvm_tile.graph.tensor_format import (
    Code,
    Entries,
    Floats,
    Integers,
    Shared,
    TensorFormat,
    stacked_format,
)

_BYTE = 8  # bits
_AT_ONCE = 1 << 16  # elements
_MANY = 4  # elements of a box for each code: fewer are as soon decoded by themselves
_COUNTED = np.arange(256, dtype=np.uint8)

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A tensor that is kept as codes.

    Attributes:
        format: how.
        shape: shape of the values.
        packed: the codes, uint8, of ``format.packed_shape(shape)``.
        table: ``2**bits`` entries of type ``format.entry``; ``None`` where codes are no entries of
            a table.
        shared: numbers that boxes share, in the order of ``format.shared``; floats of a byte as
            uint8.
    """

    format: TensorFormat
    shape: tuple[int, ...]
    packed: Array
    table: Array | None
    shared: tuple[Array, ...]

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All that is kept, in the order in which kernels take it."""
        return (self.packed, *(() if self.table is None else (self.table,)), *self.shared)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        return sum(array.nbytes for array in self.arrays)

    def equals(self, other: Coded) -> bool:
        """Whether the same is kept of another tensor."""
        if self.format != other.format or self.shape != other.shape:
            return False
        pairs = [(self.packed[:1], other.packed[:1])]  # where most others differ already
        pairs += zip(self.arrays, other.arrays, strict=True)
        return all(np.array_equal(own, theirs) for own, theirs in pairs)

    def turned(self) -> Coded:
        """The transposed matrix, or a stack of these, whose codes lie by its rows."""
        patterns = unpack(self.packed, self.format.code.bits, self.shape[-1])
        packed = pack(_turned(patterns), self.format.code.bits)
        shared = tuple(map(_turned, self.shared))
        *outer, rows, columns = self.shape
        shape = *outer, columns, rows
        return Coded(self.format.turned(), shape, packed, self.table, shared)

    def values(self) -> Array:
        """The tensor, each step rounded as the format says."""
        bits, box = self.format.code.bits, self.format.common_box(self.shape)
        patterns = unpack(self.packed, bits, self.shape[-1])
        is_even = all(extent % side == 0 for extent, side in zip(self.shape, box, strict=True))
        if is_even and math.prod(box) >= _MANY << bits:
            return self._picked(patterns, self.of_each(_COUNTED[: 1 << bits], box), box)
        return self._decoded(
            patterns,
            [spread(*own, self.shape) for own in zip(self.format.shared, self.shared, strict=True)],
        )

    def _picked(self, patterns: Array, values: Array, box: Sequence[int]) -> Array:
        """The values of codes, picked of those that :meth:`of_each` has for each box."""
        found = np.empty(self.shape, values.dtype)
        flat, out = bits_of(values).reshape(-1), bits_of(found)
        sides = zip(self.shape, box, strict=True)
        at = np.ix_(*(np.arange(extent) // side for extent, side in sides))
        rows = max(1, _AT_ONCE // math.prod(self.shape[1:]))
        for start in range(0, self.shape[0], rows):
            part = slice(start, start + rows)
            number = np.ravel_multi_index(
                np.broadcast_arrays(patterns[part], at[0][part], *at[1:]), values.shape
            )
            np.take(flat, number, out=out[part], mode="clip")
        return found

    def of_each(self, patterns: Array, box: Sequence[int]) -> Array:
        """Values that some codes would have in each box of the tensor.

        Args:
            patterns: their bits, of one dimension.
            box: extents of boxes, each of which is within one of every operand's.

        Returns:
            The values, of ``len(patterns)`` and of the numbers of boxes in each dimension.
        """
        boxes = [-(-extent // side) for extent, side in zip(self.shape, box, strict=True)]
        operands = []
        for shared, array in zip(self.format.shared, self.shared, strict=True):
            sides = [-(-own // side) for own, side in zip(shared.box, box, strict=True)]
            within = replace(shared, box=tuple(sides))
            operands.append(spread(within, array, boxes))
        return self._decoded(patterns.reshape(-1, *(1 for _ in boxes)), operands)

    def _decoded(self, patterns: Array, operands: Sequence[Array]) -> Array:
        """The values of codes with the operands of all steps, which broadcast with these."""
        form = self.format
        numbers = self.table if self.table is not None else numbers_of(form.code)
        value = looked_up(numbers.astype(numpy_dtype(form.entry)), patterns)
        steps: list[np.ufunc] = [np.subtract] * (form.zero is not None)
        steps += [np.multiply] * len(form.scales) + [np.add] * (form.offset is not None)
        with np.errstate(all="ignore"):  # NaN and infinities are meant
            for step, shared, operand in zip(steps, form.shared, operands, strict=True):
                dtype = numpy_dtype(shared.dtype)
                value = step(value.astype(dtype, copy=False), operand.astype(dtype, copy=False))
            return value.astype(numpy_dtype(form.dtype), copy=False)


def _turned(matrices: Array) -> Array:
    """Matrices with their axes exchanged, as they lie in memory then."""
    return np.ascontiguousarray(matrices.swapaxes(-1, -2))


def stacked(parts: Sequence[Coded]) -> Coded | None:
    """Stack matrices: the first rows are those of the first matrix, and so on.

    Returns:
        ``None`` where these have other columns, are kept in formats that differ in more than how
        many rows a box has, or have other tables.
    """
    first = parts[0]
    form = stacked_format([part.format for part in parts], [part.shape[0] for part in parts])
    if form is None or any(part.shape[1:] != first.shape[1:] for part in parts):
        return None
    tables = {None if part.table is None else part.table.tobytes() for part in parts}
    if len(tables) > 1:
        return None

    def shared(place: int) -> Array:
        side = form.shared[place].box[0]
        return np.concatenate([_with_side(part, place, side) for part in parts])

    rows = sum(part.shape[0] for part in parts)
    packed = np.concatenate([part.packed for part in parts])
    own = tuple(map(shared, range(len(form.shared))))
    return Coded(form, (rows, *first.shape[1:]), packed, first.table, own)


def _with_side(part: Coded, place: int, side: int) -> Array:
    """Shared numbers for boxes of ``side`` rows, which divide the boxes that there are."""
    own = min(part.format.shared[place].box[0], part.shape[0])
    return np.repeat(part.shared[place], -(-own // side), axis=0)[: -(-part.shape[0] // side)]


def numpy_dtype(name: str) -> Any:
    """NumPy's element type, or ml_dtypes', of this name."""
    return np.dtype(getattr(ml_dtypes, name, name))


def pack(patterns: Array, bits: int) -> Array:
    """Codes in bytes, the first code of a row in the lowest bits of its first byte.

    Of 4 bits, element ``2 i`` is the low half of byte ``i``, element ``2 i + 1`` the high one.
    Where the bits do not divide 8, codes go across bytes.

    Args:
        patterns: uint8, each below ``2**bits``; of one dimension at least.
        bits: bits of a code, 1 to 8.

    Returns:
        uint8; rows (along the last axis) of ``ceil(extent * bits / 8)`` bytes.
    """
    if _BYTE % bits:
        flags = np.unpackbits(patterns[..., None], axis=-1, count=bits, bitorder="little")
        rows = flags.reshape(*patterns.shape[:-1], patterns.shape[-1] * bits)
        return np.packbits(rows, axis=-1, bitorder="little")
    per_byte = _BYTE // bits
    if missing := -patterns.shape[-1] % per_byte:
        patterns = np.pad(patterns, [(0, 0)] * (patterns.ndim - 1) + [(0, missing)])
    packed = patterns[..., ::per_byte].copy()
    for place in range(1, per_byte):
        packed |= patterns[..., place::per_byte] << np.uint8(place * bits)
    return packed


def unpack(packed: Array, bits: int, extent: int) -> Array:
    """The codes that :func:`pack` put into bytes, uint8; ``extent`` of them in each row."""
    if _BYTE % bits:
        flags = np.unpackbits(packed, axis=-1, count=extent * bits, bitorder="little")
        rows = flags.reshape(*packed.shape[:-1], extent, bits)
        return np.packbits(rows, axis=-1, bitorder="little")[..., 0]
    codes = np.empty((*packed.shape, _BYTE // bits), np.uint8)
    for place in range(_BYTE // bits):
        codes[..., place] = packed >> np.uint8(place * bits) & np.uint8((1 << bits) - 1)
    return codes.reshape(*packed.shape[:-1], -1)[..., :extent]


def looked_up(table: Array, numbers: Array) -> Array:
    """The entries of a table that numbers, which are all within it, count from 0.

    Entries that count up, modulo a power of 2, are sums: the patterns of integers are. NumPy makes
    int64 of all numbers that it is given to look up at once, so it is given few.
    """
    if table.dtype == numbers.dtype == np.uint8:
        first, mask = table[0], np.uint8((1 << int(table.max()).bit_length()) - 1)
        if np.array_equal((_COUNTED[: len(table)] + first) & mask, table):
            return (numbers + first) & mask if first else numbers
    found = np.empty(numbers.shape, table.dtype)
    flat, out = numbers.reshape(-1), found.reshape(-1)
    for start in range(0, flat.size, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        np.take(table, flat[part], out=out[part], mode="clip")
    return found


def bits_of(array: Array) -> Array:
    """The elements as unsigned integers of as many bytes."""
    return array.view(f"uint{array.itemsize * _BYTE}")


def have_same_bits(a: Array, b: Array) -> bool:
    """Whether two tensors have the same bits, but for those of what is no number."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    is_other = bits_of(a) != bits_of(b)
    return not is_other.any() or bool(np.all(np.isnan(a[is_other]) & np.isnan(b[is_other])))


def numbers_of(code: Code) -> Array:
    """Numbers that the ``2**bits`` codes stand for, in their order: int32, or float32 for floats.

    Raises:
        ValueError: the codes are entries of a table, which it is for others to know.
    """
    if isinstance(code, Entries):
        raise ValueError("only a table knows what its entries are")
    patterns = np.arange(1 << code.bits, dtype=np.int32)
    if isinstance(code, Integers):
        is_negative = code.is_signed & (patterns >> (code.bits - 1))
        return patterns - (is_negative << code.bits)
    return _numbers_of_floats(code, patterns)


def _numbers_of_floats(code: Floats, patterns: Array) -> Array:
    """Values of bit patterns in a floating-point format, as float32."""
    magnitude = patterns % (1 << (code.exponent + code.mantissa))
    exponent, fraction = magnitude >> code.mantissa, magnitude % (1 << code.mantissa)
    is_tiny = (exponent == 0) & code.is_signed
    significand = np.where(is_tiny, 0, 1 << code.mantissa) + fraction
    power = np.where(is_tiny, 1, exponent) - code.bias - code.mantissa
    numbers = np.ldexp(significand.astype(np.float64), power)
    special = magnitude - code.first_special
    numbers = np.where(special >= 0, np.where(special < code.infinities, np.inf, np.nan), numbers)
    return np.where(patterns == magnitude, numbers, -numbers).astype(np.float32)


def spread(shared: Shared, array: Array, shape: Sequence[int]) -> Array:
    """Shared numbers, each repeated for all elements of its box.

    Args:
        shared: numbers that boxes share, with their boxes.
        array: one value for each box; patterns where ``shared`` keeps floats of a byte.
        shape: shape of the tensor.
    """
    if isinstance(shared.stored, Floats):
        array = numbers_of(shared.stored)[array]
    for axis, (extent, side) in enumerate(zip(shape, shared.box, strict=True)):
        if side > 1 and array.shape[axis] > 1:
            array = np.repeat(array, side, axis)
        array = array[(slice(None),) * axis + (slice(0, extent),)]
    return np.broadcast_to(array, tuple(shape))
