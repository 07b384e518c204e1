"""Integers that are ordered as frameworks order values: NaN is the largest, zeros are equal.

Comparisons of integers are the same on every device and under every compiler option; those of
floating-point numbers are not, where NaN or the sign of zero matter.

Keys are made by masks, not by choices: TVM makes branches of choices between loads, and a thread
would wait in each of them for its element before it asks for the next one.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

_HALVES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_SMALL = ("bool", "int8", "uint8", "int16", "uint16", "int32")
# Of floating-point types: bits of a key, and those of infinity.
_INFINITY = {"float32": (32, 0x7F800000), "float64": (64, 0x7FF << 52)}


def key_bits(dtype: str) -> int:
    """How long the keys of a data type are: 32 or 64 bits.

    Raises:
        ValueError: values of this type have no order.
    """
    if dtype in (*_HALVES, *_SMALL, "float32", "uint32"):
        return 32
    if dtype in ("float64", "int64", "uint64"):
        return 64
    raise ValueError(f"values of type {dtype} cannot be ordered")


def rising_key(value: Any) -> Any:
    """A signed integer of :func:`key_bits` bits that is larger for larger values.

    All NaN have the largest key; negative zero has that of zero.
    """
    dtype = str(value.ty.dtype)
    if dtype in _HALVES:
        return rising_key(tirx.Cast("float32", value))
    if dtype in _INFINITY:
        return _or_largest(value, _key_of_number(value))
    own = f"int{key_bits(dtype)}"
    if dtype in ("uint32", "uint64"):
        return tirx.reinterpret(own, value) ^ tirx.min_value(own)
    return value if dtype == own else tirx.Cast(own, value)


def short_key(value: Any) -> Any:
    """A key as of :func:`rising_key` for a value of at most 16 bits: an int32 that needs no more.

    Raises:
        ValueError: values of this type have no order.
    """
    dtype = str(value.ty.dtype)
    if dtype == "uint16":
        return tirx.Cast("int32", value) - tirx.const(1 << 15, "int32")
    if dtype not in _HALVES:
        return rising_key(value)
    if dtype == "float16":
        bits, infinity = tirx.Cast("int32", tirx.reinterpret("int16", value)), 0x7C00
    else:
        # The upper half of a float32 holds the others without loss.
        wide = tirx.reinterpret("int32", tirx.Cast("float32", value))
        bits, infinity = wide >> tirx.const(16, "int32"), _INFINITY["float32"][1] >> 16
    sign, largest = _sign_mask(bits), tirx.const((1 << 15) - 1, "int32")
    magnitude = bits & largest
    none = _sign_mask(tirx.const(infinity, "int32") - magnitude)
    return (((magnitude ^ sign) - sign) & tirx.bitwise_not(none)) | (none & largest)


def winning_key(value: Any, *, largest: bool) -> Any:
    """A key whose maximum belongs to the largest value, or to the smallest; NaN wins both ways."""
    dtype = str(value.ty.dtype)
    if dtype in _HALVES:
        return winning_key(tirx.Cast("float32", value), largest=largest)
    if largest:
        return rising_key(value)
    if dtype in _INFINITY:
        return _or_largest(value, tirx.bitwise_not(_key_of_number(value)))
    return tirx.bitwise_not(rising_key(value))


def first_key(value: Any, *, largest: bool) -> Any:
    """A key whose minimum belongs to the largest value, or to the smallest; NaN wins both ways.

    For numbers of 32 bits it takes half as many instructions as :func:`winning_key`. Turned round
    where the largest wins, they are moved up until infinity is the largest integer. All NaN are
    below the least number then: those beyond infinity come round.
    """
    dtype = str(value.ty.dtype)
    if dtype in _HALVES:
        return first_key(tirx.Cast("float32", value), largest=largest)
    if dtype != "float32":
        return tirx.bitwise_not(winning_key(value, largest=largest))
    sign, infinity = _sign_mask(_bits(value)), _INFINITY[dtype][1]
    # Of unsigned integers, whose sums wrap, and which TVM does not take for sums without end.
    parts = (tirx.reinterpret("uint32", part) for part in (_magnitude(value) ^ sign, sign))
    turned, one = parts
    up = 2**31 - 1 - infinity
    key = one - turned if largest else turned - one
    moved = tirx.reinterpret("int32", key + tirx.const(up, "uint32"))
    return tirx.max(moved, tirx.const(up - infinity - 1, "int32"))


def extreme_key(value: Any, *, largest: bool) -> Any:
    """A key as of :func:`winning_key` that tells its value, too: zeros are ordered by their signs.

    Of it :func:`extreme_of_key` makes the value again, so that one maximum of integers finds the
    extreme of any type.
    """
    dtype = str(value.ty.dtype)
    if dtype in _HALVES:
        return extreme_key(tirx.Cast("float32", value), largest=largest)
    if dtype not in _INFINITY:
        return winning_key(value, largest=largest)
    bits = key_bits(dtype)
    key = _by_magnitude(tirx.reinterpret(f"int{bits}", value))
    return _or_largest(value, key if largest else tirx.bitwise_not(key))


def extreme_of_key(key: Any, dtype: str, *, largest: bool) -> Any:
    """The value of a type that has an :func:`extreme_key`."""
    if dtype in _HALVES:
        return tirx.Cast(dtype, extreme_of_key(key, "float32", largest=largest))
    rising = key if largest else tirx.bitwise_not(key)
    if dtype in _INFINITY:
        number = tirx.reinterpret(dtype, _by_magnitude(rising))
        is_none = key == _largest(key_bits(dtype))
        return tirx.Select(is_none, tirx.const(math.nan, dtype), number)
    own = f"int{key_bits(dtype)}"
    if dtype in ("uint32", "uint64"):
        return tirx.reinterpret(dtype, rising ^ tirx.min_value(own))
    if dtype == "bool":
        return rising != tirx.const(0, own)
    return rising if dtype == own else tirx.Cast(dtype, rising)


def _by_magnitude(bits: Any) -> Any:
    """Bits of a number, whose magnitude is turned round where it is negative; and back again."""
    return bits ^ (_sign_mask(bits) & _largest(int(str(bits.ty.dtype)[3:])))


def is_nan(value: Any) -> Any:
    """Whether a floating-point number is none, by its bits."""
    dtype = str(value.ty.dtype)
    if dtype in _HALVES:
        return is_nan(tirx.Cast("float32", value))
    return _magnitude(value) > _infinity(dtype)


def _or_largest(value: Any, key: Any) -> Any:
    """The key of a number, or the largest one where that is none."""
    none = _sign_mask(_infinity(str(value.ty.dtype)) - _magnitude(value))
    return (key & tirx.bitwise_not(none)) | (none & _largest(key_bits(str(value.ty.dtype))))


def _key_of_number(value: Any) -> Any:
    """The magnitude of a number, less than zero where it is negative, and 0 of minus zero."""
    sign, magnitude = _sign_mask(_bits(value)), _magnitude(value)
    return (magnitude ^ sign) - sign


def _bits(value: Any) -> Any:
    """Bits of a floating-point number, as a signed integer: a sign and a magnitude."""
    return tirx.reinterpret(f"int{key_bits(str(value.ty.dtype))}", value)


def _magnitude(value: Any) -> Any:
    """Bits of a floating-point number without its sign."""
    return _bits(value) & _largest(key_bits(str(value.ty.dtype)))


def _sign_mask(integer: Any) -> Any:
    """All bits of a negative integer, and none of others."""
    own = str(integer.ty.dtype)
    return integer >> tirx.const(int(own[3:]) - 1, own)


def _infinity(dtype: str) -> Any:
    """Bits of infinity."""
    bits, infinity = _INFINITY[dtype]
    return tirx.const(infinity, f"int{bits}")


def _largest(bits: int) -> Any:
    """The largest integer of so wide a type."""
    return tirx.const(2 ** (bits - 1) - 1, f"int{bits}")
