"""What a scheduling rule is: ``None`` for "not mine", else a scheduled function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from tvm_tile.device.device import Device
from tvm_tile.graph.tile_graph import TileGraph


@dataclass(frozen=True, slots=True)
class Scheduled:
    """One function as kernels.

    Attributes:
        func: TensorIR with its loops bound to blocks and threads.
        rule: name of the rule that wrote it.
        tile: the chosen tile, in one line for people.
        grid: blocks of the main kernel.
        block: threads of a block.
        seconds: predicted time.
    """

    func: tirx.PrimFunc
    rule: str
    tile: str
    grid: int
    block: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Task:
    """A function to schedule, its operators, and the device it is for."""

    func: tirx.PrimFunc
    graph: TileGraph
    device: Device


Rule = Callable[[Task], Scheduled | None]
