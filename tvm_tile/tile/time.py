"""What a kernel takes: one model of time for all kernels, alone and amid others.

A family of kernels describes what its blocks do, as :class:`Work`; nothing else of it is known
here. A block goes through the parts of its work one after the other. Alone on its multiprocessor, a
part takes what its instructions, its bytes, its products, or its waits for one another take,
whichever is longest, the others overlapping in part::

    alone = start + sum of repeats * norm(issue, shared memory, cache, stores, products, waits)

Blocks that share a multiprocessor hide each other's waits, but share its units; instructions take
what the scheduler with most of their warps has of them::

    shared(r) = r * (norm(issue, shared memory, cache, stores, products) over all parts + dispatch)
    block(r)  = (alone ** p + shared(r) ** p - shared(1) ** p) ** (1 / p)

Blocks come in waves, of which the last may be smaller, and global memory has to deliver what is in
no cache, meanwhile. It serves some blocks later than others: where others follow them, these make
up for it, and where all run at once, the last ones read alone::

    memory = bytes / bandwidth * (1 + tail / max(1, waves))
    kernel = start + norm(waves * block(resident) + block(rest), memory) + launch

Where the kernel runs is an input (:class:`Scene`): it says what lies in the second-level cache, and
what ran before. Roller's model (OSDI'22, section 3.3) has compute and traffic of a wave; waits,
overlap and starts are what short kernels are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_tile.device.chip_times import ChipTimes, UnitTimes
from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.device.times import needed

Floats = npt.NDArray[np.float64]
# A number, or an array of one number for each of several tiles, shape (tiles,).
Quantity = float | Floats

_FILLS = 2  # place of the cache's loads among what keeps units busy
SCHEDULERS = 4  # warp schedulers of a multiprocessor
WAVEFRONT = 128  # bytes of shared memory that all banks serve at once, if none serves two words


class Unit(str, Enum):
    """What multiplies: CUDA cores, or a matrix unit driven by warps, warpgroups or waves."""

    CORES = "cores"
    WARP = "warp"
    GROUP = "group"
    WAVE = "wave"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something that a block does ``repeats`` times, one after the other.

    All numbers are of one repetition. What is *asked for* counts all threads of the block together;
    what is *waited for* counts what comes one behind the other.

    Attributes:
        repeats: how often it is done.
        fills: bytes asked for of the second-level cache or of memory, whole sectors.
        stores: bytes written there, whole sectors; those written in part are read first, and count
            twice.
        operations: arithmetic instructions of all warps. A multiply-add counts
            :func:`~tvm_tile.tile.cost.arithmetic_slots`, a conversion one, a division or a function
            as many as it is made of.
        moves: instructions of all warps that load, store or copy, to and from any level.
        wavefronts: wavefronts of shared memory, :data:`WAVEFRONT` bytes each without conflicts.
        flops: operations of the matrix unit, two for each multiply-add, padding included.
        loads: trips to global memory that are waited for.
        barriers: barriers of the block that are waited for.
        meetings: waits of a cluster's blocks for one another, each other's memory read behind it.
        exchanges: shuffles and trips through shared memory that are waited for.
        steps: instructions of a matrix unit, each of which waits for the one before.
        arrivals: chunks of a matrix unit's operands that are waited for.
        ahead: repetitions whose loads and arrivals are on their way at once; at least one.
    """

    repeats: Quantity = 1
    fills: Quantity = 0
    stores: Quantity = 0
    operations: Quantity = 0
    moves: Quantity = 0
    wavefronts: Quantity = 0
    flops: Quantity = 0
    loads: Quantity = 0
    barriers: Quantity = 0
    meetings: Quantity = 0
    exchanges: Quantity = 0
    steps: Quantity = 0
    arrivals: Quantity = 0
    ahead: Quantity = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a kernel does, as its blocks do it: all that its time depends on.

    Attributes:
        blocks: blocks of the kernel.
        resident: blocks that fit on a multiprocessor at a time; zero where none does.
        warps: warps of a block.
        parts: what a block does, in order.
        read: bytes that are read from outside of the kernel, each once.
        written: bytes that it writes.
        again: bytes that it reads from memory once more, since no cache has kept them meanwhile.
        asked: bytes of constants that it asks for before it needs what the kernel before it wrote.
        unit: what multiplies.
        dtype: element type of the matrix unit's operands, as the device record's rates name it;
            empty for CUDA cores.
        then: kernels that follow it for the same result, such as one that adds parts of sums.
    """

    blocks: Quantity
    resident: Quantity
    warps: Quantity
    parts: tuple[Part, ...]
    read: Quantity
    written: Quantity
    again: Quantity = 0
    asked: Quantity = 0
    unit: Unit = Unit.CORES
    dtype: str = ""
    then: tuple[Work, ...] = ()


class Start(Enum):
    """How a kernel begins: from a cold chip, or behind another one of a graph."""

    COLD = "cold"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a kernel runs.

    Attributes:
        start: how it begins.
        cached: share of the bytes it reads that lie in the second-level cache, if they fit there.
    """

    start: Start
    cached: float


