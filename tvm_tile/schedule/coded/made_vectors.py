"""Vectors that each block of a coded product makes for itself, such as a norm of its rows.

Before → after, where codes come from memory and vectors are short::

    s[m] += g(a[m, k]);  x[m, k] = h(a[m, k], s[m], w[k])
    y[m, n] += x[m, k] * decoded(codes[n, k])

    x_shared[m, k] = ...        (by all threads of a block)
    y[m, n] += x_shared[m, k] * decoded(codes[n, k])

Why this is free of races: partial sums of a warp are written by one of its lanes, each into a place
of its own, for each sum of each row another one, and are read behind a barrier. Each element of the
vectors is written by one thread, and read behind the last barrier.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.s_tir import SBlock
from tvm.s_tir.schedule import ScheduleError
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.compat import start_schedule
from tvm_tile.graph.expression import Expression
from tvm_tile.graph.extract import extract_operators
from tvm_tile.graph.tile_graph import AffineIndex
from tvm_tile.schedule.made_rows import MadeRow, dimension, made_row
from tvm_tile.schedule.s_tir.few_vectors import inlined_makers
from tvm_tile.schedule.s_tir.steps import blocks_named, child_blocks, is_reduction
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.tile.few_rows.few_vectors import Prologue

_WARP = 32


@dataclass(frozen=True, slots=True)
class MadeVectors:
    """The vectors of a product, as the blocks make them.

    Attributes:
        tensor: the buffer of the function that has them, the elements of a vector side by side.
        row: a vector.
        prologue: cost of making them.
    """

    tensor: Any
    row: MadeRow
    prologue: Prologue

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the tensor."""
        return tuple(int(extent) for extent in self.tensor.ty.shape)

    def write(self, threads: int, thread: Any, buffers: Mapping[str, Any]) -> Any:
        """Write the code by which a block makes the vectors, until all its threads see them.

        Args:
            threads: threads of the block.
            thread: the number of this one.
            buffers: name of a parameter -> its buffer.

        Returns:
            The buffer in shared memory, flat.
        """
        *leading, extent = self.extents
        count = math.prod(leading)
        made = ib.alloc_buffer((count * extent,), str(self.tensor.ty.dtype), scope="shared")
        sums = _BlockSums(threads // _WARP, count * len(self.row.sums))
        for number, place in enumerate(itertools.product(*map(range, leading))):
            at = {dimension(which): tirx.const(value) for which, value in enumerate(place)}
            first = number * extent

            def store(along: Any, value: Any, first: int = first) -> None:
                ib.buffer_store(made, value, [first + along])

            along = dimension(len(leading)), extent
            self.row.write(sums, (threads, thread), at, along, buffers, store)
        ib.evaluate(T.cuda.cta_sync())
        return made


class _BlockSums:
    """Sums over all threads of a block, each with a place in shared memory for every warp.

    Args:
        warps: warps of the block.
        count: how many sums there will be.
    """

    def __init__(self, warps: int, count: int) -> None:
        self._warps, self._done = warps, 0
        self._parts = ib.alloc_buffer((max(1, count * warps),), "float32", scope="shared")

    def reduce(self, values: Any, op: str, lane: Any) -> None:
        """Combine each of some registers over the threads; ``lane`` is the thread's number."""
        combine = ib.max if op == "max" else lambda one, other: one + other
        for number in range(int(values.ty.shape[0])):
            first = self._done * self._warps
            self._done += 1
            own = ib.Bind(T.cuda.warp_reduce(values[number], op))
            with when([lane % _WARP == 0]):
                ib.buffer_store(self._parts, own, [first + lane // _WARP])
            ib.evaluate(T.cuda.cta_sync())
            found = self._parts[first]
            for warp in range(1, self._warps):
                found = combine(found, self._parts[first + warp])
            ib.buffer_store(values, found, [number])


def find_made_vectors(
    func: tirx.PrimFunc, matrix: Any
) -> tuple[MadeVectors, tirx.PrimFunc, list[SBlock]] | None:
    """What makes the vectors that a matrix is multiplied with, if sums along them are needed.

    Args:
        func: a function of a product with the matrix, a parameter.
        matrix: the matrix' buffer.

    Returns:
        The vectors; the function with all that makes them in blocks of their own; and those blocks.
        ``None`` where vectors lie in memory, or are made otherwise.
    """
    sch = start_schedule(func)
    sums = [block for block in child_blocks(sch) if is_reduction(sch, block)]
    mains = [b for b in sums if any(r.source.same_as(matrix) for r in sch.get(b).reads)]
    if len(mains) != 1 or len(sums) == 1:
        return None
    try:
        names = inlined_makers(sch, mains)
    except ScheduleError:
        return None
    blocks = blocks_named(sch, names or ())
    row = _row(blocks) if blocks else None
    prologue = Prologue.of(extract_operators(blocks)) if row is not None else None
    if row is None or prologue is None:
        return None
    return MadeVectors(blocks[-1].body.buffer, row, prologue), sch.mod["main"], blocks


def _row(blocks: list[SBlock]) -> MadeRow | None:
    """A row of what the last block makes, of sums of those before it."""
    *sums, maker = blocks
    store = maker.body
    loops = {v.var: int(v.dom.extent) for v in maker.iter_vars}
    axes = {var: AffineIndex(()) for var, extent in loops.items() if extent == 1}
    for number, (index, extent) in enumerate(
        zip(store.indices, store.buffer.ty.shape, strict=True)
    ):
        if isinstance(index, tirx.Var) and loops.get(index) == int(extent):
            axes[index] = AffineIndex(((dimension(number), 1),))
        elif int(extent) > 1:
            return None
    if len(axes) < len(loops):
        return None
    return made_row(Expression(store.value, axes), sums, dimension(len(store.indices) - 1))
