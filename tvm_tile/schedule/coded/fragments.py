"""Codes decoded in registers as a warpgroup's left operand: where they are, whoever needs them.

Which elements of the sum a thread has is the instruction's affair: of 16 that lie side by side, the
pairs ``t`` and ``t + 4`` of the eight, where ``t`` is the thread's number among the four of a row.
All four load the same words, so codes lie as they are stored, and each thread takes its own bits by
one permutation of bytes, whose choice is computed once. Every decoded number is what its code
means, less its zero point, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.graph.tensor_format import Code, Integers
from tvm_tile.schedule.coded.words import add, bits_of, choose_bytes, multiply_add, word

PAIRS = 2  # of 16 codes, that a thread has
_BYTE = 8  # bits
_HALF_BITS = 16
# A number whose neighbours are one apart, its bits, and 1.
_ONE = {"float16": (1024, 0x6400, 0x3C00), "bfloat16": (128, 0x4300, 0x3F80)}
_EXPONENT = {"float16": 10, "bfloat16": 7}  # its place
_BITS = {"float16": (2, 4, 8), "bfloat16": (2, 4)}
_MULTIPLY = {"float16": "mul.rn.f16x2", "bfloat16": "mul.rn.bf16x2"}
_PACK = {"float16": "cvt.rn.f16x2.f32", "bfloat16": "cvt.rn.bf16x2.f32"}


@dataclass(frozen=True, slots=True)
class Held:
    """Values that a thread holds in registers for decoding.

    Attributes:
        constants: words that all threads have, as :attr:`Fragments.constants` says.
        chosen: codes that it takes, as in :meth:`DecodedFragments.chosen`.
    """

    constants: Sequence[Any]
    chosen: Sequence[Any]


def fragments_of(code: Code, dtype: str) -> DecodedFragments | None:
    """How codes become halves of an element type; ``None`` where no way is known."""
    if isinstance(code, Integers) and code.bits in _BITS.get(dtype, ()):
        return DecodedFragments(code, dtype)
    return None


@dataclass(frozen=True, slots=True)
class DecodedFragments:
    """How integers, perhaps less a zero point, become a thread's part of a left operand.

    An integer in the lowest bits of the half 1024.0, whose neighbours are one apart, is that many
    more. The second code of a pair is some bits above the lowest ones, so it is a multiple of what
    it should be, and so is 1024; one multiply-add makes both what they are. (Of bfloat16 the number
    is 128, beside which four bits have no place above others: they are moved down.)
    """

    code: Integers
    dtype: str

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return self.code.bits

    @property
    def instructions(self) -> int:
        """Instructions for a pair: to choose bytes, to put bits together, to multiply and add.

        Some have bits to move.
        """
        return 3 + (self._is_moved or self.bits < _BYTE // 2)

    @property
    def constants(self) -> Sequence[int]:
        """Words that :meth:`decode` takes: a pair's mask, and the factors of its halves.

        Those the compiler knows it makes anew for each pair.
        """
        mask = ((1 << self.bits) - 1) * (1 | 1 << (_HALF_BITS + self._above))
        plus_one = _ONE[self.dtype][2]
        smaller = plus_one - (self._above << _EXPONENT[self.dtype])
        return mask, plus_one | smaller << _HALF_BITS

    def chosen(self, run: Any) -> Sequence[Any]:
        """Codes that a thread takes, of a number among the four of a row.

        These are the bytes of either pair, and how far they are moved down.
        """
        if self.bits == _BYTE:
            return [ib.Bind(_bytes(run * 2, run * 2 + 1))]
        if self._is_moved:
            return [ib.Bind(_bytes(run, run + 4))]
        if self.bits == _BYTE // 2:
            return [ib.Bind(_bytes(run, run))]
        first = run // 2
        down = ib.Bind(tirx.Cast("uint32", run % 2 * 4))
        return [ib.Bind(_bytes(first, first)), ib.Bind(_bytes(first + 2, first + 2)), down]

    def kept(self, zero: Any) -> Any:
        """The word that :meth:`decode` takes for codes of one zero point, an int32: what is added.

        Of float16 with what the numbers have too much, it is two that float16 has exactly.
        Zero points of bfloat16 are added by themselves: with 128 they may be more than it has.
        """
        if self.dtype == "bfloat16":
            return _two_halves(-zero, -zero, self.dtype)
        low, high = (-(more + zero) for more in self._more)
        return _two_halves(low, high, self.dtype)

    def decode(
        self, words: Sequence[Any], held: Held, results: Sequence[Any], zero: Any | None
    ) -> None:
        """Write a thread's two pairs of 16 codes of a row into registers.

        They are ``(code | 1024.0) * 1 - (1024 + zero)``, signed codes with their sign bit turned.

        Args:
            words: words of all 16 codes.
            held: values that the thread holds all the time.
            results: a register of each pair.
            zero: zero point to subtract, as in :meth:`kept`; ``None`` where there is none.
        """
        _, bits, _ = _ONE[self.dtype]
        half = 1 << (self.bits - 1) if self.code.is_signed else 0
        mask, factor = held.constants
        ones = (bits | half) | (bits | half << self._above) << _HALF_BITS
        low, high = self._more
        more = _two_halves(-low, -high, self.dtype)
        is_apart = self.dtype == "bfloat16"
        for pair, own in enumerate(results):
            self._choose(own, words, held.chosen, pair)
            value = (own & mask) ^ word(ones)
            added = more if zero is None or is_apart else zero
            multiply_add(self.dtype, own, value, factor, added)
            if zero is not None and is_apart:
                add(self.dtype, own, own, zero)

    @property
    def _is_moved(self) -> bool:
        """Whether a pair's second code is moved down in its byte: codes of 4 bits in bfloat16."""
        return self.bits == _BYTE // 2 and self.dtype == "bfloat16"

    @property
    def _above(self) -> int:
        """Bits that a pair's second code is above the lowest ones of its half."""
        return 0 if self._is_moved or self.bits == _BYTE else self.bits

    @property
    def _more(self) -> tuple[int, int]:
        """Offset that either half of a pair has too much."""
        half = 1 << (self.bits - 1) if self.code.is_signed else 0
        one = _ONE[self.dtype][0]
        return one + half, (one >> self._above) + half

    def _choose(self, own: Any, words: Sequence[Any], chosen: Sequence[Any], pair: int) -> None:
        """The bytes with a pair's codes, as the lower ones of two halves."""
        if self.bits == _BYTE:
            both = words[2 * pair : 2 * pair + 2]
        elif self._is_moved:
            both = [words[pair], words[pair] >> word(self.bits)]
        elif self.bits == _BYTE // 2:
            both = [words[pair]] * 2
        else:
            both = [words[0] >> chosen[-1]] * 2
        which = chosen[pair] if self.bits < _BYTE // 2 else chosen[0]
        low, high = both
        choose_bytes(own, low, high, which)


