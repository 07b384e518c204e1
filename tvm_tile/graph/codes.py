"""Codes of a few bits in NumPy: packed into bytes, unpacked, decoded to values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A tensor that is kept as codes.

    Attributes:
        format: how.
        shape: of its values.
        packed: the codes, uint8, of ``format.packed_shape(shape)``.
        table: of ``2**bits`` entries of ``format.entry``; ``None`` where codes are no entries.
        shared: what boxes share, in the order of ``format.shared``; floats of a byte as uint8.
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
        """What is kept of the transposed matrix, whose codes lie by its rows."""
        patterns = unpack(self.packed, self.format.code.bits, self.shape[-1])
        packed = pack(np.ascontiguousarray(patterns.T), self.format.code.bits)
        shared = tuple(np.ascontiguousarray(array.T) for array in self.shared)
        return Coded(self.format.turned(), self.shape[::-1], packed, self.table, shared)

    def values(self) -> Array:
        """The tensor, each step rounded as the format says."""
        form = self.format
        patterns = unpack(self.packed, form.code.bits, self.shape[-1])
        numbers = self.table if self.table is not None else numbers_of(form.code)
        value = numbers.astype(numpy_dtype(form.entry))[patterns]
        steps: list[np.ufunc] = [np.subtract] * (form.zero is not None)
        steps += [np.multiply] * len(form.scales) + [np.add] * (form.offset is not None)
        with np.errstate(all="ignore"):  # NaN and infinities are meant
            for step, shared, array in zip(steps, form.shared, self.shared, strict=True):
                dtype = numpy_dtype(shared.dtype)
                value = step(value.astype(dtype), spread(shared, array, self.shape).astype(dtype))
            return value.astype(numpy_dtype(form.dtype))


def stacked(parts: Sequence[Coded]) -> Coded | None:
    """What is kept of the matrix whose first rows are one matrix, the next ones another, and so on.

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
    """What boxes share, of boxes of so many rows, which divide those that there are."""
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
        bits: of a code, 1 to 8.

    Returns:
        uint8; rows (along the last axis) of ``ceil(extent * bits / 8)`` bytes.
    """
    if _BYTE % bits:
        flags = np.unpackbits(patterns[..., None], axis=-1, count=bits, bitorder="little")
        rows = flags.reshape(*patterns.shape[:-1], patterns.shape[-1] * bits)
        return np.packbits(rows, axis=-1, bitorder="little")
    per_byte = _BYTE // bits
    missing = -patterns.shape[-1] % per_byte
    padded = np.pad(patterns, [(0, 0)] * (patterns.ndim - 1) + [(0, missing)])
    packed = padded[..., ::per_byte].copy()
    for place in range(1, per_byte):
        packed |= padded[..., place::per_byte] << np.uint8(place * bits)
    return packed


def unpack(packed: Array, bits: int, extent: int) -> Array:
    """The codes that :func:`pack` put into bytes, uint8; ``extent`` of them in each row."""
    if _BYTE % bits:
        flags = np.unpackbits(packed, axis=-1, count=extent * bits, bitorder="little")
        rows = flags.reshape(*packed.shape[:-1], extent, bits)
        return np.packbits(rows, axis=-1, bitorder="little")[..., 0]
    shifts = np.arange(0, _BYTE, bits, dtype=np.uint8)
    codes = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return codes.reshape(*packed.shape[:-1], -1)[..., :extent]


def numbers_of(code: Code) -> Array:
    """What each of the ``2**bits`` codes means, in their order: int32, or float32 of floats.

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
    """What boxes share, as numbers, each as often as its box has elements.

    Args:
        shared: says which boxes.
        array: one value for each box; patterns where ``shared`` keeps floats of a byte.
        shape: of the tensor.
    """
    if isinstance(shared.stored, Floats):
        array = numbers_of(shared.stored)[array]
    for axis, (extent, side) in enumerate(zip(shape, shared.box, strict=True)):
        if side > 1 and array.shape[axis] > 1:
            array = np.repeat(array, side, axis)
        array = array[(slice(None),) * axis + (slice(0, extent),)]
    return np.broadcast_to(array, tuple(shape))
