"""Copies of an operand's chunks by the copy engine, and their layout for Hopper's instructions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.build.tensor_maps import encoded, map_variable
from tvm_tile.graph.tile_graph import AffineIndex, Axis
from tvm_tile.schedule.tensor_cores.limits import Limits
from tvm_tile.schedule.tensor_cores.place import Place, value_of
from tvm_tile.schedule.units.ring import Turn
from tvm_tile.tile.products.warpgroup_tile import LINE, STEP_BYTES
from tvm_tile.tile.units.product import Operand

_AS_THEY_LIE, _SWIZZLE_128 = 0, 3  # CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_128B
_PROMOTE_256 = 3  # CU_TENSOR_MAP_L2_PROMOTION_L2_256B
_SHARED_WINDOW = 1 << 18  # bytes that a descriptor's address reaches
_UNIT = 16  # bytes, in which descriptors count
_SWIZZLED = 8 * LINE


@dataclass(frozen=True, slots=True)
class TmaChunks:
    """One operand's chunks: boxes of its tensor, lines of 128 swizzled bytes in a stage.

    With the depth contiguous a line is one row, 128 bytes deep, and one copy brings all rows.
    Otherwise a line is 128 bytes of rows at one depth, and each copy brings a line of rows. Of a
    deeper chunk its parts, each so deep, lie one behind the other.

    Attributes:
        operand: operand that is copied.
        box: extents of its free axes in a tile.
        offset: bytes into a stage.
        depth: the summed axis that is cut into chunks.
        chunk: elements of it in a part of a chunk.
        parts: how many of these a chunk has.
        is_swizzled: whether instructions read the lines; those that threads read lie as they are,
            one behind the other, and may be of any multiple of 16 bytes.
    """

    operand: Operand
    box: tuple[int, ...]
    offset: int
    depth: Axis
    chunk: int
    parts: int = 1
    is_swizzled: bool = True

    @property
    def is_transposed(self) -> bool:
        """Whether the rows, not the depth, are contiguous."""
        return not self.operand.is_depth_major

    @property
    def size(self) -> int:
        """Bytes that a chunk's copies bring, zeros outside of the tensor included."""
        return self.parts * self._copies * self._copy_size

    @property
    def instruction_rows(self) -> int:
        """Units from one instruction's 64 rows to the next."""
        return 64 * LINE // _UNIT

    @property
    def instruction_depth(self) -> int:
        """Units from one instruction's depth to the next."""
        lines = STEP_BYTES // self._element * LINE
        return (lines if self.is_transposed else STEP_BYTES) // _UNIT

    def depth_units(self, number: int) -> int:
        """Units from a chunk's start to a depth of it, so many times :attr:`instruction_depth`."""
        part, within = divmod(number, self.chunk * self._element // STEP_BYTES)
        return part * self._pitch // _UNIT + within * self.instruction_depth

    @property
    def _pitch(self) -> int:
        """Bytes from the start of a part of a chunk to that of the next: eight lines are swizzled
        alike."""
        return -(-self._copies * self._copy_size // _SWIZZLED) * _SWIZZLED

    @property
    def _element(self) -> int:
        """Bytes of an element."""
        return self.operand.tensor.element_size

    @property
    def _line(self) -> int:
        """Elements of a line of 128 bytes."""
        return LINE // self._element

    @property
    def _copies(self) -> int:
        """Copies that bring a chunk: one for each line of rows if it is transposed."""
        return self.box[-1] // self._line if self.is_transposed else 1

    @property
    def _copy_size(self) -> int:
        """Bytes of one copy."""
        spans = zip(self._spans(), self._steps(), strict=True)
        return math.prod(-(-span // step) for span, step in spans) * self._element

    def tensor_map(self, buffers: Mapping[str, Any], limits: Limits | None = None) -> Any:
        """Write host code that encodes the copy engine's descriptor (a tensor map) of the boxes.

        Args:
            buffers: the function's parameters by name.
            limits: ends of axes, each a dimension of the tensor by itself, that are below the
                tensor's extent: copies from behind them give zeros.

        Returns:
            Pointer to the descriptor, a parameter of the kernel.
        """
        operand = self.operand
        ends = limits or {}
        shape = [
            next((ends[name] for name, _ in index.terms if name in ends), extent)
            for index, extent in zip(operand.indices, operand.tensor.shape, strict=True)
        ]
        pointer = map_variable(operand.tensor.name)
        ib.Bind(ib.tvm_stack_alloca("tensormap", 1), var=pointer)
        lists = (shape, operand.strides[:-1], self._spans(), self._steps())
        # The driver counts dimensions from the innermost one.
        numbers = [number for values in lists for number in reversed(values)]
        no_interleave, zeros_outside = 0, 0
        swizzle = _SWIZZLE_128 if self.is_swizzled else _AS_THEY_LIE
        ib.evaluate(
            encoded(
                pointer,
                operand.tensor.dtype if self._element > 1 else "uint8",  # only copied
                len(operand.indices),
                buffers[operand.tensor.name].data,
                *numbers,
                *(no_interleave, swizzle, _PROMOTE_256, zeros_outside),
            )
        )
        return pointer

    def copy(self, tensor_map: Any, turn: Turn, place: Place) -> None:
        """Ask for the boxes of the chunk at ``place``.

        Args:
            tensor_map: descriptor from :meth:`tensor_map`.
            turn: role at the stage that they go to, which counts the bytes that arrive.
            place: the tile's and the chunk's first values.
        """
        rank = len(self.operand.indices)
        tma = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
        for part, number in itertools.product(range(self.parts), range(self._copies)):
            first = place[self.depth.name]
            own = {**place, self.depth.name: first + part * self.chunk if part else first}
            at = [value_of(index, own) for index in self.operand.indices]
            at[-1] = at[-1] + number * self._line if number else at[-1]
            into = turn.pointer(self.offset + part * self._pitch + number * self._copy_size)
            ib.evaluate(T.ptx[tma](into, T.address_of(tensor_map), *reversed(at), turn.full))

    def descriptor(self, start: Any, row: Any) -> Any:
        """The matrix descriptor, for wgmma, of these chunks in stage 0 from a row on (PTX ISA).

        In units of 16 bytes: the address in bits 0-13, the leading offset in 16-29, the stride
        offset in 32-45; 1 in bits 62-63 says lines of 128 swizzled bytes. The stride offset leads
        eight lines on, the leading offset from one line of rows to the next, one copy further; with
        the depth contiguous it is not used.
        """
        leading = self.chunk * LINE // _UNIT if self.is_transposed else 1
        fixed = (1 << 62) | (8 * LINE // _UNIT << 32) | (leading << 16)
        # In a cluster, addresses of shared memory have the block's number in their upper bits.
        within = tirx.const(_SHARED_WINDOW - 1, "uint32")
        address = (start + tirx.Cast("uint32", self.offset + row * LINE)) & within
        return ib.Bind(tirx.Cast("uint64", address >> 4) | tirx.const(fixed, "uint64"))

    def _spans(self) -> tuple[int, ...]:
        """Elements of one copy along each dimension, those stepped over included."""
        sizes = dict(zip((axis.name for axis in self.operand.free), self.box, strict=True))
        if self.is_transposed:
            sizes[self.operand.free[-1].name] = self._line
        sizes[self.depth.name] = self.chunk
        return tuple(index.span(sizes) for index in self._boxed(sizes))

    def _steps(self) -> tuple[int, ...]:
        """Elements from one copied element to the next, along each dimension."""
        names = {self.depth.name, *(axis.name for axis in self.operand.free)}
        return tuple(max((c for _, c in i.terms), default=1) for i in self._boxed(names))

    def _boxed(self, names: Container[str]) -> list[AffineIndex]:
        """The indices without what is fixed within a box."""
        return [
            AffineIndex(tuple(term for term in index.terms if term[0] in names))
            for index in self.operand.indices
        ]