ALONE = Scene(Start.COLD, 0.0)  # by itself, as operators are compared
AMID = Scene(Start.BEHIND, 1.0)  # in a model, its inputs written a moment ago


def seconds_of(works: Sequence[Work], device: Device, scene: Scene = ALONE) -> Floats:
    """Predicted seconds of kernels, launches included, shape (works,); infinite where none fits.

    Args:
        works: what they do, each with numbers; one at least.
        device: the device that runs them.
        scene: where they run.
    """
    return Batch.of(works).seconds(device, scene)


def kept_bytes(device: Device) -> float:
    """Bytes of what was read or written last that are found again in the second-level cache."""
    return device.l2_capacity * device.times.chip.kept_share


def least_seconds(device: Device) -> float:
    """Seconds of a kernel of a model that does nothing, its launch included."""
    return device.times.chip.start_cycles / device.clock + device.launch_latency


def least_product_seconds(flops: float, dtype: str, device: Device) -> float:
    """Seconds that no kernel can be below that multiplies so much.

    Args:
        flops: operations of arithmetic, two for each multiply-add.
        dtype: element type of a matrix unit's operands; empty for CUDA cores.
        device: the device that runs it.
    """
    rate = dict(device.matrix_flops)[dtype] if dtype else device.flops("float32")
    return least_seconds(device) + flops / rate


@dataclass(frozen=True, slots=True)
class Batch:
    """Kernels to be priced together, and again with other numbers of a device.

    Attributes:
        count: number of them.
        stacks: works of the same unit and as many parts as one of arrays, with their places.
        behind: kernels that follow some of them, and whose they are; None where none do.
    """

    count: int
    stacks: tuple[tuple[npt.NDArray[np.int64], Work], ...]
    behind: tuple[Batch, npt.NDArray[np.int64]] | None

    @classmethod
    def of(cls, works: Sequence[Work]) -> Batch:
        """A batch of works of numbers."""
        kinds: dict[tuple[Unit, str, int], list[int]] = {}
        for place, work in enumerate(works):
            kinds.setdefault((work.unit, work.dtype, len(work.parts)), []).append(place)
        stacks = tuple(
            (np.array(places), _stacked([works[place] for place in places]))
            for places in kinds.values()
        )
        later = [(place, own) for place, work in enumerate(works) for own in work.then]
        owners = np.array([place for place, _ in later], np.int64)
        behind = (cls.of([own for _, own in later]), owners) if later else None
        return cls(len(works), stacks, behind)

    def seconds(self, device: Device, scene: Scene) -> Floats:
        """Predicted seconds of each, shape (count,); see :func:`seconds_of`."""
        seconds = np.empty(self.count)
        for places, work in self.stacks:
            seconds[places] = work_seconds(work, device, scene)
        if self.behind is not None:
            batch, owners = self.behind
            np.add.at(seconds, owners, batch.seconds(device, AMID))
        return seconds


