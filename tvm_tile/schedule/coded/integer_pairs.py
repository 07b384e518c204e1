"""Integers of 2, 4 and 8 bits as pairs of halves.

An integer in the lowest bits of a number whose neighbours are one apart, 1024.0 of float16 and
128.0 of bfloat16, is that many more: subtracted is that number and, of signed codes, whose sign bit
is turned, half of their range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm.tirx.script import builder as ib

from tvm_tile.graph.tensor_format import Integers
from tvm_tile.schedule.coded.words import (
    BOTH,
    SIGNS,
    WORD,
    add,
    choose_bytes,
    halves,
    mask_and_turn,
    moved,
    multiply_add,
    registers,
    twice,
    word,
)

_BYTE = 8  # bits
_ONE = {"float16": (1024, 0x6400), "bfloat16": (128, 0x4300)}
"""A number whose neighbours are one apart, and its bits."""
_BYTES_OF_PAIRS = (0x4140, 0x4342)  # of a word and of upper bytes


@dataclass(frozen=True, slots=True)
class _Integers:
    """Integers of one kind."""

    code: Integers

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return self.code.bits

    @property
    def half(self) -> int:
        """How many more codes are, once their sign bits are turned."""
        return 1 << (self.bits - 1) if self.code.is_signed else 0

    def constants(self, table: Any | None) -> Sequence[Any]:
        """No words: decoding takes no table."""
        assert table is None
        return ()


@dataclass(frozen=True, slots=True)
class IntegerPairs(_Integers):
    """Integers of 2 or 4 bits, half a word apart, perhaps less a zero point.

    Of float16, whose 10 bits hold a byte, a code stays where it is in its byte, at bit ``p``: it is
    ``1024 + code * 2**p``, and times ``2**-p`` less ``1024 * 2**-p`` the code, rounded nowhere.
    """

    dtype: str

    @property
    def apart(self) -> int:
        """How far apart the two codes of a pair are: half a word."""
        return WORD // self.bits // 2

    @property
    def places(self) -> int:
        """Codes of a half that are decoded where they are, ahead of the next shift."""
        return _BYTE // self.bits if self.dtype == "float16" else 1

    @property
    def instructions(self) -> float:
        """Instructions to shift now and then, to put bits together and to subtract."""
        return 2 + (self.apart // self.places - 1) / self.apart

    def subtracted(self, zero: Any | None) -> Sequence[Any]:
        """Constants that are added to pairs: for float16 one for each place, for bfloat16 in turns.

        All of these numbers, and all sums, are integers that the halves have: of float16 up to
        2048, of bfloat16 up to 256, where 128 and a zero point may be more together.
        """
        one, _ = _ONE[self.dtype]
        less = [-(one >> self.bits * place) for place in range(self.places)]
        if zero is None:
            return [halves(number - self.half, self.dtype) for number in less]
        if self.dtype == "bfloat16":
            return [halves(less[0] - self.half, self.dtype), twice(-zero, self.dtype)]
        first = twice(-(zero + (one + self.half)), self.dtype)
        others = registers(self.places - 1)
        for own, number in zip(others, less[1:], strict=True):
            add(self.dtype, own, first, halves(one + number, self.dtype))
        return [first, *others]

    def decode(self, word_: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """``(code | 1024.0) * 2**-p - (1024 * 2**-p + zero)``."""
        for pair, own in enumerate(results):
            turn, place = divmod(pair, self.places)
            source = moved(word_, -turn * self.places * self.bits)
            mask = ((1 << self.bits) - 1 << place * self.bits) * BOTH
            ones = (_ONE[self.dtype][1] | self.half << place * self.bits) * BOTH
            mask_and_turn(own, source, mask, ones)
            if self.dtype == "bfloat16":
                for number in operands:
                    add(self.dtype, own, own, number)
            elif place == 0:
                add(self.dtype, own, own, operands[0])
            else:
                factor = halves(2.0 ** (-place * self.bits), self.dtype)
                multiply_add(self.dtype, own, own, factor, operands[place])


@dataclass(frozen=True, slots=True)
class BytePairs(_Integers):
    """Integers of 8 bits as float16, neighbours, perhaps less a zero point."""

    @property
    def apart(self) -> int:
        """How far apart the two codes of a pair are: they are neighbours."""
        return 1

    @property
    def instructions(self) -> float:
        """Instructions to choose bytes and subtract, and to turn the signs of two pairs, if any."""
        return 2.5 if self.code.is_signed else 2

    def subtracted(self, zero: Any | None) -> Sequence[Any]:
        """Constant that is added to pairs: an integer, as all sums are, of at most 2048."""
        less = _ONE["float16"][0] + self.half
        return [halves(-less, "float16") if zero is None else twice(-(zero + less), "float16")]

    def decode(self, word_: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """``(code | 1024.0) - (1024 + zero)``."""
        upper = word((_ONE["float16"][1] >> _BYTE) * 0x01010101)
        source = ib.Bind(word_ ^ word(0x80808080)) if self.code.is_signed else word_
        for own, chosen in zip(results, _BYTES_OF_PAIRS, strict=True):
            choose_bytes(own, source, upper, word(chosen))
            add("float16", own, own, operands[0])


@dataclass(frozen=True, slots=True)
class SignedBytePairs(_Integers):
    """Signed integers of 8 bits as bfloat16, neighbours.

    Such a number has 7 bits behind 128.0: those of a code but its sign. With that bit alone it is
    256.0, and the difference is the code.
    """

    @property
    def apart(self) -> int:
        """How far apart the two codes of a pair are: they are neighbours."""
        return 1

    @property
    def instructions(self) -> float:
        """Instructions to choose bytes, to take bits twice and to subtract."""
        return 4

    def subtracted(self, zero: Any | None) -> Sequence[Any]:
        """Nothing: differences from zero points may be none of bfloat16's numbers."""
        assert zero is None
        return ()

    def decode(self, word_: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """``(128.0 + 7 bits) - (128.0 or 256.0)``."""
        upper = word((_ONE["bfloat16"][1] >> _BYTE) * 0x01010101)
        (less,) = registers(1)
        for own, chosen in zip(results, _BYTES_OF_PAIRS, strict=True):
            choose_bytes(own, word_, upper, word(chosen))
            mask_and_turn(less, own, 0xFF80 * BOTH, SIGNS)
            add("bfloat16", own, own & word(0xFF7F * BOTH), less)
