"""Run, time, save and load compiled models."""

from __future__ import annotations

from tvm_tile.runtime.drivers.timing import Timing
from tvm_tile.runtime.entries import CompiledEntries, load
from tvm_tile.runtime.held import HeldMemory
from tvm_tile.runtime.model import CompiledModel

__all__ = ["CompiledEntries", "CompiledModel", "HeldMemory", "Timing", "load"]
