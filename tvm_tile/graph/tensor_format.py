"""Formats of tensors whose values are kept as codes of a few bits, as frozen data without TVM.

A value is made of its code in this order, and rounded after each step to the step's element type::

    number of the code    Integers, Floats: what its bits mean; Entries: what a table has there
    - zero                one value for each box of the tensor
    * scale               for each scale: one value for each box
    + offset              one value for each box
    cast                  to the element type of the values

:mod:`tvm_tile.graph.codes` packs, unpacks and decodes.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

_BYTE = 8  # bits


def _check_bits(bits: int) -> None:
    """Refuse codes of less than 1 bit or more than a byte."""
    if not 1 <= bits <= _BYTE:
        raise ValueError(f"codes have 1 to {_BYTE} bits, not {bits}")


@dataclass(frozen=True, slots=True)
class Integers:
    """Codes that are integers, two's complement where ``is_signed``; of 1 to 8 bits."""

    bits: int
    is_signed: bool

    def __post_init__(self) -> None:
        _check_bits(self.bits)

    def __str__(self) -> str:
        return f"{'int' if self.is_signed else 'uint'}{self.bits}"


@dataclass(frozen=True, slots=True)
class Entries:
    """Codes that number the entries of a table of ``2**bits`` values; of 1 to 8 bits."""

    bits: int

    def __post_init__(self) -> None:
        _check_bits(self.bits)

    def __str__(self) -> str:
        return f"table of {1 << self.bits}"


@dataclass(frozen=True, slots=True)
class Floats:
    """Codes that are floating-point numbers: a sign, if any, an exponent, a mantissa.

    Attributes:
        exponent: its bits, biased by :attr:`bias`; 0 means a subnormal number if there is a sign.
        mantissa: its bits.
        is_signed: whether the highest bit is a sign.
        first_special: codes from this one on, the sign left out, are infinity or NaN.
        infinities: how many of the special codes, the first ones, are infinity.
    """

    exponent: int
    mantissa: int
    is_signed: bool
    first_special: int
    infinities: int = 0

    def __post_init__(self) -> None:
        _check_bits(self.bits)

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return self.exponent + self.mantissa + self.is_signed

    @property
    def bias(self) -> int:
        """Number that is subtracted from the exponent."""
        return int((1 << (self.exponent - 1)) - 1)

    def __str__(self) -> str:
        return f"float{self.bits} e{self.exponent}m{self.mantissa}"


E2M1 = Floats(2, 1, True, 8)
E4M3 = Floats(4, 3, True, 0x7F)
E5M2 = Floats(5, 2, True, 0x7C, infinities=1)
E8M0 = Floats(8, 0, False, 0xFF)

Code = Integers | Floats | Entries