def scale_pair(dtype: str, step: str, own: Any, scale: Any) -> None:
    """Multiply a pair by a scale, rounded as the format says.

    Args:
        dtype: type of the pair.
        step: element type that it is rounded to first.
        own: the pair's register.
        scale: two halves; where ``step`` is float32, the bits of one.
    """
    if step == dtype:
        ib.evaluate(T.ptx[_MULTIPLY[dtype]](own, own, scale))
        return
    factor = tirx.reinterpret("float32", scale)
    low, high = (ib.Bind(number * factor) for number in _floats(own, dtype))
    ib.evaluate(T.ptx[_PACK[dtype]](own, high, low))


def scale_word(dtype: str, step: str, value: Any) -> Any:
    """The word of a scale, a float32 that ``step`` has exactly, as :func:`scale_pair` takes it."""
    return _two_halves(value, value, dtype) if step == dtype else tirx.reinterpret("uint32", value)


def _floats(pair: Any, dtype: str) -> tuple[Any, Any]:
    """Both halves, the lower one first, as float32."""
    if dtype == "bfloat16":
        low, high = pair << word(_HALF_BITS), pair & word(0xFFFF0000)
        return tirx.reinterpret("float32", low), tirx.reinterpret("float32", high)
    halves = (tirx.Cast("uint16", pair & word(0xFFFF)), tirx.Cast("uint16", pair >> word(16)))
    low, high = (tirx.Cast("float32", tirx.reinterpret("float16", half)) for half in halves)
    return low, high


def _two_halves(low: Any, high: Any, dtype: str) -> Any:
    """Two numbers, which the element type has exactly, as a word."""
    return _half(low, dtype) | (_half(high, dtype) << word(_HALF_BITS))


def _half(value: Any, dtype: str) -> Any:
    """The bits of a half, uint32."""
    if isinstance(value, int):
        return word(bits_of(value, dtype))
    wide = _wide(value)
    if dtype == "bfloat16":
        return tirx.reinterpret("uint32", wide) >> word(_HALF_BITS)
    return tirx.Cast("uint32", tirx.reinterpret("uint16", tirx.Cast("float16", wide)))


def _wide(value: Any) -> Any:
    """A value as float32."""
    return value if str(value.ty.dtype) == "float32" else tirx.Cast("float32", value)


def _bytes(low: Any, high: Any) -> Any:
    """The choice of two bytes as the lower ones of two halves; what the upper ones are is open."""
    return tirx.Cast("uint32", low | (high << 8))
