"""Floats of 4 and 8 bits as pairs of halves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm.tirx.script import builder as ib

from tvm_tile.graph.tensor_format import Floats
from tvm_tile.schedule.coded.words import BOTH, SIGNS, WORD, choose_bytes, moved, multiply, word

_MANTISSA = {"float16": 10, "bfloat16": 7}
_BYTE = 8  # bits
_BIAS = {"float16": 15, "bfloat16": 127}


@dataclass(frozen=True, slots=True)
class _FloatPairs:
    """Floats of one kind, which have no zero points."""

    code: Floats

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return self.code.bits

    @property
    def apart(self) -> int:
        """How far apart the two codes of a pair are: half a word, or neighbours if of 8 bits."""
        return WORD // self.bits // 2 if self.bits < _BYTE else 1

    def constants(self, table: Any | None) -> Sequence[Any]:
        """No words: decoding takes no table."""
        assert table is None
        return ()

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
    def instructions(self) -> float:
        """Instructions a pair: shift (two, for the last pair one), combine bits (two), multiply."""
        return 4.75

    def decode(self, word_: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """``(sign | exponent and mantissa) * 2**14``."""
        sign = 0xF - (self.bits - 1)  # places that the bits of the first pair move up
        magnitude = _MANTISSA[self.dtype] - self.code.mantissa
        mask = word((0x7 << magnitude) * BOTH)
        for pair, own in enumerate(results):
            down = self.bits * pair
            signs = moved(word_, sign - down) & word(SIGNS)
            _scale(self.dtype, own, signs | (moved(word_, magnitude - down) & mask), self.code)


@dataclass(frozen=True, slots=True)
class UpperBytePairs(_FloatPairs):
    """Floats of 8 bits that are the upper bytes of float16, e5m2: infinities and NaN, too."""

    @property
    def instructions(self) -> float:
        """Instructions a pair: one, which chooses bytes."""
        return 1

    def decode(self, word_: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """``code << 8``."""
        for pair, own in enumerate(results):
            _to_upper_bytes(own, word_, pair)


@dataclass(frozen=True, slots=True)
class SevenBitPairs(_FloatPairs):
    """Floats of 8 bits, e4m3, as float16.

    Its 7 bits behind the sign, in the places of the half's exponent and mantissa, are its number
    times 2**-8, and at most 0x3f80. That one is NaN: with 0x80 added, no other has the exponent's
    highest bit, and with this bit its exponent is the half's NaN's.
    """

    @property
    def instructions(self) -> float:
        """Instructions a pair: choose bytes, shift, combine bits (three), add, multiply."""
        return 7

    def decode(self, word_: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """``(sign | exponent and mantissa | NaN's bit) * 2**8``."""
        for pair, own in enumerate(results):
            _to_upper_bytes(own, word_, pair)
            magnitude = ib.Bind(moved(own, -1) & word(0x3F80 * BOTH))
            is_nan = (magnitude + word(0x80 * BOTH)) & word(0x4000 * BOTH)
            _scale("float16", own, (own & word(SIGNS)) | magnitude | is_nan, self.code)


@dataclass(frozen=True, slots=True)
class WideBytePairs(_FloatPairs):
    """Floats of 8 bits, e4m3 and e5m2, as bfloat16.

    The 7 bits behind the sign, in the places of its exponent and mantissa, are their number times a
    power of two. The codes from the first special one on, and no others, reach 0x80 with what that
    one lacks: they have all bits of the exponent set, as infinities and NaN have.
    """

    @property
    def instructions(self) -> float:
        """Instructions a pair: choose bytes, shift, combine bits (four), add, multiply (two)."""
        return 9

    def decode(self, word_: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """``(sign | exponent and mantissa | exponent of specials) * 2**120``, of e5m2 2**112."""
        up = _MANTISSA["bfloat16"] - self.code.mantissa
        reached = 0x80 << up
        missing = (0x80 - self.code.first_special) << up
        for pair, own in enumerate(results):
            _to_upper_bytes(own, word_, pair)
            magnitude = ib.Bind(moved(own, up - _BYTE) & word((0x7F << up) * BOTH))
            is_special = (magnitude + word(missing * BOTH)) & word(reached * BOTH)
            special = is_special * word((0x8000 - reached) // reached)
            _scale("bfloat16", own, (own & word(SIGNS)) | magnitude | special, self.code)


def _to_upper_bytes(result: Any, word_: Any, pair: int) -> None:
    """Two neighbouring bytes of a word as the upper bytes of halves, whose lower ones are zero."""
    first = 2 * pair
    chosen = (first + 1) << 12 | 4 << 8 | first << 4 | 4  # bytes of (word, 0), the last one first
    choose_bytes(result, word_, word(0), word(chosen))


def _scale(dtype: str, result: Any, value: Any, code: Floats) -> None:
    """Pairs times the power of two by which the biases differ, which is exact."""
    power = (2 * _BIAS[dtype] - code.bias) << _MANTISSA[dtype]
    multiply(dtype, result, value, word(power * BOTH))
