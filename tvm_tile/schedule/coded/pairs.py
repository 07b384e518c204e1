"""Codes of a word, decoded in registers by pairs of halves.

Every decoded half is the number that its code means, to the last bit. How codes of each kind become
halves is in ``integer_pairs.py``, ``float_pairs.py`` and ``table_pairs.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tvm_tile.graph.tensor_format import E2M1, E4M3, E5M2, Entries, Floats, Integers, TensorFormat
from tvm_tile.schedule.coded.float_pairs import (
    NibblePairs,
    SevenBitPairs,
    UpperBytePairs,
    WideBytePairs,
)
from tvm_tile.schedule.coded.integer_pairs import BytePairs, IntegerPairs, SignedBytePairs
from tvm_tile.schedule.coded.table_pairs import TablePairs

_BYTE = 8  # bits
_INTEGERS = (2, 4)  # bits
_TABLES = (2, 4)  # bits


class Pairs(Protocol):
    """How codes of one kind become halves."""

    @property
    def bits(self) -> int:
        """Bits of a code."""

    @property
    def apart(self) -> int:
        """How far apart in their word the two codes of a pair are.

        Pair ``p`` is the code ``p // apart * 2 * apart + p % apart`` and the one so far behind it.
        """

    @property
    def instructions(self) -> float:
        """Instructions that decoding one pair takes, on average."""

    def constants(self, table: Any | None) -> Sequence[Any]:
        """Words that :meth:`decode` takes for all codes, made once; of the table, if any."""

    def subtracted(self, zero: Any | None) -> Sequence[Any]:
        """Words that it takes for codes of one zero point, an int32 or ``None``."""

    def decode(self, word: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Write the pairs of a word into registers, in their order.

        Args:
            word: a register.
            results: registers.
            operands: :meth:`constants`, and what is :meth:`subtracted`.
        """


def pairs_of(form: TensorFormat) -> Pairs | None:
    """How codes of a format become halves; ``None`` where this is not exact, or unknown."""
    code, dtype = form.code, form.dtype
    if dtype not in ("float16", "bfloat16"):
        return None
    if isinstance(code, Integers):
        return _of_integers(code, dtype)
    if isinstance(code, Entries):
        is_known = code.bits in _TABLES and form.entry == dtype
        return TablePairs(code.bits) if is_known else None
    return _of_floats(code, dtype)


def _of_integers(code: Integers, dtype: str) -> Pairs | None:
    """How integer codes become pairs of a type; ``None`` where no way is known."""
    if code.bits in _INTEGERS:
        return IntegerPairs(code, dtype)
    if code.bits != _BYTE:
        return None
    if dtype == "float16":
        return BytePairs(code)
    return SignedBytePairs(code) if code.is_signed else None


def _of_floats(code: Floats, dtype: str) -> Pairs | None:
    """How floats of 4 and 8 bits become pairs of a type; ``None`` where no way is known."""
    if code == E2M1:
        return NibblePairs(code, dtype)
    if code not in (E4M3, E5M2):
        return None
    if dtype == "bfloat16":
        return WideBytePairs(code)
    return UpperBytePairs(code) if code == E5M2 else SevenBitPairs(code)
