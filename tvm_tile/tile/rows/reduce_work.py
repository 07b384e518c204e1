"""What reductions without reuse do: threads share sums, and blocks share long ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator, Tensor
from tvm_tile.tile.adding import adding_work
from tvm_tile.tile.asked import (
    FEW_IN_FLIGHT,
    MOST_IN_FLIGHT,
    asked_bytes,
    box_of,
    in_flight,
    loads_of,
    meeting,
    operations_of,
    present_blocks,
)
from tvm_tile.tile.powers import power_of_two
from tvm_tile.tile.tile import Tile
from tvm_tile.tile.time import WAVEFRONT, Part, Work


@dataclass(frozen=True, slots=True)
class ReduceTile(Tile):
    """A reduction's launch shape.

    Attributes:
        form: ``"window"``, ``"row"`` or ``"column"``; see :mod:`tvm_tile.schedule.s_tir.reduction`.
        outputs: results in all.
        outputs_per_block: results of a block.
        outputs_per_thread: neighbouring results of a thread (window only).
        vector: neighbouring points of its sum that a thread loads at once (row only).
        parts: blocks that share one sum, whose results a second kernel adds up.
        neighbours: neighbouring points of a sum that threads add up as if they were of sums of
            their own, whose results the second kernel adds up, too (column, in parts). They are
            among ``outputs``.
        laps: times that the threads of a block go on to further results (window only).
        threads_per_output: threads that share one sum.
    """

    form: str
    outputs: int
    outputs_per_block: int
    outputs_per_thread: int
    threads_per_output: int
    laps: int = 1
    vector: int = 1
    parts: int = 1
    neighbours: int = 1

    @property
    def shares(self) -> int:
        """Results that the second kernel adds up for one sum."""
        return self.parts * self.neighbours

    @property
    def grid(self) -> int:
        """Blocks of the kernel."""
        return -(-self.outputs * self.parts // self.outputs_per_block)

    @property
    def block_size(self) -> int:
        """Threads of a block."""
        sums = self.outputs_per_block // (self.outputs_per_thread * self.laps)
        return sums * self.threads_per_output

    def describe(self) -> str:
        """The tile in one line, for people."""
        parts = f", {self.parts} parts" if self.parts > 1 else ""
        vector = f", {self.vector} points a load" if self.vector > 1 else ""
        vector += f", {self.neighbours} sums of each" if self.neighbours > 1 else ""
        return (
            f"{self.outputs_per_block} outputs a block, {self.outputs_per_thread} a thread, "
            f"{self.threads_per_output} threads an output{vector}{parts}"
        )


def work_of(
    tile: ReduceTile,
    operator: Operator,
    device: Device,
    after: Operator | None = None,
    whole: Operator | None = None,
) -> Work:
    """What a reduction does: its threads go along their sums, meet, and store.

    ``after`` is what is made of the sums, where that is not they themselves: it may be several
    elements of each, such as those of a row that the sum normalizes. The kernel's last part makes
    it, one element of a thread at a time. ``whole`` is the reduction, where ``operator`` has
    neighbours as sums of their own.
    """
    warps = -(-tile.block_size // device.warp_size)
    size = operator.write.tensor.size
    block = box_of(operator.spatial_axes, min(tile.outputs_per_block, operator.outputs))
    end = Part(
        stores=asked_bytes(operator.write, block | box_of(operator.reduce_axes, 1)),
        moves=warps * tile.laps * tile.outputs_per_thread,
    )
    read, written = operator.traffic - size, size
    if after is not None and tile.parts == 1:
        end = _made(after, operator, tile, device)
        known = {own.tensor.name for own in operator.reads}
        read += sum(o.tensor.size for o in _others(after, operator) if o.tensor.name not in known)
        written = after.write.tensor.size
    return Work(
        blocks=tile.grid,
        resident=present_blocks(device, tile),
        warps=warps,
        parts=(
            _along(tile, operator, device),
            meeting(tile, tile.threads_per_output, device, is_across=tile.form == "column"),
            end,
        ),
        read=read,
        written=tile.parts * written,
        then=(_adding(tile, whole or operator, device, after),) if tile.parts > 1 else (),
    )


def _along(tile: ReduceTile, operator: Operator, device: Device) -> Part:
    """Threads go along their sums.

    The loads of a window are all on their way at once, as are those of a few iterations of a loop
    along a row or a column. Where what a window reads may be padding, a branch is around each load,
    and the next one waits for it.
    """
    warps = -(-tile.block_size // device.warp_size)
    lap = tile.vector * tile.threads_per_output
    pieces = -(-operator.depth // tile.parts // lap)
    # Single elements are left out by the processor; around vectors there is a branch.
    is_tested = tile.vector > 1 and operator.depth % (tile.parts * lap) > 0
    ahead = in_flight(pieces, tile.vector, is_tested=is_tested)
    ahead = pieces if tile.form == "window" else ahead
    points = tile.vector * ahead
    own = box_of(operator.spatial_axes, tile.outputs_per_thread)
    own |= box_of(operator.reduce_axes, points)
    block = box_of(operator.spatial_axes, min(tile.outputs_per_block, operator.outputs))
    block |= box_of(operator.reduce_axes, points * tile.threads_per_output)
    summed = {axis.name for axis in operator.reduce_axes if axis.extent > 1}
    # What does not change along a sum is loaded once, ahead of it.
    reads = [r for r in operator.reads if not summed or not r.axes.isdisjoint(summed)]
    is_padded = tile.form == "window" and any(read.is_computed for read in reads)
    loads = [
        (loads_of(read, own, tile.vector), _lines(read, tile, operator, device.warp_size))
        for read in reads
    ]
    return Part(
        repeats=pieces / ahead,
        fills=sum(asked_bytes(read, block) for read in reads),
        operations=warps
        * tile.laps
        * tile.outputs_per_thread
        * points
        * operations_of(operator, device),
        moves=warps * tile.laps * sum(count for count, _ in loads),
        # The first-level cache answers a load line by line.
        wavefronts=warps * tile.laps * sum(count * lines for count, lines in loads),
        loads=tile.laps * tile.outputs_per_thread * points if is_padded else 1,
    )


def _lines(read: Access, tile: ReduceTile, operator: Operator, warp: int) -> float:
    """Lines of the first-level cache in which one load of a warp's threads lies."""
    size = read.tensor.element_size
    along = min(warp, tile.threads_per_output) if tile.form == "row" else 1
    address = np.zeros(warp, np.int64)
    lanes = np.arange(warp)
    for axes, rest in (
        (operator.reduce_axes, lanes % along * tile.vector),
        (operator.spatial_axes, lanes // along * tile.outputs_per_thread),
    ):
        for axis in reversed(axes):
            address += rest % axis.extent * read.strides.get(axis.name, 0) * size
            rest = rest // axis.extent
    reached = len(np.unique(address // WAVEFRONT))
    width = max(1, min(tile.vector, VECTOR_BYTES // size))
    return max(reached, len(np.unique(address)) * width * size / WAVEFRONT)


def adding_tile(outputs: int, shares: int, device: Device) -> ReduceTile:
    """The tile of the kernel that adds up results of several blocks or threads for each sum.

    A thread adds up those of one sum, unless they are many. Neighbouring results are of
    neighbouring sums.
    """
    across, most = device.warp_size, device.max_threads_per_block
    if shares <= MOST_IN_FLIGHT:
        return ReduceTile("window", outputs, 2 * across, 1, 1)
    threads = min(power_of_two(max(1, shares // FEW_IN_FLIGHT)), most)
    if outputs < across:
        return ReduceTile("row", outputs, 1, 1, max(across, threads))
    most //= across
    return ReduceTile("column", outputs, across, 1, min(threads, most))


def _adding(tile: ReduceTile, operator: Operator, device: Device, after: Operator | None) -> Work:
    """What the kernel does that adds parts of sums, and makes elements of each, if of any several.

    A thread that has added a sum makes all of its elements.
    """
    adding, size = adding_tile(operator.outputs, tile.shares, device), operator.write.tensor.size
    if adding.form == "window":
        added = adding_work(tile.shares, size, device)
        threads = min(int(added.warps) * device.warp_size, operator.outputs)
        adding = replace(adding, outputs_per_block=threads)
    else:
        added = work_of(adding, _added(operator.outputs, tile.shares), device)
    if after is None or after.points <= operator.outputs:
        return added
    made = _made(after, operator, adding, device)
    read = sum(other.tensor.size for other in _others(after, operator))
    return replace(
        added,
        parts=(*added.parts, made),
        read=added.read + read,
        written=after.write.tensor.size,
    )


def _added(outputs: int, shares: int) -> Operator:
    """The sum of results in float32, one behind the other for each share."""
    sums, within = Axis("sum", outputs), Axis("share", shares, is_reduce=True)
    own, along = AffineIndex((("sum", 1),)), AffineIndex((("share", 1),))
    results = Access(Tensor("results", (shares, outputs), "float32"), (along, own))
    write = Access(Tensor("sums", (outputs,), "float32"), (own,))
    return Operator("adding", (sums, within), (results,), write, flops=1)


def _others(after: Operator, operator: Operator) -> list[Access]:
    """What is read to make something of sums, but for these."""
    return [read for read in after.reads if read.tensor.name != operator.write.tensor.name]


def _made(after: Operator, operator: Operator, tile: ReduceTile, device: Device) -> Part:
    """Elements that are made of the sums, one behind the other by the threads that have a sum."""
    threads = tile.block_size // tile.threads_per_output
    active = -(-threads // device.warp_size)  # warps
    made = tile.outputs_per_block * max(1.0, after.points / operator.outputs)  # of a block
    own = made / threads
    together, others = min(own, FEW_IN_FLIGHT), _others(after, operator)
    share = made * together / own
    return Part(
        repeats=own / together,
        fills=share * sum(read.tensor.element_size for read in others),
        stores=share * after.write.tensor.element_size,
        operations=active * together * operations_of(after, device),
        moves=active * together * (len(others) + 1),
        loads=1 if others else 0,
    )
