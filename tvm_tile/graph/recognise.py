"""Find the codes, boxes and steps behind a tensor by its values, in NumPy.

Whoever computes a constant follows it in a :class:`~tvm_tile.graph.traced.Traced`, from the
integers (or floats of a few bits) on that become numbers; :func:`encoded` finds in the values, not
in how they were spelled, of how few bits the integers are, which boxes of the tensor share an
operand, and what holds it. :func:`is_exact` tells whether that has the very bits.

A tensor has few different codes, its alphabet, and few boxes: what its elements are is computed of
each code in each box, which are far fewer than the elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tvm_tile.graph.codes import (
    Array,
    Coded,
    bits_of,
    have_same_bits,
    looked_up,
    numbers_of,
    numpy_dtype,
    pack,
    unpack,
)
from tvm_tile.graph.tensor_format import (
    E2M1,
    E4M3,
    E5M2,
    E8M0,
    Code,
    Entries,
    Floats,
    Integers,
    Shared,
    TensorFormat,
)
from tvm_tile.graph.traced import HALVES, StepOperand, Traced, holds

_MOST_ENTRIES = 256
_FLOATS: dict[str, tuple[Floats, ...]] = {
    "float4_e2m1fn": (E2M1,),
    "float8_e4m3fn": (E2M1, E4M3),
    "float8_e5m2": (E2M1, E5M2),
}


@dataclass(frozen=True, slots=True, eq=False)
class _Alphabet:
    """The different codes of a tensor, at most 256, and which of them each element has.

    Attributes:
        codes: codes in one dimension; some may be no element's.
        places: place in ``codes`` of each element: uint8, in the tensor's shape.
    """

    codes: Array
    places: Array

    @classmethod
    def of(cls, codes: Array) -> _Alphabet | None:
        """The alphabet of a tensor; ``None`` where it has integers of more than 8 bits."""
        if codes.dtype.kind in "iub":
            low, high = int(codes.min()), int(codes.max())
            if low < -_MOST_ENTRIES or high >= _MOST_ENTRIES or high - low >= _MOST_ENTRIES:
                return None
            places = codes.astype(np.uint8, copy=False)  # these wrap around as differences do
            letters = np.arange(low, high + 1).astype(codes.dtype)
            return cls(letters, places - np.uint8(low % _MOST_ENTRIES) if low else places)
        patterns = codes.view(np.uint8)
        is_there = np.zeros(_MOST_ENTRIES, bool)
        for row in patterns.reshape(-1, patterns.shape[-1]):
            is_there[row] = True
        there = np.flatnonzero(is_there).astype(np.uint8)
        places = looked_up((np.cumsum(is_there) - 1).astype(np.uint8), patterns)
        return cls(there.view(codes.dtype), places)


class _Code(NamedTuple):
    """How the codes of an alphabet are kept.

    Attributes:
        code: meaning of the bits of a code.
        entry: element type of what codes mean.
        patterns: the bits of each code of the alphabet, uint8.
        table: entries that the codes number, where they are entries.
    """

    code: Code
    entry: str
    patterns: Array
    table: Array | None


def encoded(traced: Traced) -> Coded | None:
    """The fewest bits that keep a tensor by its steps; ``None`` where its codes have more than 8.

    Whether these are its values, :func:`is_exact` tells.
    """
    alphabet = _Alphabet.of(traced.codes)
    if alphabet is None:
        return None
    traced, found = _without_uniform_zero(traced, alphabet.codes)
    if found is None:
        return None
    shape = traced.codes.shape
    is_half = traced.dtype in HALVES
    halves = (traced.dtype, *(own for own in HALVES if own != traced.dtype)) if is_half else ()
    zero, offset = (
        None if own is None else _shared(own, shape, halves) for own in (traced.zero, traced.offset)
    )
    scales = [_shared(own, shape, halves) for own in traced.scales]
    form = TensorFormat(
        found.code,
        found.entry,
        traced.dtype,
        None if zero is None else zero[0],
        tuple(shared for shared, _ in scales),
        None if offset is None else offset[0],
    )
    kept = [own[1] for own in (zero, *scales, offset) if own is not None]
    patterns = looked_up(found.patterns, alphabet.places)
    return Coded(form, shape, pack(patterns, found.code.bits), found.table, tuple(kept))


def is_exact(traced: Traced, coded: Coded) -> bool:
    """Whether what is kept decodes to the very bits, but for those of what is no number.

    That is seen of each code in each box, where these are fewer than the elements, and all codes
    mean the same in all boxes; else of each element.
    """
    return _is_same_in_boxes(traced, coded) or have_same_bits(traced.values(), coded.values())


def _is_same_in_boxes(traced: Traced, coded: Coded) -> bool:
    """Whether elements have the right codes, and all codes mean the same in all boxes."""
    alphabet, box = _Alphabet.of(traced.codes), coded.format.common_box(coded.shape)
    sides = list(zip(coded.shape, box, strict=True))
    if alphabet is None or any(extent % side for extent, side in sides):
        return False
    if alphabet.codes.size * math.prod(extent // side for extent, side in sides) > coded.size:
        return False
    found = _without_uniform_zero(traced, alphabet.codes)[1]
    operands = (step.operand for step in traced.steps if step.operand is not None)
    if found is None or not all(_is_constant(own, box) for own in operands):
        return False
    wanted = looked_up(found.patterns, alphabet.places)
    if not np.array_equal(unpack(coded.packed, coded.format.code.bits, coded.shape[-1]), wanted):
        return False
    meant, own = traced.of_each(alphabet.codes, box), coded.of_each(found.patterns, box)
    return have_same_bits(*np.broadcast_arrays(meant, own))


def _is_constant(operand: Array, box: Sequence[int]) -> bool:
    """Whether an operand is one value in each box; boxes divide its extents."""
    pairs = [
        (extent // own, own)
        for extent, side in zip(operand.shape, box[len(box) - operand.ndim :], strict=True)
        for own in (min(extent, side),)
    ]
    boxes = bits_of(operand).reshape([extent for pair in pairs for extent in pair])
    return bool(np.all(boxes == boxes[(slice(None), slice(0, 1)) * operand.ndim]))


def _without_uniform_zero(traced: Traced, codes: Array) -> tuple[Traced, _Code | None]:
    """The steps without the zero point, if it is one for all and adds no bits, and how the codes of
    an alphabet are kept then."""
    before = _coded(codes, traced.table)
    zero = None if traced.zero is None else traced.zero.values
    if zero is None or not np.all(zero == zero.flat[0]):
        return traced, before
    number, without = float(zero.flat[0]), replace(traced, zero=None)
    if number == 0:
        return without, before
    if before is None or not isinstance(before.code, Integers) or not number.is_integer():
        return traced, before
    after = _coded(codes.astype(np.int32) - int(number), None)
    is_fit = after is not None and after.code.bits <= before.code.bits
    return (without, after) if is_fit else (traced, before)


def _coded(codes: Array, table: Array | None) -> _Code | None:
    """How the codes of an alphabet are kept; ``None`` where they have more than 8 bits."""
    if table is not None:
        return _entries(codes, table)
    if codes.dtype.kind in "iub":
        return _integers(codes)
    name = codes.dtype.name
    patterns = codes.view(np.uint8)
    for code in _FLOATS.get(name, ()):
        if code.bits == 8 or name.startswith("float4"):
            return _Code(code, "float32", patterns & np.uint8((1 << code.bits) - 1), None)
        numbers = codes.astype(np.float32)
        own = numbers_of(code)
        order = np.argsort(own, kind="stable")
        place = order[np.clip(np.searchsorted(own[order], numbers), 0, len(own) - 1)]
        place = np.where(np.signbit(numbers) & (numbers == 0), np.argmax(np.signbit(own)), place)
        if np.array_equal(own[place].view(np.uint32), numbers.view(np.uint32)):
            return _Code(code, "float32", place.astype(np.uint8), None)
    everything = np.arange(_MOST_ENTRIES, dtype=np.uint8).view(codes.dtype)
    return _entries(patterns, everything.astype(np.float32))


def _entries(numbers: Array, table: Array) -> _Code | None:
    """Codes that number entries of a table; ``None`` where they do not, or are too many."""
    if numbers.min() < 0 or numbers.max() >= min(len(table), _MOST_ENTRIES):
        return None
    if _is_table_of(E2M1, table):
        return _Code(E2M1, "float32", numbers.astype(np.uint8), None)
    bits = max(int(numbers.max()).bit_length(), 1)
    whole = np.resize(table, 1 << bits)  # entries that no code numbers may be any
    return _Code(Entries(bits), table.dtype.name, numbers.astype(np.uint8), whole)


def _is_table_of(code: Floats, table: Array) -> bool:
    """Whether a table has the numbers that all floats of a kind are, in the order of their bits."""
    own, given = numbers_of(code), table.astype(np.float32)
    return have_same_bits(own, given) if given.shape == own.shape else False


def _integers(codes: Array) -> _Code | None:
    """Codes that are integers of at most 8 bits; ``None`` if they have more."""
    low, high = int(codes.min()), int(codes.max())
    is_signed = low < 0
    bits = max(high.bit_length(), (-low - 1).bit_length()) + 1 if is_signed else high.bit_length()
    if bits > 8:
        return None
    code = Integers(max(bits, 1), is_signed)
    patterns = codes.astype(np.int16) & ((1 << code.bits) - 1)
    return _Code(code, "int32", patterns.astype(np.uint8), None)


def _shared(
    operand: StepOperand, shape: tuple[int, ...], halves: tuple[str, ...]
) -> tuple[Shared, Array]:
    """An operand's numbers, one for each box, and how boxes share them."""
    values = operand.values.reshape(
        (1,) * (len(shape) - operand.values.ndim) + operand.values.shape
    )
    sides = []
    for axis in reversed(range(len(shape))):  # of one box one value is left for the next axis
        side = _side(values, axis, shape[axis])
        values = values[(slice(None),) * axis + (slice(None, None, side),)]
        sides.append(side)
    box = tuple(reversed(sides))
    stored, held = _narrowest(values, operand.dtype, halves)
    # Integers wrap around nowhere in 32 bits.
    dtype = operand.dtype if "float" in operand.dtype else "int32"
    return Shared(box, stored, dtype), np.ascontiguousarray(held)


