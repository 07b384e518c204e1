"""Find the codes, boxes and steps behind a tensor by its values, in NumPy.

Whoever computes a constant follows it in a :class:`Traced`, from the integers (or floats of a few
bits) on that become numbers; :func:`encoded` finds in the values, not in how they were spelled, of
how few bits the integers are, which boxes of the tensor share an operand, and what holds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tvm_tile.graph.codes import Array, Coded, numbers_of, numpy_dtype, pack
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

_MOST_ENTRIES = 256
_HALVES = ("float16", "bfloat16")
_FLOATS: dict[str, tuple[Floats, ...]] = {
    "float4_e2m1fn": (E2M1,),
    "float8_e4m3fn": (E2M1, E4M3),
    "float8_e5m2": (E2M1, E5M2),
}


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """What a step subtracts, multiplies or adds; it broadcasts with the codes."""

    values: Array
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A tensor that is computed of codes, so far.

    Attributes:
        codes: integers, truth values, or floats of 8 or 4 bits.
        dtype: element type of the values.
        table: of floats, whose entries the codes number.
        zero: what was subtracted first.
        scales: what was multiplied with then.
        offset: what was added last.
    """

    codes: Array
    dtype: str
    table: Array | None = None
    zero: Operand | None = None
    scales: tuple[Operand, ...] = ()
    offset: Operand | None = None

    @property
    def is_float(self) -> bool:
        """Whether the values are floating-point numbers."""
        return "float" in self.dtype

    def cast(self, dtype: str) -> Traced:
        """The same values in another element type.

        A product that is rounded to float32 and then to a half, is the half's own product where
        the first rounding changed nothing, as it does not for codes of 8 bits.
        """
        if dtype in _HALVES and self.scales and self.offset is None:
            *others, last = self.scales
            if last.dtype == "float32" and _holds(last.values, dtype):
                return replace(self, dtype=dtype, scales=(*others, Operand(last.values, dtype)))
        return replace(self, dtype=dtype)

    def less(self, values: Array) -> Traced | None:
        """These values, less others; ``None`` where no format has such a step."""
        if self.scales or self.zero is not None:
            return self.plus(-values) if self.is_float else None
        return replace(self._like(values), zero=Operand(values, self.dtype))

    def plus(self, values: Array) -> Traced | None:
        """The sum with others; ``None`` where no format has such a step.

        Nor has any a sum with a product in float32: compilers may fuse the two, and the last bit is
        another one then.
        """
        if not self.scales and self.zero is None:
            return self.less(-values if self.is_float else -values.astype(np.int64))
        is_fused = any(own.dtype not in _HALVES for own in self.scales[-1:])
        if not self.is_float or self.offset is not None or is_fused:
            return None
        return replace(self._like(values), offset=Operand(values, self.dtype))

    def times(self, values: Array) -> Traced | None:
        """The product with others; ``None`` where no format has such a step."""
        if not self.is_float or self.offset is not None:
            return None
        scale = Operand(values, self.dtype)
        return replace(self._like(values), scales=(*self.scales, scale))

    def moved(self, move: Callable[[Array], Array | None]) -> Traced | None:
        """The elements elsewhere, as a function of a tensor of them moves them."""
        codes = move(self.codes)
        if codes is None:
            return None

        def operand(own: Operand) -> Operand:
            values = move(np.broadcast_to(own.values, self.codes.shape))
            assert values is not None
            return Operand(values, own.dtype)

        return replace(
            self,
            codes=codes,
            zero=None if self.zero is None else operand(self.zero),
            scales=tuple(map(operand, self.scales)),
            offset=None if self.offset is None else operand(self.offset),
        )

    def _like(self, values: Array) -> Traced:
        """The same, of the shape that it has together with an operand."""
        shape = np.broadcast_shapes(self.codes.shape, values.shape)
        return replace(self, codes=np.broadcast_to(self.codes, shape))


def encoded(traced: Traced) -> Coded | None:
    """The fewest bits that keep a tensor by its steps; ``None`` where its codes have more than 8.

    Whether these are its values, decoding tells.
    """
    traced = _without_uniform_zero(traced)
    found = _coded(traced)
    if found is None:
        return None
    code, entry, patterns, table = found
    shape = traced.codes.shape
    is_half = traced.dtype in _HALVES
    halves = (traced.dtype, *(own for own in _HALVES if own != traced.dtype)) if is_half else ()
    zero, offset = (
        None if own is None else _shared(own, shape, halves) for own in (traced.zero, traced.offset)
    )
    scales = [_shared(own, shape, halves) for own in traced.scales]
    form = TensorFormat(
        code,
        entry,
        traced.dtype,
        None if zero is None else zero[0],
        tuple(shared for shared, _ in scales),
        None if offset is None else offset[0],
    )
    kept = [own[1] for own in (zero, *scales, offset) if own is not None]
    return Coded(form, shape, pack(patterns, code.bits), table, tuple(kept))


