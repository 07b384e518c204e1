"""Entries of a table of halves, looked up in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm.tirx.script import builder as ib

from tvm_tile.schedule.coded.words import (
    WORD,
    choose_bytes,
    mask_and_turn,
    moved,
    registers,
    word,
)

_NIBBLE = 4  # bits: a number of a byte
_LOW, _HIGH = 0x6420, 0x7531  # bytes of four halves
_PAIRS = 0x5140, 0x7362  # halves of four low bytes and four high ones
_HALF = 16  # bits


@dataclass(frozen=True, slots=True)
class TablePairs:
    """Entries of a table of 4 or 16 halves.

    One instruction looks up four bytes among eight (of a table of 4, among four) by the low bits of
    half a word; of 16 entries it does so among the first eight and among the last, and another one
    chooses of both by the highest bits. Low and high bytes, found alike, are then put together.
    Codes of 2 bits are looked up every other one, so that each has 4 bits to be a number of a byte.
    """

    bits: int

    @property
    def apart(self) -> int:
        """How far apart the two codes of a pair are: two in the table of 4, else neighbours."""
        return _NIBBLE // self.bits

    @property
    def instructions(self) -> float:
        """Instructions to look up, to put bytes together, and to make numbers of a word's bytes."""
        return 5.25 if self.bits == _NIBBLE else 2.625

    def constants(self, table: Any | None) -> Sequence[Any]:
        """The low bytes of the entries, then the high ones."""
        assert table is not None
        words = (1 << self.bits) // 2
        source = ib.decl_buffer((words,), "uint32", data=table.data)
        own = registers(words)
        for part, chosen in enumerate((_LOW, _HIGH)):
            for place in range(words // 2):
                pair = source[2 * place], source[2 * place + 1]
                choose_bytes(own[part * (words // 2) + place], *pair, word(chosen))
        return own

    def subtracted(self, zero: Any | None) -> Sequence[Any]:
        """Nothing: there are no zero points."""
        assert zero is None
        return ()

    def decode(self, word_: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Decode the pairs of a word: each code becomes its entry of the table."""
        low, high, uppers = registers(3)
        half = len(operands) // 2
        for turn in range(self.apart):
            source = moved(word_, -turn * self.bits)
            numbers = ib.Bind(source & word(0x77777777 if self.bits == _NIBBLE else 0x33333333))
            # Number of a byte of the first four, or of the four behind them.
            mask_and_turn(uppers, moved(word_, -1), 0x44444444, 0x32103210)
            for down in (0, _HALF):
                chosen = moved(numbers, -down), moved(uppers, -down)
                for own, entries in ((low, operands[:half]), (high, operands[half:])):
                    self._look_up(own, entries, *chosen)
                first = down // _HALF * (WORD // _NIBBLE // 2 // 2) * self.apart + turn
                for place, halves in enumerate(_PAIRS):
                    choose_bytes(results[first + place * self.apart], low, high, word(halves))

    def _look_up(self, own: Any, entries: Sequence[Any], chosen: Any, upper: Any) -> None:
        """Four bytes of entries: of the low bytes of these, or of the high ones."""
        if self.bits < _NIBBLE:
            choose_bytes(own, entries[0], entries[0], chosen)
            return
        (other,) = registers(1)
        choose_bytes(own, entries[0], entries[1], chosen)
        choose_bytes(other, entries[2], entries[3], chosen)
        choose_bytes(own, own, other, upper)