def _side(values: Array, axis: int, extent: int) -> int:
    """The longest stretches of equal values along an axis; the last one may be cut off.

    Of sides that do not divide the extent only powers of two are taken: quotients by others keep
    TVM's simplifier busy for minutes.
    """
    if values.shape[axis] == 1:
        return extent
    bits, before = bits_of(values), (slice(None),) * axis
    later, earlier = (*before, slice(1, None)), (*before, slice(None, -1))
    is_other = bits[later] != bits[earlier]
    changes = is_other.any(tuple(other for other in range(values.ndim) if other != axis))
    places = np.flatnonzero(changes) + 1
    side = int(np.gcd.reduce(places)) if len(places) else extent
    return side if extent % side == 0 else side & -side


def _narrowest(values: Array, dtype: str, halves: tuple[str, ...]) -> tuple[str | Floats, Array]:
    """The element type of fewest bytes that holds some numbers exactly, and they in it.

    Half precision is not for tensors of float32: the device may have none.
    """
    integers = ("uint8", "int8", "int16") if values.dtype.kind in "iu" else ("uint8", "int8")
    for name in integers:
        if holds(values, name):
            return name, values.astype(name)
    if values.dtype.kind in "iu":
        return "int32", values.astype(np.int32)
    if dtype in ("float32", "bfloat16") and holds(values, "float8_e8m0fnu"):
        return E8M0, values.astype(numpy_dtype("float8_e8m0fnu")).view(np.uint8)
    for name in halves:
        if holds(values, name):
            return name, values.astype(numpy_dtype(name))
    return values.dtype.name, values
