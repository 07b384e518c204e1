"""Models compiled for known extents, side by side in other processes, before anything is timed."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.open_shapes.compiling import Made, Request, begin_worker, compile_static, reason

if TYPE_CHECKING:
    from tvm_tile import CompiledModel


@dataclass(slots=True)
class Statics:
    """Compiled models of one model.

    Attributes:
        pool: where they are compiled.
        folder: where they are saved until they are discarded.
        model: its name.
        device: name of the device record.
        cache: a folder of schedules and machine code, or none.
    """

    pool: Executor
    folder: Path
    model: str
    device: str
    cache: Path | None
    _asked: dict[tuple[int, bool], Future[Made]] = field(default_factory=dict)

    def ask(self, extent: int, *, is_masked: bool = False) -> None:
        """Begin to compile for an extent."""
        if (extent, is_masked) not in self._asked:
            path = self._path(extent, is_masked)
            request = Request(self.model, extent, is_masked, self.device, self.cache, path)
            self._asked[extent, is_masked] = self.pool.submit(compile_static, request)

    def made(self, extent: int, *, is_masked: bool = False) -> Made:
        """What became of it, as soon as it is done; it was asked for."""
        try:
            return self._asked[extent, is_masked].result()
        except Exception as error:  # the process died
            return Made(reason(error), 0.0)

    def load(self, extent: int, *, is_masked: bool = False) -> CompiledModel:
        """The model, which was compiled."""
        import tvm_tile

        return tvm_tile.load(self._path(extent, is_masked))

    def discard(self, extent: int) -> None:
        """Its file is needed no more."""
        self._path(extent, False).unlink(missing_ok=True)

    def _path(self, extent: int, is_masked: bool) -> Path:
        return self.folder / f"{extent}{'_masked' * is_masked}.tvmtile"


@contextmanager
def statics(model: str, device: str, jobs: int, cache: Path | None) -> Iterator[Statics]:
    """Compiled models of one model, ``jobs`` of them made at once; their files go at the end."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        pool = ProcessPoolExecutor(jobs, context, initializer=begin_worker)
        try:
            yield Statics(pool, Path(folder), model, device, cache)
        finally:
            pool.shutdown(cancel_futures=True)