def _stacked(works: Sequence[Work]) -> Work:
    """Works of the same unit and as many parts, as one of arrays; what follows them is left out."""
    parts = zip(*(work.parts for work in works), strict=True)
    return replace(
        _columns(works, ("blocks", "resident", "warps", "read", "written", "again", "asked")),
        parts=tuple(_columns(own, tuple(f.name for f in fields(Part))) for own in parts),
        then=(),
    )


def _columns(rows: Sequence[Any], names: tuple[str, ...]) -> Any:
    """The first row, with arrays of all rows' numbers in place of its own."""
    columns = np.array(list(map(attrgetter(*names), rows)), np.float64).T
    return replace(rows[0], **dict(zip(names, columns, strict=True)))


def work_seconds(work: Work, device: Device, scene: Scene) -> Floats:
    """Predicted seconds of a kernel for each of its tiles, shape (tiles,), as arrays say them.

    Args:
        work: what it does; kernels that follow it are left out.
        device: the device that runs it.
        scene: where it runs.
    """
    model = _Model.of(work, device, scene)
    units, resident = device.multi_processor_count, np.maximum(1.0, work.resident)
    full, rest = np.divmod(np.asarray(work.blocks, np.float64), resident * units)
    cycles = full * model.block_cycles(resident)
    # Where no block is left over, one stands in for it: the formula is for one and more.
    last = model.block_cycles(np.maximum(1.0, np.ceil(rest / units)))
    cycles = cycles + np.where(rest > 0, last, 0.0)
    chip, clock = model.chip, device.clock
    memory = (work.read * (1 - model.cached) + work.again) / device.read_bandwidth
    memory = memory + work.written / device.memory(MemoryLevel.GLOBAL).bandwidth
    waves = np.asarray(work.blocks, np.float64) / (resident * units)
    memory = memory * (1 + chip.memory_tail / np.maximum(1.0, waves))
    busy = _norm(chip.memory_power, cycles / clock, memory)
    is_cold = scene.start is Start.COLD
    start = (chip.cold_start_cycles if is_cold else chip.start_cycles) / clock
    seconds = start + busy + device.launch_latency - _ahead(work, model, scene)
    return np.asarray(np.where(np.asarray(work.resident) > 0, seconds, np.inf), np.float64)


