"""Tensors of random numbers, each of which is computed of its place in its tensor alone.

Element ``i`` takes words of block ``i // n`` of Philox, of which ``n`` elements are made::

    for i: y[i] = float32(philox(i // 4, stream, state[0], state[1], i % 4) >> 8) * 2 ** -24

So draws are element-wise, and are fused with what follows them: no mask of a dropout need lie in
memory. The key is a seed that the model keeps, beside a count of its calls, in ``state``; each
operator that draws has a stream of its own, and each call draws other numbers of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from tvm_tile.registered import philox

_BITS = {"float16": 11, "bfloat16": 8, "float32": 24}  # that a number below 1 has at most
_TWO_WORDS = 53  # bits of a float64

Draw = Callable[[te.Tensor, te.Tensor], te.Tensor]
"""From the state of a model's random numbers, two int64: the seed and the count of calls, and a
stream, one int64, to a tensor. A stream's lower half is its number, its upper half is mixed into
the seed."""


@dataclass(frozen=True, slots=True)
class _Words:
    """The random words of one element of a tensor.

    Attributes:
        state, stream: tensors, as of :data:`Draw`.
        place: place of the element among all, an int32; of more than 2**31 elements it wraps.
    """

    state: te.Tensor
    stream: te.Tensor
    place: Any

    def word(self, block: Any, number: Any) -> Any:
        """One of the four words of a block, a uint32."""
        return philox(block, self.stream(), self.state[0], self.state[1], number)

    def own(self) -> Any:
        """A word that no other element has."""
        return self.word(self.place >> 2, self.place & 3)

    def long(self) -> Any:
        """A uint64 that no other element has: its halves are two words."""
        return self.long_of(self.place >> 1, (self.place & 1) * 2)

    def long_of(self, block: Any, first: Any) -> Any:
        """A uint64 of two words of a block."""
        upper, lower = (tirx.Cast("uint64", self.word(block, first + at)) for at in (0, 1))
        return upper << tirx.const(32, "uint64") | lower


def uniform(shape: Sequence[int], dtype: str) -> Draw:
    """Floating-point numbers from 0, below 1: multiples of one power of two, all as likely.

    Their count of bits is the type's, so that none is rounded up to 1.
    """

    def element(words: _Words) -> Any:
        if dtype == "float64":
            return _fraction(words.long() >> tirx.const(64 - _TWO_WORDS, "uint64"), _TWO_WORDS)
        bits = _BITS[dtype]
        return tirx.Cast(dtype, _fraction(words.own() >> tirx.const(32 - bits, "uint32"), bits))

    return _tensor("uniform", shape, element)


def normal(shape: Sequence[int], dtype: str) -> Draw:
    """Numbers of the standard normal distribution, by the method of Box and Muller.

    Two elements share a radius ``sqrt(-2 log(u))`` and an angle: one is the radius times the cosine
    of that, the other times its sine, which is the cosine of what is a quarter turn less. ``u`` is
    above 0, and half precision is computed in float32, too, where no number is beyond 6.8.
    """

    def element(words: _Words) -> Any:
        if dtype == "float64":
            radius, turn = (_above_zero(words.long_of(words.place >> 1, at)) for at in (0, 2))
        else:
            block, pair = words.place >> 2, words.place & 2
            radius, turn = (_above_zero(words.word(block, pair | at)) for at in (0, 1))
        wide = str(radius.ty.dtype)
        quarter = tirx.Cast(wide, words.place & 1) * tirx.const(0.5 * math.pi, wide)
        angle = turn * tirx.const(2 * math.pi, wide) - quarter
        length = tirx.sqrt(tirx.const(-2.0, wide) * tirx.log(radius))
        return tirx.Cast(dtype, length * tirx.cos(angle))

    return _tensor("normal", shape, element)


def exponential(shape: Sequence[int], dtype: str) -> Draw:
    """Numbers of the exponential distribution of mean 1, all above 0 and finite.

    One bit decides between ``-log(u)`` and ``-log(1 - u)``, where ``u`` of the others is below a
    half: the smallest numbers are as exact as the largest.
    """

    def element(words: _Words) -> Any:
        word = words.long() if dtype == "float64" else words.own()
        kind = str(word.ty.dtype)
        others = tirx.const(2 ** (int(kind.removeprefix("uint")) - 1) - 1, kind)
        part = _above_zero(word & others)
        drawn = tirx.Select(word > others, tirx.log(part), tirx.log1p(-part))
        return tirx.Cast(dtype, -drawn)

    return _tensor("exponential", shape, element)


def integers(shape: Sequence[int], dtype: str, low: int, high: int) -> Draw:
    """Integers from ``low``, below ``high``, of any numeric type.

    They are remainders of 64 bits: of fewer than 2**32 none is likelier by more than 2**-32.

    Raises:
        ValueError: there is no such integer, or there are more than 2**63 of them, but not 2**64.
    """
    count = high - low
    bits = count.bit_length() - 1
    if count < 1 or (count > 2**63 and count != 2**64):
        raise ValueError(f"integers from {low}, below {high}")

    def element(words: _Words) -> Any:
        drawn = words.long()
        if count == 2**64:
            return tirx.Cast(dtype, tirx.Cast("int64", drawn))
        if count == 2**bits:  # shifted in two steps, of which none is by 64 bits
            drawn = drawn >> tirx.const(63 - bits, "uint64") >> tirx.const(1, "uint64")
        else:
            drawn = tirx.Mod(drawn, tirx.const(count, "uint64"))
        return tirx.Cast(dtype, tirx.Cast("int64", drawn) + tirx.const(low, "int64"))

    return _tensor("integers", shape, element)


def _tensor(name: str, shape: Sequence[int], element: Callable[[_Words], Any]) -> Draw:
    """Loops that make each element of its place."""

    def loops(state: te.Tensor, stream: te.Tensor) -> te.Tensor:
        def at(*index: Any) -> Any:
            place: Any = tirx.const(0, "int32")
            for own, extent in zip(index, shape, strict=True):
                place = place * tirx.const(extent, "int32") + tirx.Cast("int32", own)
            return element(_Words(state, stream, place))

        return te.compute(tuple(shape), at, name)

    loops.__name__ = name
    return loops


def _fraction(word: Any, bits: int) -> Any:
    """An unsigned integer of so many bits as a part of 1."""
    wide = "float64" if bits > _BITS["float32"] else "float32"
    return tirx.Cast(wide, word) * tirx.const(2.0**-bits, wide)


def _above_zero(word: Any) -> Any:
    """A uint32 or a uint64 as a part of 1, raised by half a unit: above 0, at most 1."""
    bits = int(str(word.ty.dtype).removeprefix("uint"))
    wide = "float64" if bits > 32 else "float32"
    return tirx.Cast(wide, word) * tirx.const(2.0**-bits, wide) + tirx.const(
        2.0 ** -(bits + 1), wide
    )
