"""Counts of products that are staged in shared memory, of many tiles at once.

A block repeats one step: stage a chunk of each operand in shared memory, wait, multiply-add from
shared memory into registers. Then it stores its sums, sector by sector.

Candidates are rows of integer arrays, so that thousands are ranked in a few milliseconds. What
reading shared memory costs depends on the layout there: :class:`SharedReads` says it where it is
known, and otherwise every word counts as one load without conflicts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.tile_graph import Access, Operator, Tensor
from tvm_tile.tile.register_use import register_use
from tvm_tile.tile.residency import nameable_registers
from tvm_tile.tile.rtile import longest_reduce_axis, run_length
from tvm_tile.tile.time import SCHEDULERS, Quantity

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SECTOR = 32  # bytes a cache moves at once


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tiles of an operator to rank, one a row.

    Attributes:
        operator: the operator that is computed.
        thread: extents of a thread's tile, shape (candidates, axes); one on reduce axes.
        block: extents of a block's tile; on reduce axes, of one group's chunk.
        groups: groups of threads that share the reduction, shape (candidates,).
        prefetched: one where the next step's operands wait in registers, shape (candidates,).
        parts: parts of the longest sum, each with blocks of its own and none empty; a second kernel
            adds their sums, shape (candidates,).
    """

    operator: Operator
    thread: Ints
    block: Ints
    groups: Ints
    prefetched: Ints
    parts: Ints

    @property
    def is_spatial(self) -> npt.NDArray[np.bool_]:
        """Whether the output has each axis, shape (axes,)."""
        return np.array([not axis.is_reduce for axis in self.operator.axes])

    @property
    def extents(self) -> Ints:
        """Extents of the operator's axes, shape (axes,)."""
        return np.array([axis.extent for axis in self.operator.axes])

    @property
    def outputs(self) -> Ints:
        """Sums of a block, shape (candidates,), as is what follows."""
        return np.asarray(np.prod(self.block[:, self.is_spatial], axis=1))

    @property
    def accumulators(self) -> Ints:
        """Sums of a thread."""
        return np.asarray(np.prod(self.thread[:, self.is_spatial], axis=1))

    @property
    def threads(self) -> Ints:
        """Threads of a block."""
        return self.groups * (self.outputs // self.accumulators)

    @property
    def grid(self) -> Ints:
        """Blocks of all parts."""
        spatial = self.is_spatial
        tiles = np.prod(-(-self.extents[spatial] // self.block[:, spatial]), axis=1)
        return np.asarray(self.parts * tiles)

    @property
    def staged(self) -> Ints:
        """Extents of what lies in shared memory at a time, with all groups' chunks."""
        staged: Ints = self.block.copy()
        longest = np.flatnonzero(~self.is_spatial)[longest_reduce_axis(self.operator)]
        staged[:, longest] *= self.groups
        return staged

    @property
    def steps(self) -> Ints:
        """Steps of a block, between each of which and the next one its threads wait."""
        summed = ~self.is_spatial
        counts = -(-self.extents[summed] // self.staged[:, summed])
        longest = longest_reduce_axis(self.operator)
        counts[:, longest] = -(-counts[:, longest] // self.parts)
        return np.asarray(np.prod(counts, axis=1))

    @property
    def store_vectors(self) -> Ints:
        """Neighbouring outputs that a thread stores at once where it stores its own tile."""
        operator, last = self.operator, self.operator.spatial_axes[-1]
        if operator.write.strides.get(last.name) != 1:
            return np.ones(len(self.groups), np.int64)
        widest = math.gcd(last.extent, VECTOR_BYTES // operator.write.tensor.element_size)
        column = np.flatnonzero(self.is_spatial)[-1]
        return np.asarray(np.gcd(_runs(operator, last.name, self.thread[:, column]), widest))

    @property
    def staged_words(self) -> Ints:
        """Registers in which one thread holds its share of a step's operands."""
        words: Ints = np.zeros(len(self.groups), np.int64)
        for read in self.operator.reads:
            size = elements(read, self.operator, self.staged) * read.tensor.element_size
            words += -(-size // (4 * self.threads))
        return words

    def rows(self, chosen: npt.NDArray[Any]) -> Candidates:
        """The candidates that are chosen, by numbers or by truth values."""
        return Candidates(self.operator, *(column[chosen] for column in self._columns))

    @classmethod
    def together(cls, several: Sequence[Candidates]) -> Candidates:
        """The candidates of ``several``, one or more, in their order."""
        columns = zip(*(candidates._columns for candidates in several), strict=True)
        return cls(several[0].operator, *(np.concatenate(column) for column in columns))

    @property
    def _columns(self) -> tuple[Ints, ...]:
        """The arrays that describe the candidates, one row each."""
        return self.thread, self.block, self.groups, self.prefetched, self.parts


@dataclass(frozen=True, slots=True)
class SharedReads:
    """Cost of the layouts of the staged operands, for each candidate in a step.

    Attributes:
        loads: instructions with which one thread reads its operands.
        wavefronts: wavefronts of one block's reads and staging stores.
        padding: bytes of a block's shared memory that hold nothing.
        stores: instructions with which the warps of one block stage the operands.
    """

    loads: Ints
    wavefronts: Ints
    padding: Ints
    stores: Ints


@dataclass(frozen=True, slots=True)
class BlockResources:
    """What a block of each candidate takes.

    Attributes:
        footprint: bytes of shared memory, without what layouts pad, shape (candidates,).
        registers: registers of a thread, shape (candidates,).
    """

    footprint: Ints
    registers: Ints


def arithmetic_slots(device: Device) -> float:
    """Issue slots of a warp's multiply-add: several where its scheduler has fewer lanes than it."""
    return SCHEDULERS * device.warp_size / device.lanes_per_multi_processor


def compiled_registers(device: Device, threads: Ints, sums: Ints, ahead: Ints) -> Ints:
    """Registers of one thread: what it needs, no more than a block's threads may have.

    Args:
        device: the device that is compiled for.
        threads: threads of a block, shape (candidates,), as is what follows.
        sums: sums of a thread.
        ahead: words of the next step's operands that a thread holds.
    """
    use = register_use(device)
    needed = np.ceil(use.beside_sums + use.of_a_sum * sums + use.of_a_word * ahead)
    warps = -(-threads // device.warp_size)
    # Each scheduler has a part of the registers.
    rounded = -(-warps // SCHEDULERS) * SCHEDULERS * device.warp_size
    unit = device.register_unit
    most = device.registers_per_multi_processor // rounded // unit * unit
    most = np.minimum(most, nameable_registers(device))
    return np.asarray(np.minimum(needed, most), np.int64)


def elements(access: Access, operator: Operator, tiles: Ints) -> Ints:
    """Elements of ``access`` that each tile touches, shape (candidates,)."""
    return np.asarray(np.prod(np.stack(_spans(access, operator, tiles)), axis=0), np.int64)


def _spans(access: Access, operator: Operator, tiles: Ints) -> list[Ints]:
    """Extents of the region that each tile reads, one array for each dimension."""
    column = {axis.name: i for i, axis in enumerate(operator.axes)}
    spans = []
    for index, extent in zip(access.indices, access.tensor.shape, strict=True):
        span = np.ones(len(tiles), np.int64)
        for axis, coefficient in index.terms:
            span = span + abs(coefficient) * (tiles[:, column[axis]] - 1)
        spans.append(np.minimum(span, extent))
    return spans or [np.ones(len(tiles), np.int64)]


def coalescing(access: Access, operator: Operator, tiles: Ints) -> Floats:
    """Bytes moved per byte used when tiles of ``access`` cross global memory, at least one."""
    used = _run(access, operator, tiles)[0] * access.tensor.element_size
    return np.asarray(-(-used // SECTOR) * SECTOR / used, np.float64)


def _run(access: Access, operator: Operator, tiles: Ints) -> tuple[Ints, Ints]:
    """Elements of each tile that lie together, and elements from one such run to the next."""
    run, stride, full = np.ones((3, len(tiles)), np.int64)
    spans = _spans(access, operator, tiles)
    for span, extent in zip(reversed(spans), reversed(access.tensor.shape), strict=False):
        run = np.where(full, run * span, run)
        stride = np.where(full, stride * extent, stride)
        full = full & (span == extent)
    return run, stride


def vector_elements(access: Access, operator: Operator, tiles: Ints) -> Ints:
    """Elements a thread can move at once when tiles of ``access`` are staged."""
    if access.is_computed:
        return np.ones(len(tiles), np.int64)
    return np.gcd(
        np.gcd(*_run(access, operator, tiles)), max(1, VECTOR_BYTES // access.tensor.element_size)
    )


def sectors_touched(addresses: Ints, size: int) -> Floats:
    """Sectors in which a warp's elements of ``size`` bytes lie, shape (...).

    ``addresses``, in bytes and in the order of memory, have shape (..., lanes); the first may lie
    anywhere in a sector, and the mean over these places counts.
    """
    places = range(0, SECTOR, size)
    if SECTOR % size == 0 and not np.any(addresses % size):
        # As many ends of sectors lie between two elements as places, but for the farther ones.
        apart = np.abs(np.diff(addresses // size, axis=-1))
        return np.asarray(1 + np.sum(np.minimum(apart, len(places)), axis=-1) / len(places))
    crossed = sum(
        np.count_nonzero(np.diff((addresses + place) // SECTOR, axis=-1), axis=-1)
        for place in places
    )
    return np.asarray(1 + crossed / len(places))


def written_sectors(touched: Quantity, used: Quantity) -> Floats:
    """Sectors that stores move: the cache reads those first that are written in part.

    Args:
        touched: sectors that are written, each as often as a warp's store touches it.
        used: sectors that the stored elements would fill.
    """
    # A run of elements has two ends, each of which leaves half a sector unused on the average.
    return np.asarray(touched + np.minimum(touched, 2 * np.maximum(0, touched - used)))


def store_sectors(device: Device, tiles: Candidates) -> Floats:
    """Sectors that all warps' stores of the output move, shape (candidates,).

    Threads store their own tiles, a vector at a time: neighbouring threads' elements lie a tile
    apart. Where groups of threads share the reduction, all store neighbouring elements.
    """
    operator, write = tiles.operator, tiles.operator.write
    size = write.tensor.element_size
    # Tiles that differ in the sum only store alike.
    columns = np.flatnonzero(tiles.is_spatial)
    shapes = np.concatenate((tiles.thread[:, columns], tiles.block[:, columns]), axis=1)
    _, first, alike = np.unique(shapes, axis=0, return_index=True, return_inverse=True)
    touched = _touched_apart(device, tiles.rows(first))[alike.ravel()]
    apart = operator.outputs / tiles.store_vectors / device.warp_size * touched
    used = operator.outputs * size / SECTOR
    together = used * coalescing(write, operator, tiles.block)
    return written_sectors(np.where(tiles.groups > 1, together, apart), used)


def _touched_apart(device: Device, tiles: Candidates) -> Floats:
    """Sectors that a warp's store touches where threads store their own tiles."""
    operator, write = tiles.operator, tiles.operator.write
    axes, columns = operator.spatial_axes, np.flatnonzero(tiles.is_spatial)
    stride = dict.fromkeys((axis.name for axis in axes), 0) | write.strides
    rest = np.arange(device.warp_size)[None, :]
    address = np.zeros((len(tiles.groups), device.warp_size), np.int64)
    for axis, column in reversed(list(zip(axes, columns, strict=True))):
        run = _runs(operator, axis.name, tiles.thread[:, column])[:, None]
        threads = tiles.block[:, column, None] // tiles.thread[:, column, None]
        address += rest % threads * run * stride[axis.name]
        rest = rest // threads
    size = write.tensor.element_size
    return sectors_touched(address * size, size)


def _runs(operator: Operator, axis: str, thread: Ints) -> Ints:
    """Neighbouring outputs along an axis that a thread of each candidate has."""
    slides = axis in operator.sliding_axes
    lengths = {
        int(extent): run_length(operator, int(extent), is_whole=slides)
        for extent in np.unique(thread)
    }
    return np.array([lengths[int(extent)] for extent in thread], np.int64)


def contraction_resources(device: Device, tiles: Candidates) -> BlockResources:
    """What a block takes of a matrix product or convolution that is staged in shared memory."""
    # Partial sums of the groups, and their total on its way to global memory.
    footprint = np.where(tiles.groups > 1, tiles.outputs * (tiles.groups + 1) * 4, 0)
    for read in tiles.operator.reads:
        size = read.tensor.element_size
        footprint = footprint + elements(read, tiles.operator, tiles.staged) * size
    ahead = np.where(tiles.prefetched > 0, tiles.staged_words, 0)
    registers = compiled_registers(device, tiles.threads, tiles.accumulators, ahead)
    return BlockResources(np.asarray(footprint, np.int64), registers)


def reads_without_conflicts(device: Device, tiles: Candidates) -> SharedReads:
    """A load and a wavefront for each word that a thread reads or a warp stores."""
    operator, chunk = tiles.operator, np.where(tiles.is_spatial, tiles.thread, tiles.block)
    loads = sum(elements(read, operator, chunk) for read in operator.reads)
    stored = sum(elements(read, operator, tiles.staged) for read in operator.reads)
    stores = np.asarray(stored // device.warp_size)
    wavefronts = np.asarray(-(-tiles.threads // device.warp_size) * loads + stores)
    return SharedReads(np.asarray(loads), wavefronts, np.zeros_like(stores), stores)


def widest_reads(device: Device, tiles: Candidates) -> SharedReads:
    """A load and a wavefront for each vector that a thread reads or a warp stores."""
    operator, chunk = tiles.operator, np.where(tiles.is_spatial, tiles.thread, tiles.block)
    loads, stores = np.zeros((2, len(chunk)), np.int64)
    for read in operator.reads:
        vector = VECTOR_BYTES // read.tensor.element_size
        loads += -(-elements(read, operator, chunk) // vector)
        stores += elements(read, operator, tiles.staged) // (vector * device.warp_size)
    wavefronts = -(-tiles.threads // device.warp_size) * loads + stores
    return SharedReads(loads, np.asarray(wavefronts), np.zeros_like(stores), stores)


def converted(operator: Operator, chunk: Ints) -> Ints:
    """Instructions by which a thread widens what it reads to float32 registers."""
    own = (elements(read, operator, chunk) * widening(read.tensor) for read in operator.reads)
    return sum(own, np.zeros(len(chunk), np.int64))


def widening(tensor: Tensor) -> int:
    """Instructions that make an element of a tensor one of four bytes: of eight-bit floats, two.

    A pair of these becomes halves at once, and each half then float32; every other pair is moved to
    where that looks for it.
    """
    if tensor.element_size >= _WORD:
        return 0
    return 2 if tensor.dtype.startswith("float8") else 1


_WORD = 4