@dataclass(frozen=True, slots=True)
class _Model:
    """Cycles of a multiprocessor, given how many blocks of a kernel it has.

    Attributes:
        work: what the kernel does.
        device: the device that runs it.
        chip: the chip's numbers.
        unit: those of the matrix unit; None for CUDA cores.
        cached: share of the bytes read that lie in the second-level cache, shape (tiles,).
        missed: share of what blocks ask for that does not: what one block has read is there for
            the others.
    """

    work: Work
    device: Device
    chip: ChipTimes
    unit: UnitTimes | None
    cached: Quantity
    missed: Quantity

    @classmethod
    def of(cls, work: Work, device: Device, scene: Scene) -> _Model:
        """The model of a kernel on a device."""
        chip, unit = device.times.chip, None
        if work.unit is not Unit.CORES:
            unit = needed(getattr(chip, f"{work.unit.value}_unit"), f"{work.unit.value} units")
        room = kept_bytes(device) / np.maximum(1.0, np.asarray(work.read + work.written))
        cached = scene.cached * np.minimum(1.0, room)
        asked = work.blocks * sum(part.repeats * part.fills for part in work.parts)
        asked = np.maximum(1.0, asked)
        missed = (1 - cached) * np.minimum(1.0, work.read / asked)
        missed = np.minimum(1.0, missed + work.again / asked)
        return cls(work, device, chip, unit, cached, missed)

    def block_cycles(self, resident: Quantity) -> Floats:
        """Cycles of blocks that share a multiprocessor, until all of them have ended."""
        chip = self.chip
        alone: Quantity = chip.block_cycles + (self.unit.block_cycles if self.unit else 0.0)
        asked: list[Quantity] = [0.0] * 5
        for part in self.work.parts:
            bounds = self._asked(part)
            fetched, done = self._waited(part)
            # With several repetitions on their way, their loads are waited for meanwhile; else
            # until the last byte is there.
            arrived = fetched + np.where(np.asarray(part.loads) > 0, bounds[_FILLS], 0.0)
            behind = np.where(np.asarray(part.ahead) > 1, done, arrived + done)
            waits = _norm(chip.part_power, *bounds, fetched / part.ahead, behind)
            alone = alone + part.repeats * waits
            asked = [total + part.repeats * own for total, own in zip(asked, bounds, strict=True)]
        power = chip.block_power
        own, all_own = (self._shared(asked, count) ** power for count in (1.0, resident))
        return np.asarray((alone**power + all_own - own) ** (1 / power))

    def _shared(self, asked: Sequence[Quantity], resident: Quantity) -> Floats:
        """Cycles for which blocks keep the units busy that they share; of one, and of several."""
        issue, *others = asked
        fuller = self._fullest(resident) / self._fullest(1.0)
        chip = self.chip
        one = _norm(chip.part_power, issue * fuller, *others) + chip.dispatch_cycles
        return np.asarray(resident * one)

    def _asked(self, part: Part) -> list[Quantity]:
        """Cycles for which a part keeps each unit of a multiprocessor busy, if all of it is there.

        Issue, shared memory, the cache's loads, stores, and the matrix unit.
        """
        chip, device = self.chip, self.device
        a_cycle = device.l2_bandwidth / device.multi_processor_count / device.clock
        products: Quantity = 0.0
        if self.unit:
            rate = dict(device.matrix_flops)[self.work.dtype] * self.unit.rate_share
            products = part.flops / (rate / device.multi_processor_count / device.clock)
        return [
            self._slots(part) * self._fullest(1.0) / chip.issue_share,
            part.wavefronts * chip.wavefront_cycles,
            part.fills / (a_cycle * chip.cache_share),
            part.stores / (a_cycle * chip.store_share),
            products,
        ]

    def _fullest(self, resident: Quantity) -> Quantity:
        """Share of the blocks' warps that the scheduler with the most of them has."""
        warps = np.maximum(1.0, resident * np.asarray(self.work.warps))
        return np.asarray(np.ceil(warps / SCHEDULERS) / warps)

    def _slots(self, part: Part) -> Quantity:
        """Issue slots of all warps of a block."""
        chip = self.chip
        return part.operations + part.moves * chip.move_slots + self.work.warps * chip.part_slots

    def _waited(self, part: Part) -> tuple[Quantity, Quantity]:
        """Cycles that a block waits in a part: for what is far away, and for itself."""
        chip, unit, warps = self.chip, self.unit, self.work.warps
        load = chip.memory_cycles * self.missed + chip.cache_cycles * (1 - self.missed)
        fetched = part.loads * load + (part.arrivals * unit.arrival_cycles if unit else 0.0)
        barrier = chip.barrier_cycles + warps * chip.barrier_warp_cycles
        own = self._slots(part) / warps * chip.slot_cycles
        done = part.barriers * barrier + part.exchanges * chip.exchange_cycles + own
        done = done + part.meetings * chip.meeting_cycles
        done = done + (part.steps * unit.step_cycles if unit else 0.0)
        return fetched, done


def _ahead(work: Work, model: _Model, scene: Scene) -> Quantity:
    """Seconds of reading from memory that are behind a kernel when the one before it has ended."""
    times = model.device.dependent_launches
    if times is None or scene.start is Start.COLD:
        return 0.0
    asked = np.minimum(work.asked, work.read) * (1 - model.cached)
    behind, most = asked / model.device.read_bandwidth, times.ahead_seconds
    return behind * most / (behind + most) if most else 0.0


def _norm(power: float, *values: Quantity) -> Floats:
    """The time of work that overlaps in part: above the longest, below the sum, shape (tiles,)."""
    return np.asarray(sum(value**power for value in values) ** (1 / power))