@dataclass(frozen=True, slots=True)
class Shared:
    """A tensor of one value for each box of another, and the step that it is an operand of.

    Attributes:
        box: extents of a box, one a dimension; the last box of a dimension may be cut off.
        stored: element type of its values in memory, or what codes of a byte each mean.
        dtype: element type in which the step is computed, and to which it is rounded.
    """

    box: tuple[int, ...]
    stored: str | Floats
    dtype: str

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """How many boxes there are in a tensor of this shape, along each dimension."""
        return tuple(-(-extent // side) for extent, side in zip(shape, self.box, strict=True))

    def bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of the shared values of a tensor of this shape."""
        size = 1 if isinstance(self.stored, Floats) else bytes_of(self.stored)
        return math.prod(self.shape(shape)) * size

    def __str__(self) -> str:
        box = " x ".join(map(str, self.box))
        return f"{self.stored} for each {box}"


@dataclass(frozen=True, slots=True)
class TensorFormat:
    """How a tensor is kept.

    Attributes:
        code: meaning of the bits of a code.
        entry: element type of the table's entries; of other codes that of their numbers, which it
            holds exactly.
        dtype: element type of the values.
        zero: numbers that are subtracted first.
        scales: factors, in the order of multiplication.
        offset: numbers that are added last.
    """

    code: Code
    entry: str
    dtype: str
    zero: Shared | None = None
    scales: tuple[Shared, ...] = ()
    offset: Shared | None = None

    @property
    def shared(self) -> tuple[Shared, ...]:
        """The operands of all steps, in their order."""
        zero = () if self.zero is None else (self.zero,)
        return (*zero, *self.scales, *(() if self.offset is None else (self.offset,)))

    def turned(self) -> TensorFormat:
        """The format of the transposed matrix, or of those of a stack."""
        boxes = [shared.box for shared in self.shared]
        return self.with_boxes([(*box[:-2], box[-1], box[-2]) for box in boxes])

    def by_row(self) -> TensorFormat:
        """The format with boxes within rows: what a box shares, each of its rows has."""
        return self.with_boxes([(1, *shared.box[1:]) for shared in self.shared])

    def with_boxes(self, boxes: Sequence[tuple[int, ...]]) -> TensorFormat:
        """The format with other boxes, in the order of :attr:`shared`."""
        shared = [replace(own, box=box) for own, box in zip(self.shared, boxes, strict=True)]
        zero = None if self.zero is None else shared.pop(0)
        offset = None if self.offset is None else shared.pop()
        return replace(self, zero=zero, scales=tuple(shared), offset=offset)

    def common_box(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The largest box whose elements have all operands in common, wherever it begins."""

        def side(axis: int, extent: int) -> int:
            sides = [shared.box[axis] for shared in self.shared]
            return math.gcd(*(own for own in sides if own < extent)) or extent

        return tuple(side(axis, extent) for axis, extent in enumerate(shape))

    def packed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Bytes of the codes of a tensor; each row (along the last axis) begins with a byte."""
        return (*shape[:-1], -(-shape[-1] * self.code.bits // _BYTE))

    def bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of all that is kept of a tensor of this shape: codes, table and shared values."""
        table = bytes_of(self.entry) << self.code.bits if isinstance(self.code, Entries) else 0
        shared = sum(shared.bytes(shape) for shared in self.shared)
        return math.prod(self.packed_shape(shape)) + table + shared

    def value_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of the decoded values of a tensor of this shape."""
        return math.prod(shape) * bytes_of(self.dtype)

    def __str__(self) -> str:
        return ", ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        """Words for the parts of a format."""
        yield f"{self.code} of {self.entry}" if isinstance(self.code, Entries) else str(self.code)
        if self.zero is not None:
            yield f"zero {self.zero}"
        for scale in self.scales:
            yield f"scale {scale}"
        if self.offset is not None:
            yield f"offset {self.offset}"


def stacked_format(formats: Sequence[TensorFormat], rows: Sequence[int]) -> TensorFormat | None:
    """How a matrix is kept whose first rows are one matrix, the next ones another, and so on.

    A box has as many rows as divide those of all matrices' boxes, wherever these begin: so what is
    shared by more rows is kept several times.

    Args:
        formats: formats of the matrices, which agree along columns.
        rows: rows of each matrix.

    Returns:
        ``None`` where the formats differ in more than how many rows a box has.
    """
    first = formats[0]
    if any(form.by_row() != first.by_row() for form in formats):
        return None
    starts = tuple(itertools.accumulate(rows[:-1]))

    def side(sides: Sequence[int]) -> int:
        cut = [own for own, count in zip(sides, rows, strict=True) if own < count]
        return math.gcd(*starts, *cut) or sides[0]

    boxes = [
        (side([own.box[0] for own in owns]), *owns[0].box[1:])
        for owns in zip(*(form.shared for form in formats), strict=True)
    ]
    return first.with_boxes(boxes)


def bytes_of(dtype: str) -> int:
    """Bytes of an element of ``dtype``, as TVM spells it.

    Raises:
        ValueError: the type has no bytes of its own.
    """
    digits = re.search(r"\d+", dtype)
    if digits is None or int(digits.group()) % _BYTE:
        raise ValueError(f"an element of {dtype} is not of whole bytes")
    return int(digits.group()) // _BYTE
