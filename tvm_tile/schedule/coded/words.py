"""Words of two halves each, and the instructions that make others of them."""

from __future__ import annotations

import struct
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

BOTH = 0x00010001
"""A half's bits times this are those of two."""
SIGNS = 0x8000 * BOTH
WORD = 32  # bits
_HALF = 16  # bits
_MASK_AND_TURN = (0xF0 & 0xCC) ^ 0xAA  # what the instruction makes of bits of three operands
_PLUS_ONE = 0x3F80  # of bfloat16


def word(value: int) -> Any:
    """A constant."""
    return tirx.const(value, "uint32")


def moved(value: Any, up: int) -> Any:
    """A word with its bits ``up`` places higher, or lower if that is negative."""
    if up == 0:
        return value
    return value << word(up) if up > 0 else value >> word(-up)


def registers(count: int) -> list[Any]:
    """Allocate words in registers of a thread."""
    buffer = ib.alloc_buffer((count,), "uint32", scope="local")
    return [buffer[place] for place in range(count)]


def bits_of(number: float, dtype: str) -> int:
    """The bits of a half, a number that an element type has exactly."""
    if dtype == "float16":
        return int.from_bytes(struct.pack("<e", number), "little")
    return int.from_bytes(struct.pack("<f", number), "little") >> _HALF


def halves(number: float, dtype: str) -> Any:
    """A number that an element type has exactly, twice."""
    return word(bits_of(number, dtype) * BOTH)


def twice(value: Any, dtype: str) -> Any:
    """An integer as two halves of an element type that has it exactly."""
    wide = tirx.Cast("float32", value)
    if dtype == "float16":
        bits = tirx.Cast("uint32", tirx.reinterpret("uint16", tirx.Cast("float16", wide)))
        return ib.Bind(bits * word(BOTH))
    bits = tirx.reinterpret("uint32", wide)  # of as many bits as there are, no other is set
    return ib.Bind((bits & word(0xFFFF0000)) | (bits >> word(_HALF)))


def choose_bytes(result: Any, low: Any, high: Any, chosen: Any) -> None:
    """Four bytes of two words: each by its number, 4 bits of ``chosen``, the lowest ones first."""
    ib.evaluate(T.ptx["prmt.b32"](result, low, high, chosen))


def mask_and_turn(result: Any, value: Any, mask: int, turned: int) -> None:
    """``(value & mask) ^ turned``, in one instruction: of two constants compilers make two."""
    ib.evaluate(T.ptx["lop3.b32"](result, value, word(mask), word(turned), _MASK_AND_TURN))


def multiply(dtype: str, result: Any, value: Any, factor: Any) -> None:
    """The products of two pairs of halves.

    Of bfloat16 products come with sm_90, sums of them before: -0.0 changes none.
    """
    if dtype == "float16":
        ib.evaluate(T.ptx["mul.rn.f16x2"](result, value, factor))
        return
    ib.evaluate(T.ptx["fma.rn.bf16x2"](result, value, factor, word(SIGNS)))


def multiply_add(dtype: str, result: Any, value: Any, factor: Any, added: Any) -> None:
    """The sums of pairs of halves and products, rounded once."""
    kind = "f16x2" if dtype == "float16" else "bf16x2"
    ib.evaluate(T.ptx[f"fma.rn.{kind}"](result, value, factor, added))


def add(dtype: str, result: Any, value: Any, added: Any) -> None:
    """The sums of two pairs of halves; bfloat16's come with sm_90, of products before."""
    if dtype == "float16":
        ib.evaluate(T.ptx["add.rn.f16x2"](result, value, added))
        return
    multiply_add(dtype, result, value, word(_PLUS_ONE * BOTH), added)
