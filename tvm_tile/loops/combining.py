"""State that a scan carries from element to element, and how two such states become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tvm_tile.graph.rowwise import Combine, Scan
from tvm_tile.loops.keys import key_bits, winning_key

State = tuple[Any, ...]
"""One expression for each of :attr:`Combining.dtypes`."""

_HALVES = ("float16", "bfloat16")
_LOW = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Combining:
    """The arithmetic of one scan.

    All states may be combined in any order but for rounding: the operation is associative and, so
    that threads may share out what is before a block, commutative. A sum or a product of half
    precision is carried in float32. The largest or smallest value is carried as an integer key
    above its place, in one number of 64 bits where the key has 32; the value itself is read again.
    """

    scan: Scan

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Data types of a state."""
        if self._is_extreme:
            return ("int64",) if key_bits(self.scan.source) == 32 else ("int64", "int32")
        return ("float32",) if self.scan.result in _HALVES else (self.scan.result,)

    def identity(self) -> State:
        """The state of no elements."""
        if self._is_extreme:
            least = tirx.min_value("int64")
            return (least,) if len(self.dtypes) == 1 else (least, tirx.const(0, "int32"))
        (dtype,) = self.dtypes
        if self.scan.combine is Combine.LOG_SUM_EXP:
            return (-tirx.infinity(dtype),)
        return (tirx.const(int(self.scan.combine is Combine.PRODUCT), dtype),)

    def of(self, value: Any, place: Any) -> State:
        """The state of one element, ``place`` elements from the beginning of its row in memory."""
        if not self._is_extreme:
            (dtype,) = self.dtypes
            return (value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value),)
        key = winning_key(value, largest=self.scan.combine is Combine.LARGEST)
        if len(self.dtypes) == 2:
            return key, tirx.Cast("int32", place)
        high = tirx.Cast("int64", key) << tirx.const(32, "int64")
        return (high | tirx.Cast("int64", place),)

    def combined(self, a: State, b: State) -> State:
        """The state of all elements of two states."""
        if self._is_extreme and len(a) == 2:
            is_b = tirx.any(b[0] > a[0], tirx.all(b[0] == a[0], b[1] > a[1]))
            return tirx.Select(is_b, b[0], a[0]), tirx.Select(is_b, b[1], a[1])
        (left,), (right,) = a, b
        if self._is_extreme:
            return (tirx.max(left, right),)
        if self.scan.combine is Combine.SUM:
            return (left + right,)
        if self.scan.combine is Combine.PRODUCT:
            return (left * right,)
        return (_log_add_exp(left, right),)

    def place_in(self, state: State) -> Any:
        """Place in its row, as int64, of the value that a state of an extreme stands for."""
        if len(state) == 2:
            return tirx.Cast("int64", state[1])
        return state[0] & tirx.const(_LOW, "int64")

    @property
    def _is_extreme(self) -> bool:
        """Whether the scan keeps the largest or the smallest element."""
        return self.scan.combine in (Combine.LARGEST, Combine.SMALLEST)

    @property
    def reads_again(self) -> bool:
        """Whether outputs are elements of the input, at the places in the states."""
        return self._is_extreme


def _log_add_exp(a: Any, b: Any) -> Any:
    """``log(exp(a) + exp(b))``; of equal infinities the difference would be NaN."""
    dtype = str(a.ty.dtype)
    is_infinite = tirx.all(a == b, tirx.abs(a) == tirx.infinity(dtype))
    small = tirx.exp(-tirx.abs(a - b))
    return tirx.Select(is_infinite, a, tirx.max(a, b) + tirx.log1p(small))