def _without_uniform_zero(traced: Traced) -> Traced:
    """Codes from which their zero point is subtracted, if it is one for all and adds no bits."""
    zero = None if traced.zero is None else traced.zero.values
    if zero is None or not np.all(zero == zero.flat[0]):
        return traced
    number, before = float(zero.flat[0]), _coded(traced)
    if number == 0:
        return replace(traced, zero=None)
    if before is None or not isinstance(before[0], Integers) or not number.is_integer():
        return traced
    shifted = replace(traced, codes=traced.codes.astype(np.int32) - int(number), zero=None)
    after = _coded(shifted)
    return shifted if after is not None and after[0].bits <= before[0].bits else traced


def _coded(traced: Traced) -> tuple[Code, str, Array, Array | None] | None:
    """The code, the type of its numbers, the code of each element, and the table, if any."""
    codes = traced.codes
    if traced.table is not None:
        return _entries(codes, traced.table)
    if codes.dtype.kind in "iub":
        return _integers(codes)
    name = codes.dtype.name
    patterns = codes.view(np.uint8)
    for code in _FLOATS.get(name, ()):
        if code.bits == 8 or name.startswith("float4"):
            return code, "float32", patterns & np.uint8((1 << code.bits) - 1), None
        numbers = codes.astype(np.float32)
        own = numbers_of(code)
        order = np.argsort(own, kind="stable")
        place = order[np.clip(np.searchsorted(own[order], numbers), 0, len(own) - 1)]
        place = np.where(np.signbit(numbers) & (numbers == 0), np.argmax(np.signbit(own)), place)
        if np.array_equal(own[place].view(np.uint32), numbers.view(np.uint32)):
            return code, "float32", place.astype(np.uint8), None
    everything = np.arange(_MOST_ENTRIES, dtype=np.uint8).view(codes.dtype)
    return _entries(patterns, everything.astype(np.float32))


def _entries(numbers: Array, table: Array) -> tuple[Code, str, Array, Array] | None:
    if numbers.min() < 0 or numbers.max() >= min(len(table), _MOST_ENTRIES):
        return None
    bits = max(int(numbers.max()).bit_length(), 1)
    whole = np.resize(table, 1 << bits)  # entries that no code numbers may be any
    return Entries(bits), table.dtype.name, numbers.astype(np.uint8), whole


def _integers(codes: Array) -> tuple[Code, str, Array, None] | None:
    low, high = int(codes.min()), int(codes.max())
    is_signed = low < 0
    bits = max(high.bit_length(), (-low - 1).bit_length()) + 1 if is_signed else high.bit_length()
    if bits > 8:
        return None
    code = Integers(max(bits, 1), is_signed)
    patterns = codes.astype(np.int16) & ((1 << code.bits) - 1)
    return code, "int32", patterns.astype(np.uint8), None


def _shared(
    operand: Operand, shape: tuple[int, ...], halves: tuple[str, ...]
) -> tuple[Shared, Array]:
    values = operand.values.reshape(
        (1,) * (len(shape) - operand.values.ndim) + operand.values.shape
    )
    box = tuple(_side(values, axis, extent) for axis, extent in enumerate(shape))
    kept = values[tuple(slice(None, None, side) for side in box)]
    stored, held = _narrowest(kept, operand.dtype, halves)
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
    rows = np.moveaxis(values, axis, 0)
    changes = (rows[1:] != rows[:-1]).reshape(extent - 1, -1).any(1)
    places = np.flatnonzero(changes) + 1
    side = int(np.gcd.reduce(places)) if len(places) else extent
    return side if extent % side == 0 else side & -side


def _narrowest(values: Array, dtype: str, halves: tuple[str, ...]) -> tuple[str | Floats, Array]:
    """The element type of fewest bytes that holds some numbers exactly, and they in it.

    Half precision is not for tensors of float32: the device may have none.
    """
    integers = ("uint8", "int8", "int16") if values.dtype.kind in "iu" else ("uint8", "int8")
    for name in integers:
        if _holds(values, name):
            return name, values.astype(name)
    if values.dtype.kind in "iu":
        return "int32", values.astype(np.int32)
    if dtype == "float32" and _holds(values, "float8_e8m0fnu"):
        return E8M0, values.astype(numpy_dtype("float8_e8m0fnu")).view(np.uint8)
    for name in halves:
        if _holds(values, name):
            return name, values.astype(numpy_dtype(name))
    return values.dtype.name, values


def _holds(values: Array, dtype: str) -> bool:
    """Whether an element type has all these numbers, signs of zeros included."""
    with np.errstate(all="ignore"):
        there: Any = values.astype(numpy_dtype(dtype)).astype(values.dtype)
    return np.array_equal(there, values) and np.array_equal(np.signbit(there), np.signbit(values))
