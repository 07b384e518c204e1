"""Integers that are ordered as frameworks order values: NaN is the largest, zeros are equal.

Comparisons of integers are the same on every device and under every compiler option; those of
floating-point numbers are not, where NaN or the sign of zero matter.
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
        return tirx.Select(is_nan(value), _largest(key_bits(dtype)), _key_of_number(value))
    own = f"int{key_bits(dtype)}"
    if dtype in ("uint32", "uint64"):
        return tirx.reinterpret(own, value) ^ tirx.min_value(own)
    return value if dtype == own else tirx.Cast(own, value)


def winning_key(value: Any, *, largest: bool) -> Any:
    """A key whose maximum belongs to the largest value, or to the smallest; NaN wins both ways."""
    dtype = str(value.ty.dtype)
    key = rising_key(value)
    if largest:
        return key
    falling = tirx.bitwise_not(key)
    if dtype not in (*_HALVES, *_INFINITY):
        return falling
    return tirx.Select(is_nan(value), _largest(key_bits(dtype)), falling)


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
    return tirx.Select(is_nan(value), _largest(bits), key if largest else tirx.bitwise_not(key))


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
    own = str(bits.ty.dtype)
    return tirx.Select(bits >= tirx.const(0, own), bits, bits ^ _largest(int(own[3:])))


def is_nan(value: Any) -> Any:
    """Whether a floating-point number is none, by its bits."""
    dtype = str(value.ty.dtype)
    if dtype in _HALVES:
        return is_nan(tirx.Cast("float32", value))
    bits, infinity = _INFINITY[dtype]
    own = f"int{bits}"
    magnitude = tirx.reinterpret(own, value) & _largest(bits)
    return magnitude > tirx.const(infinity, own)


def _key_of_number(value: Any) -> Any:
    """The bits of a number, those of negative ones turned round.

    Bits are a sign and a magnitude. ``-2**31 - bits`` is minus the magnitude, and 0 of minus zero.
    """
    own = f"int{key_bits(str(value.ty.dtype))}"
    bits = tirx.reinterpret(own, value)
    return tirx.Select(bits >= tirx.const(0, own), bits, tirx.min_value(own) - bits)


def _largest(bits: int) -> Any:
    """The largest integer of so wide a type."""
    return tirx.const(2 ** (bits - 1) - 1, f"int{bits}")
