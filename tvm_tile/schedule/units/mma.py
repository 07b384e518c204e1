"""Products by a warp's instructions of NVIDIA's: from shared memory to sums in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.tensor_cores.instructions import load_matrices, multiply_add
from tvm_tile.tile.units.slab import FRAGMENT, Slab

_REGISTERS = 4  # of a fragment of either operand, and of two products' sums of 16 rows each
_COLUMNS = 8  # of a product


class Lines(Protocol):
    """Where fragments of an operand lie in shared memory."""

    @property
    def is_turned(self) -> bool:
        """Whether rows, not the depth, are contiguous."""

    def moved(self, start: Any, row: int, depth: int) -> Any:
        """Bytes to a fragment so many rows and so deep into an operand, given where it starts."""


class LoadedMma(Protocol):
    """Fragments of an operand in registers."""

    @property
    def count(self) -> int:
        """Fragments of a depth of 16."""

    def of(self, step: int, number: int) -> list[Any]:
        """Four registers of a fragment of the depth ``16 * step``."""
        ...


@dataclass(frozen=True, slots=True)
class MmaOperand:
    """One operand's fragments of 16 rows, or columns, by a depth of 16, of two depths at a time.

    Attributes:
        slab: layout of the chunk in shared memory.
        start: where it starts for this thread, as the layout tells it: bytes into a stage.
        count: fragments of a depth.
        registers: registers of 32 bits.
    """

    slab: Lines
    start: Any
    count: int
    registers: Any

    def load(self, ring: Any, first: Any, step: int) -> None:
        """Load the fragments of a chunk's depth ``16 * step``.

        Args:
            ring: all stages, bytes.
            first: first byte of the stage.
            step: the even and the odd ones have registers of their own.
        """
        name = load_matrices(turned=self.slab.is_turned)
        for number in range(self.count):
            at = self.slab.moved(self.start, number * FRAGMENT, step * FRAGMENT)
            pointer = ring.ptr_to([first + at])
            ib.evaluate(T.ptx[name](*self.of(step, number), pointer))

    def of(self, step: int, number: int) -> list[Any]:
        """Registers of a fragment, in the order of :meth:`Slab.fragment`."""
        first = (step % 2 * self.count + number) * _REGISTERS
        return [self.registers[first + i] for i in range(_REGISTERS)]


def begin_fragments(slab: Slab, rows: tuple[Any, int], lane: Any, *, is_right: bool) -> MmaOperand:
    """Allocate registers for a warp's fragments of one operand, and find where a lane loads them.

    Args:
        slab: layout of the operand's chunk in shared memory.
        rows: the first row that the warp multiplies, and how many.
        lane: the thread's number in its warp.
        is_right: whether it is the right operand, whose columns then take the place of rows.

    Returns:
        The operand, which loads the fragments of each step.
    """
    row, extent = rows
    count = extent // FRAGMENT
    registers = fragment_registers(count)
    return MmaOperand(slab, ib.Bind(slab.fragment(lane, row, is_right=is_right)), count, registers)


def fragment_registers(count: int) -> Any:
    """Registers of 32 bits for so many fragments of two depths."""
    return ib.alloc_buffer((2 * count * _REGISTERS,), "uint32", scope="local")


def multiply(dtype: str, sums: Any, sides: tuple[LoadedMma, LoadedMma], step: int) -> None:
    """Add the products of a depth of 16 to a warp's sums.

    Sums are those of 16 rows by 8 columns one after the other, columns first.
    """
    left, right = ([side.of(step, number) for number in range(side.count)] for side in sides)
    add_fragments(dtype, sums, left, right)


def add_fragments(dtype: str, sums: Any, left: Sequence[Any], right: Sequence[Any]) -> None:
    """Multiply registers of the operands, four of each fragment, and add to ``sums``."""
    name = multiply_add(dtype, FRAGMENT)
    octets = len(right) * FRAGMENT // _COLUMNS
    for row, fragment in enumerate(left):
        for octet in range(octets):
            first = (row * octets + octet) * _REGISTERS
            own = [sums[first + i] for i in range(_REGISTERS)]
            half = right[octet // 2][octet % 2 * 2 :][:2]
            ib.evaluate(T.ptx[name](*own, *fragment, *half, *own))
