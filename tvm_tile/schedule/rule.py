"""Interface of a scheduling rule: it names tiles, best first, and writes those it is asked for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.s_tir.schedule import ScheduleError

from tvm_tile.device.device import Device
from tvm_tile.graph.tile_graph import TileGraph
from tvm_tile.schedule.scene import scene_of
from tvm_tile.tile.rules import Rule, RunnerUp
from tvm_tile.tile.tile import AnyTile, Tile
from tvm_tile.tile.time import Scene, Work


@dataclass(frozen=True, slots=True)
class Resident:
    """A function whose weights stay in shared memory, for a kernel that runs it several times.

    In both parts the weights are an allocation of scope ``shared.dyn`` named ``resident``. Both
    have the function's grid and block.

    Attributes:
        load: copies a block's weights; its parameters are the weights, named as the function's.
        run: the function, which finds them there; its parameters are all others.
        bytes: bytes of the allocation.
    """

    load: tirx.PrimFunc
    run: tirx.PrimFunc
    bytes: int


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A function that was scheduled, as kernels.

    Attributes:
        func: TensorIR with its loops bound to blocks and threads.
        rule: name of the rule that wrote it.
        tile: the chosen tile, in one line for people.
        grid: blocks of the main kernel.
        block: threads of a block.
        seconds: predicted time.
        shared_bytes: predicted shared memory of a block.
        registers: predicted registers of a thread; ``None`` where the model does not say.
        resident: the same with weights that stay; ``None`` where no rule has such a kernel.
        runner_up: the best choice of another rule that was asked; ``None`` where none has one.
    """

    func: tirx.PrimFunc
    rule: Rule
    tile: str
    grid: int
    block: int
    seconds: float
    shared_bytes: int = 0
    registers: int | None = None
    resident: Resident | None = None
    runner_up: RunnerUp | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A function to schedule, its operators, and the device it is for.

    Attributes:
        func: the function.
        graph: its operators.
        device: the device that it is made for.
        extents: extents of each output that a call needs, if not always all: numbers, or
            expressions of variables that will be parameters of the function. Nobody needs elements
            beyond these.
        below: predicted seconds of the best choice of another rule. A rule none of whose tiles
            could be faster may say so instead of looking closely at them.
    """

    func: tirx.PrimFunc
    graph: TileGraph
    device: Device
    extents: tuple[tuple[Any, ...], ...] = ()
    below: float = math.inf

    @property
    def scene(self) -> Scene:
        """Where its kernel runs."""
        return scene_of(self.func, self.graph)


def as_written(func: tirx.PrimFunc, rule: Rule, tile: Tile) -> Scheduled:
    """The scheduled function ``func``, which a rule wrote as a tile says."""
    return Scheduled(
        func,
        rule,
        tile.describe(),
        tile.grid,
        tile.block_size,
        tile.seconds,
        tile.shared_bytes,
        tile.registers or None,
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """A tile that a rule names for a function. Naming tiles is cheap, writing one is not.

    Attributes:
        rule: rule that names it.
        tile: itself, in one line for people.
        seconds: predicted time of the kernel, the same as that of what is written.
        works: what its kernels do, one for each output that has kernels of its own; empty where
            its tiles do not say.
        write: function that writes the kernel; ``None`` where TVM cannot analyse the result.
    """

    rule: Rule
    tile: str
    seconds: float
    write: Callable[[], Scheduled | None]
    works: tuple[Work, ...] = ()

    @classmethod
    def of(cls, rule: Rule, tile: Tile, write: Callable[[], Scheduled | None]) -> Choice:
        """The choice of one tile."""
        return cls(rule, tile.describe(), tile.seconds, write, works_of((tile,)))

    def __call__(self) -> Scheduled | None:
        """Write the kernel; ``None`` where TVM cannot."""
        return self.write()


def works_of(tiles: Sequence[Tile]) -> tuple[Work, ...]:
    """What the kernels of several tiles do; nothing unless all of them say it."""
    works = [tile.work for tile in tiles]
    return () if None in works else tuple(work for work in works if work is not None)


def choices_of(
    rule: Rule, tiles: Iterable[AnyTile], write: Callable[[AnyTile], tirx.PrimFunc | None]
) -> tuple[Choice, ...]:
    """A rule's choices where tiles say all that is to be known of what ``write`` makes of them.

    It makes nothing, ``None``, of those that cannot be written, or fails with a ScheduleError:
    TVM cannot analyse every split of every loop.
    """
    return tuple(Choice.of(rule, tile, partial(_written, rule, write, tile)) for tile in tiles)


def _written(
    rule: Rule, write: Callable[[AnyTile], tirx.PrimFunc | None], tile: AnyTile
) -> Scheduled | None:
    """The scheduled function; ``None`` where TVM refuses a step, or the rule does."""
    try:
        func = write(tile)
    except ScheduleError:
        return None
    return None if func is None else as_written(func, rule, tile)


def choices_of_outputs(
    rule: Rule,
    tiles: Iterable[Sequence[AnyTile]],
    count: int,
    write: Callable[[tuple[AnyTile, ...]], Scheduled],
) -> tuple[Choice, ...]:
    """A rule's choices for a function of several outputs, each with a kernel of its own.

    Args:
        rule: rule that names them.
        tiles: tiles of each output, best first. Outputs of one function are alike: the first ones
            go together, then the second ones.
        count: the most choices that are wanted.
        write: function that writes the function, given a tile for each output.
    """
    return tuple(
        Choice(
            rule,
            max(own, key=lambda tile: tile.seconds).describe(),
            sum(tile.seconds for tile in own),
            partial(write, own),
            works_of(own),
        )
        for own in itertools.islice(zip(*tiles, strict=False), count)
    )


FindChoices = Callable[[Task, int], Sequence[Choice]]
"""A rule: choices for a task, at most a number of them, best first; none for "not mine"."""
