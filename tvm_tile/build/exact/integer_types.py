"""Arithmetic of integers written so that it wraps, and the ranges of their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from tvm_tile.registered import type_like

Spelling = Callable[[Any], Any]
"""From a sum, difference, product, shift or complement of integers to the same, cut to its type,
where that is defined whatever the numbers are."""

_HALF = 32  # bits of half a long integer


def in_unsigned(node: Any) -> Any:
    """Arithmetic in the unsigned type of 32 or 64 bits, where C, CUDA, HIP and OpenCL wrap."""
    return _in_type(node, "uint64" if bits_of(node) > _HALF else "uint32")


def in_unsigned_on_nvidia(node: Any) -> Any:
    """The form of :func:`in_unsigned` for NVIDIA; negations of 16 bits are put together of bytes.

    Of these NVIDIA's assembler (ptxas 13.0) takes the least one's to be 32768 where it is compared:
    ``-x <= x`` was false. Bytes that are put together again it takes for what they are.
    """
    value = _negated(node)
    if value is None or bits_of(node) != 16 or is_unsigned(node):
        return in_unsigned(node)
    zero, lower = tirx.const(0, "uint32"), tirx.const(0x4410, "uint32")
    negated = tirx.Sub(zero, tirx.Cast("uint32", value))
    return tirx.Cast(node.ty, tirx.call_pure_extern("uint32", "__byte_perm", negated, zero, lower))


def _negated(node: Any) -> Any:
    """Operand of a negation, written as ``0 - x`` or ``x * -1``; None for other nodes."""
    if isinstance(node, tirx.Sub):
        return node.b if _is_number(node.a, 0) else None
    if not isinstance(node, tirx.Mul):
        return None
    return node.a if _is_number(node.b, -1) else node.b if _is_number(node.a, -1) else None


def _is_number(value: Any, number: int) -> bool:
    """Whether a value is this number."""
    return isinstance(value, tirx.IntImm) and int(value.value) == number


def in_longer(node: Any) -> Any:
    """Arithmetic as TVM's LLVM does it rightly, to which no integer overflows, signed or not.

    Up to 32 bits it is done in 64, and what has 64 bits in halves.
    """
    if bits_of(node) <= _HALF:
        is_long = isinstance(node, tirx.Mul) and is_unsigned(node)
        return _in_type(node, "uint64" if is_long else "int64")
    return node if isinstance(node, tirx.LShift | tirx.BitwiseNot) else _in_halves(node)


def _in_type(node: Any, wide: str) -> Any:
    """Integer arithmetic in a wider type, converted back."""
    operands = (node.a,) if isinstance(node, tirx.BitwiseNot) else (node.a, node.b)
    return tirx.Cast(node.ty, type(node)(*(_converted(wide, operand) for operand in operands)))


def _converted(wide: str, value: Any) -> Any:
    """A number or as many as a vector has, in a wider type, whose range it is taken modulo."""
    if isinstance(value, tirx.IntImm):
        number = int(value.value)
        return tirx.const(number % 2 ** int(wide[4:]) if wide.startswith("uint") else number, wide)
    return tirx.Cast(type_like(wide, value), value)


def _in_halves(node: Any) -> Any:
    """A sum, difference or product of 64 bits, of which no part overflows."""
    wide = "uint64"
    half, ones = tirx.const(_HALF, wide), tirx.const(2**_HALF - 1, wide)
    a, b = tirx.Var("a", wide), tirx.Var("b", wide)

    def low(value: Any) -> Any:
        return tirx.BitwiseAnd(value, ones)

    def high(value: Any) -> Any:
        return tirx.RShift(value, half)

    if isinstance(node, tirx.Mul):
        lower = tirx.Mul(low(a), low(b))
        crossed = (tirx.Mul(high(a), low(b)), tirx.Mul(low(a), high(b)))
        upper = [low(value) for value in crossed]
    else:
        other = tirx.BitwiseNot(b) if isinstance(node, tirx.Sub) else b
        lower = tirx.Add(low(a), low(other))
        if isinstance(node, tirx.Sub):
            lower = tirx.Add(lower, tirx.const(1, wide))
        upper = [high(a), high(other)]
    whole = tirx.Var("whole", wide)
    carried = tirx.Add(tirx.Add(upper[0], upper[1]), high(whole))
    result = tirx.BitwiseOr(tirx.LShift(carried, half), low(whole))
    halves = tirx.Let(whole, lower, result)
    operands = [_converted(wide, value) for value in (node.a, node.b)]
    return tirx.Cast(node.ty, tirx.Let(a, operands[0], tirx.Let(b, operands[1], halves)))


def _dtype(value: Any) -> str:
    """Element type of a value."""
    return str(value.ty.dtype).partition("x")[0]


def is_integer(value: Any) -> bool:
    """Whether an expression is an integer, or several; truths are none."""
    return _dtype(value).startswith(("int", "uint"))


def is_unsigned(value: Any) -> bool:
    """Whether an integer expression has no sign."""
    return _dtype(value).startswith("uint")


def bits_of(value: Any) -> int:
    """How many bits each integer of an expression has."""
    return int(_dtype(value).partition("int")[2])


def limits_of(value: Any) -> tuple[int, int]:
    """The least and the largest number of an integer expression's type."""
    bits = bits_of(value)
    return (0, 2**bits - 1) if is_unsigned(value) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
