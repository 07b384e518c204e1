"""Times of the stages of a compilation."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tvm_tile.report.compiled import Stage


class Stopwatch:
    """Wall-clock time from lap to lap."""

    def __init__(self) -> None:
        self.stages: tuple[Stage, ...] = ()
        self._last = time.perf_counter()

    def lap(self, name: str, inner: Mapping[str, float] | None = None) -> None:
        """A stage ends; ``inner`` are the seconds of stages that took place within it."""
        now = time.perf_counter()
        inner = inner or {}
        own = Stage(name, now - self._last - sum(inner.values()))
        self.stages += (own, *(Stage(within, seconds) for within, seconds in inner.items()))
        self._last = now
