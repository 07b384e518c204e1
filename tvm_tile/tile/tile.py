"""What is known of a tile, whatever its kernel computes: its launch, what that takes, how long."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile(ABC):
    """How a kernel is cut into blocks, and what the model predicts for it.

    A family of kernels adds what it has to know to write one. It has ``grid`` and ``block_size`` as
    properties, where they follow from that, or else as fields: with ``field()``, since otherwise
    the properties here would be their defaults.

    Attributes:
        shared_bytes: of a block.
        registers: of a thread, as the model reckons; 0 where it does not.
        seconds: predicted time of the kernel; infinite as long as there is no prediction, and where
            no block fits the device.
    """

    shared_bytes: int = 0
    registers: int = 0
    seconds: float = math.inf

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
