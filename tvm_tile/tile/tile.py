"""Facts that every tile has, whatever its kernel computes: launch, resources, predicted time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, TypeVar

from tvm_tile.device.device import Device
from tvm_tile.tile.time import Scene, Work, seconds_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile(ABC):
    """How a kernel is cut into blocks, and what the model predicts for it.

    A family of kernels adds what it has to know to write one. It has ``grid`` and ``block_size`` as
    properties, where they follow from that, or else as fields: with ``field()``, since otherwise
    the properties here would be their defaults.

    Attributes:
        shared_bytes: bytes of shared memory of a block.
        registers: registers of a thread, as the model reckons; 0 where it does not.
        seconds: predicted time of the kernel; infinite as long as there is no prediction, and where
            no block fits the device.
        work: what the kernel does, from which its time follows; ``None`` where nobody said.
    """

    shared_bytes: int = 0
    registers: int = 0
    seconds: float = math.inf
    work: Work | None = None

    @property
    @abstractmethod
    def grid(self) -> int:
        """Blocks of the kernel."""

    @property
    @abstractmethod
    def block_size(self) -> int:
        """Threads of a block."""

    @abstractmethod
    def describe(self) -> str:
        """The tile in one line, for people."""


AnyTile = TypeVar("AnyTile", bound=Tile)


def ranked(
    tiles: Iterable[AnyTile], device: Device, scene: Scene, count: int | None = None
) -> tuple[AnyTile, ...]:
    """The fastest tiles of which blocks fit, best first; of equals the one that is named first.

    Args:
        tiles: one for each choice of a family's extents, all of which say what they do.
        device: the device that they are made for.
        scene: where their kernels run.
        count: the most tiles that are wanted; ``None``: all.
    """
    # To say the seconds of each costs more than to find them: only those that are wanted do.
    pairs = [pair for pair in _with_seconds(tiles, device, scene) if pair[1] < math.inf]
    fastest = sorted(pairs, key=itemgetter(1))[:count]
    return tuple(replace(tile, seconds=seconds) for tile, seconds in fastest)


def priced(tiles: Iterable[AnyTile], device: Device, scene: Scene) -> tuple[AnyTile, ...]:
    """Tiles with the predicted seconds of what they do, in the order in which they come."""
    pairs = _with_seconds(tiles, device, scene)
    return tuple(replace(tile, seconds=seconds) for tile, seconds in pairs)


def _with_seconds(
    tiles: Iterable[AnyTile], device: Device, scene: Scene
) -> list[tuple[AnyTile, float]]:
    """Tiles, and the predicted seconds of what they do."""
    found = tuple(tiles)
    works = [tile.work for tile in found if tile.work is not None]
    if not found:
        return []
    return list(zip(found, seconds_of(works, device, scene).tolist(), strict=True))


def near_ties(
    tiles: Sequence[AnyTile], factor: float, preference: Callable[[AnyTile], Any]
) -> tuple[AnyTile, ...]:
    """Ranked tiles, of which those that take hardly longer than the first are ordered anew.

    Args:
        tiles: best first.
        factor: factor of the first tile's time below which no difference is to be trusted.
        preference: function that gives the key to order these tiles by; the least is best.
    """
    near = sum(tile.seconds <= factor * tiles[0].seconds for tile in tiles)
    return (*sorted(tiles[:near], key=preference), *tiles[near:])
