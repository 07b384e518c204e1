"""Units that a warp multiplies with: the fragments that they take, and how operands lie for them.

NVIDIA's warps multiply 16 rows by 8 columns by a depth of 16 (mma), with fragments that they load
16 rows, or columns, at a time (ldmatrix) from slabs. AMD's waves multiply as many rows as columns
(MFMA, WMMA), and load units of 16 bytes from panels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tvm_tile.device.device import Device, MatrixInstruction
from tvm_tile.tile.units.matrix_layout import MatrixLayout, layout_of
from tvm_tile.tile.units.panel import LEAST_UNITS, Panel, panel_of
from tvm_tile.tile.units.product import Operand, Product
from tvm_tile.tile.units.slab import ELEMENT, FRAGMENT, UNIT_BYTES, Chunk, Slab, vector_width
from tvm_tile.tile.units.sum_layout import CORNER_COLUMNS, MMA_SUMS, QUAD, SumLayout

_MMA_DTYPES = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True, slots=True)
class MmaUnit:
    """A warp's instructions of NVIDIA's, for operands of half precision and float32 sums."""

    @property
    def warp(self) -> int:
        """Threads of a warp, or of a wave."""
        return MMA_SUMS.warp

    @property
    def warps(self) -> str:
        """Word for a block's groups of threads, for people."""
        return "warps"

    @property
    def element(self) -> int:
        """Bytes of an element of an operand."""
        return ELEMENT

    @property
    def acc_dtype(self) -> str:
        """Element type of the sums."""
        return "float32"

    @property
    def rows(self) -> int:
        """Rows of a fragment of the left operand, and columns of one of the right operand."""
        return FRAGMENT

    @property
    def depth(self) -> int:
        """Elements of a row that a warp loads at once."""
        return FRAGMENT

    @property
    def least_keys(self) -> int:
        """Columns of a product that can be what another one is summed along."""
        return FRAGMENT

    def sum_layout(self, columns: int) -> SumLayout:
        """Layout of a warp's sums in registers and on their way out, for tiles of ``columns``."""
        return MMA_SUMS

    def lay(self, product: Product, operand: Operand, rows: int, depth: int, threads: int) -> Slab:
        """How a chunk of an operand lies in shared memory.

        Args:
            product: product that has the operand.
            operand: the product's left or right operand.
            rows: rows of the chunk; columns for the right operand.
            depth: depth of the chunk, in elements.
            threads: threads that copy it.
        """
        own, deep = (max(FRAGMENT, 1 << (size - 1).bit_length()) for size in (rows, depth))
        width = vector_width(operand, product.depth)
        return Slab(own, deep, not operand.is_depth_major, width)

    def __str__(self) -> str:
        return "mma"


@dataclass(frozen=True, slots=True)
class WaveUnit:
    """An instruction of AMD's matrix cores.

    Attributes:
        instruction: the matrix instruction.
        warp: threads of the wave that it takes.
    """

    instruction: MatrixInstruction
    warp: int

    @property
    def layout(self) -> MatrixLayout:
        """How a wave holds the instruction's operands and sums."""
        found = layout_of(self.instruction, self.warp)
        assert found is not None, "units_of has seen it"
        return found

    @property
    def warps(self) -> str:
        """Words for a block's groups of threads and their instruction, for people."""
        return f"waves, {self}"

    @property
    def element(self) -> int:
        """Bytes of an element of an operand."""
        return self.layout.element

    @property
    def acc_dtype(self) -> str:
        """Element type of the sums."""
        return self.instruction.acc_dtype

    @property
    def rows(self) -> int:
        """Rows of a fragment of the left operand, and columns of one of the right operand."""
        return self.layout.size

    @property
    def depth(self) -> int:
        """Elements of a row that a wave loads at once."""
        return self.layout.step * UNIT_BYTES // self.element

    @property
    def least_keys(self) -> int:
        """Columns of a product that can be what another one is summed along: a panel's least."""
        return max(self.rows, self.depth, LEAST_UNITS * UNIT_BYTES // self.element)

    def sum_layout(self, columns: int) -> SumLayout:
        """Layout of a wave's sums in registers and on their way out, for tiles of ``columns``."""
        own = self.layout
        # Four words more: lanes with neighbouring rows then touch all banks.
        return SumLayout(
            warp=self.warp,
            rows=own.size,
            columns=own.size,
            registers=own.sums,
            run=min(own.run, QUAD),
            pitch=min(columns, CORNER_COLUMNS) + QUAD,
            place=own.place,
        )

    def lay(self, product: Product, operand: Operand, rows: int, depth: int, threads: int) -> Panel:
        """How a chunk of an operand lies in shared memory; as :meth:`MmaUnit.lay` says."""
        least = LEAST_UNITS * UNIT_BYTES // self.element
        deep = max(least, 1 << (depth - 1).bit_length())
        return panel_of(product, operand, rows, deep, threads)

    def __str__(self) -> str:
        shape = "x".join(map(str, self.instruction.shape))
        return f"{self.instruction.intrinsic.partition('.')[0]} {shape}"


Unit = MmaUnit | WaveUnit


def units_of(device: Device, dtype: str) -> tuple[Unit, ...]:
    """All units of a device that multiply operands of a type, a warp at a time."""
    own = [i for i in device.matrix_instructions if i.in_dtype == dtype]
    waves = [
        WaveUnit(i, device.warp_size) for i in own if layout_of(i, device.warp_size) is not None
    ]
    is_mma = dtype in _MMA_DTYPES and any(i.intrinsic == "mma" for i in own)
    return (MmaUnit(),) if is_mma else tuple(waves)


def one_behind_the_other(chunks: Iterable[Chunk]) -> tuple[Chunk, ...]:
    """Chunks in shared memory, each from where 16 of its lines may begin: no swizzle differs."""
    found: list[Chunk] = []
    end = 0
    for chunk in chunks:
        lines = chunk.line_bytes * FRAGMENT
        found.append(replace(chunk, start=-(-end // lines) * lines))
        end = found[-1].start + chunk.size
    return tuple(found)
