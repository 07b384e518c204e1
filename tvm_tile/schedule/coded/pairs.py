"""Codes of a word, decoded in registers by pairs of halves.

A pair is codes half a word apart, ``code[j]`` and ``code[j + half]``; those of 8 bits are
neighbours. Every decoded half is the number that its code means, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.graph.tensor_format import E2M1, E4M3, E5M2, Code, Floats, Integers

_BOTH = 0x00010001
_BYTE, _WORD = 8, 32  # bits
_SIGNS = 0x8000 * _BOTH
# A number whose neighbours are one apart, and its bits.
_ONE = {"float16": (1024, 0x6400), "bfloat16": (128, 0x4300)}
_PLUS_ONE = 0x3F80  # of bfloat16
_MANTISSA = {"float16": 10, "bfloat16": 7}
_BIAS = {"float16": 15, "bfloat16": 127}
_INTEGERS = {"float16": (2, 4, 8), "bfloat16": (2, 4)}
"""Element type of the values -> bits of integers that it has exactly, ahead of any step."""
_FLOATS: dict[str, tuple[Floats, ...]] = {"float16": (E2M1, E4M3, E5M2), "bfloat16": (E2M1,)}


class Pairs(Protocol):
    """How codes of one kind become halves."""

    @property
    def bits(self) -> int:
        """Of a code."""

    @property
    def instructions(self) -> int:
        """That a pair takes."""

    def subtracted(self, zero: Any | None) -> Sequence[Any]:
        """Words that :meth:`decode` takes for codes of one zero point, an int32 or ``None``."""

    def decode(self, word: Any, results: Sequence[Any], subtracted: Sequence[Any]) -> None:
        """Write the pairs of a word into registers, in their order."""


def pairs_of(code: Code, dtype: str) -> Pairs | None:
    """How codes become halves of an element type; ``None`` where this is not exact, or unknown."""
    if isinstance(code, Integers):
        return IntegerPairs(code, dtype) if code.bits in _INTEGERS.get(dtype, ()) else None
    if not isinstance(code, Floats) or code not in _FLOATS.get(dtype, ()):
        return None
    if code == E5M2:
        return UpperBytePairs(code)
    return SevenBitPairs(code) if code == E4M3 else NibblePairs(code, dtype)


@dataclass(frozen=True, slots=True)
class IntegerPairs:
    """Integers, perhaps less a zero point.

    An integer in the lowest bits of the half 1024.0, whose neighbours are one apart, is that many
    more; subtracted is 1024 and the zero point, which is exact. (Of bfloat16 it is 128.)
    """

    code: Integers
    dtype: str

    @property
    def bits(self) -> int:
        """Of a code."""
        return self.code.bits

    @property
    def instructions(self) -> int:
        """To shift, to put bits together, to subtract."""
        return 3

    def subtracted(self, zero: Any | None) -> Sequence[Any]:
        """What is subtracted from pairs, bits of two halves; one after the other.

        All of these numbers, and all differences, are integers that the halves have: of float16 up
        to 2048, of bfloat16 up to 256, where 128 and a zero point may be more together.
        """
        one, bits = _ONE[self.dtype]
        half = 1 << (self.bits - 1) if self.code.is_signed else 0
        if zero is None:
            return [_word((bits + half) * _BOTH)]
        if self.dtype == "float16":
            return [_twice(zero + (one + half), self.dtype)]
        return [_word((bits + half) * _BOTH), _twice(zero, self.dtype)]

    def decode(self, word: Any, results: Sequence[Any], subtracted: Sequence[Any]) -> None:
        """``(code | 1024.0) - (1024 + zero)``; signed codes with their sign bit turned."""
        ones = _word(_ONE[self.dtype][1] * _BOTH)
        if self.code.is_signed:
            codes = range(_WORD // self.bits)
            signs = sum(1 << (self.bits - 1 + self.bits * number) for number in codes)
            word = ib.Bind(word ^ _word(signs))
        for pair, own in enumerate(results):
            value = self._paired(word, pair) | ones
            for less in subtracted:
                _subtract(self.dtype, own, value, less)
                value = own

    def _paired(self, word: Any, pair: int) -> Any:
        """Two codes of a word, in the lowest bits of its halves."""
        if self.bits == _BYTE:
            low = _moved(word, -16 * pair) & _word(0xFF)
            return low | (_moved(word, 8 - 16 * pair) & _word(0x00FF0000))
        return _moved(word, -self.bits * pair) & _word(((1 << self.bits) - 1) * _BOTH)


@dataclass(frozen=True, slots=True)
class _FloatPairs:
    """Floats of one kind, which have no zero points."""

    code: Floats

    @property
    def bits(self) -> int:
        """Of a code."""
        return self.code.bits

    def subtracted(self, zero: Any | None) -> Sequence[Any]:
        """Nothing: there are no zero points."""
        assert zero is None
        return ()


@dataclass(frozen=True, slots=True)
class NibblePairs(_FloatPairs):
    """Floats of 4 bits, e2m1.

    Sign, exponent and mantissa in the places of the half's are its number times a power of two,
    2**-14 or 2**-126: the biases differ. 0.5, which has no exponent, is a half without one, too.
    """

    dtype: str

    @property
    def instructions(self) -> int:
        """To shift twice, to put bits together twice, to multiply."""
        return 5

    def decode(self, word: Any, results: Sequence[Any], subtracted: Sequence[Any]) -> None:
        """``(sign | exponent and mantissa) * 2**14``."""
        sign = 0xF - (self.bits - 1)  # places that the bits of the first pair move up
        magnitude = _MANTISSA[self.dtype] - self.code.mantissa
        mask = _word((0x7 << magnitude) * _BOTH)
        for pair, own in enumerate(results):
            down = self.bits * pair
            signs = _moved(word, sign - down) & _word(_SIGNS)
            _multiply(self.dtype, own, signs | (_moved(word, magnitude - down) & mask), self.code)


@dataclass(frozen=True, slots=True)
class UpperBytePairs(_FloatPairs):
    """Floats of 8 bits that are the upper bytes of float16, e5m2: infinities and NaN, too."""

    @property
    def instructions(self) -> int:
        """To choose bytes."""
        return 1

    def decode(self, word: Any, results: Sequence[Any], subtracted: Sequence[Any]) -> None:
        """``code << 8``."""
        for pair, own in enumerate(results):
            _to_upper_bytes(own, word, pair)


@dataclass(frozen=True, slots=True)
class SevenBitPairs(_FloatPairs):
    """Floats of 8 bits, e4m3, as float16.

    Its 7 bits behind the sign, in the places of the half's exponent and mantissa, are its number
    times 2**-8, and at most 0x3f80. That one is NaN: with 0x80 added, no other has the exponent's
    highest bit, and with this bit its exponent is the half's NaN's.
    """

    @property
    def instructions(self) -> int:
        """To choose bytes, to shift, to put bits together thrice, to add, to multiply."""
        return 7

    def decode(self, word: Any, results: Sequence[Any], subtracted: Sequence[Any]) -> None:
        """``(sign | exponent and mantissa | NaN's bit) * 2**8``."""
        for pair, own in enumerate(results):
            _to_upper_bytes(own, word, pair)
            magnitude = ib.Bind(_moved(own, -1) & _word(0x3F80 * _BOTH))
            is_nan = (magnitude + _word(0x80 * _BOTH)) & _word(0x4000 * _BOTH)
            _multiply("float16", own, (own & _word(_SIGNS)) | magnitude | is_nan, self.code)


def _to_upper_bytes(result: Any, word: Any, pair: int) -> None:
    """Two neighbouring bytes of a word as the upper bytes of halves, whose lower ones are zero."""
    first = 2 * pair
    chosen = (first + 1) << 12 | 4 << 8 | first << 4 | 4  # bytes of (word, 0), the last one first
    ib.evaluate(T.ptx["prmt.b32"](result, word, _word(0), _word(chosen)))


def _multiply(dtype: str, result: Any, value: Any, code: Floats) -> None:
    """Pairs times the power of two by which the biases differ, which is exact.

    Of bfloat16 products come with sm_90, sums of them before: -0.0 changes none.
    """
    power = (2 * _BIAS[dtype] - code.bias) << _MANTISSA[dtype]
    factor = _word(power * _BOTH)
    if dtype == "float16":
        ib.evaluate(T.ptx["mul.rn.f16x2"](result, value, factor))
        return
    ib.evaluate(T.ptx["fma.rn.bf16x2"](result, value, factor, _word(_SIGNS)))


def _subtract(dtype: str, result: Any, value: Any, less: Any) -> None:
    """The difference of two pairs of halves; bfloat16's comes with sm_90, its product before."""
    if dtype == "float16":
        ib.evaluate(T.ptx["sub.rn.f16x2"](result, value, less))
        return
    negative = less ^ _word(_SIGNS)
    ib.evaluate(T.ptx["fma.rn.bf16x2"](result, value, _word(_PLUS_ONE * _BOTH), negative))


def _twice(value: Any, dtype: str) -> Any:
    """An integer as bits of two halves."""
    wide = tirx.Cast("float32", value)
    if dtype == "float16":
        bits = tirx.Cast("uint32", tirx.reinterpret("uint16", tirx.Cast("float16", wide)))
        return ib.Bind(bits * _word(_BOTH))
    bits = tirx.reinterpret("uint32", wide)  # of as many bits as there are, no other is set
    return ib.Bind((bits & _word(0xFFFF0000)) | (bits >> _word(16)))


def _moved(word: Any, up: int) -> Any:
    """A word with its bits so many places higher, or lower."""
    if up == 0:
        return word
    return word << _word(up) if up > 0 else word >> _word(-up)


def _word(value: int) -> Any:
    return tirx.const(value, "uint32")
