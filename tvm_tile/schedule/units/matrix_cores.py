"""Products on AMD's matrix cores: from a stage in shared memory to sums in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.device.device import MatrixInstruction
from tvm_tile.tile.units.matrix_layout import MatrixLayout
from tvm_tile.tile.units.panel import WORD, Panel
from tvm_tile.tile.units.slab import UNIT_BYTES
from tvm_tile.tile.units.unit import WaveUnit

_WORDS = UNIT_BYTES // WORD


class LoadedWave(Protocol):
    """Fragments of an operand in registers."""

    @property
    def count(self) -> int:
        """Fragments of a step."""

    def of(self, step: int, number: int, instruction: int) -> Any:
        """Pointer to what one of a step's instructions takes of a fragment."""
        ...


@dataclass(frozen=True, slots=True)
class WaveOperand:
    """A wave's fragments of one operand: rows, or columns, by a step's depth.

    Attributes:
        panel: layout of the chunk in shared memory.
        layout: layout of the instruction: which of them a lane holds.
        start: units into a stage, for this lane.
        count: fragments of a step.
        registers: 32-bit numbers.
    """

    panel: Panel
    layout: MatrixLayout
    start: Any
    count: int
    registers: Any

    def load(self, words: Any, first: Any, step: int) -> None:
        """Load all fragments of a step.

        Args:
            words: all stages, 32-bit numbers.
            first: unit of the stage's.
            step: number of the step in the chunk.
        """
        layout = self.layout
        for number in range(self.count):
            for unit in range(layout.units):
                deep = step * layout.step + unit
                at = self.panel.moved(self.start, number * layout.size, deep)
                into = (number * layout.units + unit) * _WORDS
                source = ib.Bind((first + at) * _WORDS)
                with ib.vectorized(_WORDS) as v:
                    ib.buffer_store(self.registers, words[source + v], [into + v])

    def of(self, step: int, number: int, instruction: int) -> Any:
        """Pointer to what one of a step's instructions takes of a fragment."""
        each = self.layout.held * self.layout.element // WORD
        first = number * self.layout.units * _WORDS + instruction * each
        return self.registers.ptr_to([first])


def begin_fragments(
    panel: Panel, layout: MatrixLayout, rows: tuple[Any, int], lane: Any
) -> WaveOperand:
    """A wave's fragments of one operand, in registers that are allocated here.

    Args:
        panel: layout of the chunk in shared memory.
        layout: layout of the instruction.
        rows: the wave's first, and how many; of the right operand, columns.
        lane: lane of the wave.
    """
    first, extent = rows
    count = extent // layout.size
    row, unit = layout.operand(lane)
    size = count * layout.units * _WORDS
    registers = ib.alloc_buffer((size,), "uint32", scope="local")
    start = ib.Bind(panel.offset(first + row, unit))
    return WaveOperand(panel, layout, start, count, registers)


def multiply(unit: WaveUnit, sums: Any, sides: tuple[LoadedWave, LoadedWave], step: int) -> None:
    """Add the products of a step to a wave's sums.

    The instruction's rows are the product's columns: a lane's sums are then neighbours. Sums are
    those of one instruction after the other, columns first.
    """
    name, layout = function_of(unit.instruction), unit.layout
    left, right = sides
    for part in range(layout.instructions):
        for row in range(left.count):
            for column in range(right.count):
                own = sums.ptr_to([(row * right.count + column) * layout.sums])
                operands = right.of(step, column, part), left.of(step, row, part)
                ib.evaluate(T.call_extern("void", name, own, *operands))


def function_of(instruction: MatrixInstruction) -> str:
    """The name of an instruction's function in ``build/hip_matrix.h``."""
    family = instruction.intrinsic.replace(".", "_")
    shape = "x".join(map(str, instruction.shape))
    return f"{family}_{instruction.acc_dtype}_{shape}_{instruction.in_dtype}"
