"""Run, time, save and load compiled models."""

from __future__ import annotations

from tvm_tile.runtime.model import CompiledModel, load
from tvm_tile.runtime.timing import Timing

__all__ = ["CompiledModel", "Timing", "load"]
