"""Rows of kernels behind others, on a GPU that knows whose code its caches hold."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tvm_tile.calibrate import rows
from tvm_tile.calibrate.driver import Buffer, Gpu, LoadedKernel
from tvm_tile.calibrate.rows import KernelRows
from tvm_tile.device import find_device

H200 = find_device("nvidia/h200")
FILLER, FOUND, START = 8e-6, 5e-6, 7e-6  # seconds of a filler, less if its code is there; a graph


class Clock:
    """The part of CUDA's driver that tells the time, which passes as ``seconds`` is added to."""

    seconds = 0.0

    def __init__(self) -> None:
        self.destroyed = 0

    def cuEventCreate(self, _flags: int) -> tuple[int, Any]:
        return 0, SimpleNamespace(at=0.0)

    def cuEventDestroy(self, _event: Any) -> tuple[int]:
        self.destroyed += 1
        return (0,)

    def cuEventRecord(self, event: Any, _stream: Any) -> tuple[int]:
        event.at = self.seconds
        return (0,)

    def cuStreamSynchronize(self, _stream: Any) -> tuple[int]:
        return (0,)

    def cuEventElapsedTime(self, start: Any, stop: Any) -> tuple[int, float]:
        return 0, (stop.at - start.at) * 1e3


@dataclass
class Simulated(Gpu):
    """Runs no kernel, but lets time pass: less for a filler whose code the last one has left.

    Attributes:
        slower: how many times as long everything takes; from launch to launch a little more.
        queued: names of what ran, in order.
    """

    slower: float = 1.0
    queued: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = Clock()
        self._api, self._stream, self._events = self.clock, None, []
        self._stack = self._lasting = ExitStack()

    def load(self, _cubin: bytes, name: str, _shared: int = 0) -> LoadedKernel:
        return LoadedKernel(name, 0)

    def allocate(self, size: int) -> Buffer:
        return Buffer(0, size)

    def launch(self, kernel: LoadedKernel, blocks: int, threads: int, *_: Any, **__: Any) -> None:
        assert (blocks, threads) == (132, 512)
        before = next((name for name in reversed(self.queued) if name != "kernel"), "")
        self.passes(FOUND if before == kernel.function else FILLER, kernel.function)

    def passes(self, seconds: float, name: str) -> None:
        self.slower *= 1 + 1e-6
        self.clock.seconds += seconds * self.slower
        self.queued.append(name)

    def graph(self, queue: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            self.clock.seconds += START
            queue()

        return run


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "compile_cuda", lambda *_: b"")


@pytest.mark.parametrize("seconds", [1e-6, 4e-6, 3e-5, 1.1e-4, 3.2e-4, 3.4e-4, 2e-3])
def test_a_row_takes_what_its_kernels_take_without_fillers_and_start(seconds: float) -> None:
    gpu = Simulated()
    found = KernelRows.on(gpu, H200)
    for _ in range(2):
        got = found.seconds(lambda: gpu.passes(seconds, "kernel"), 1.2 * seconds)
        assert got == pytest.approx(seconds, rel=1e-2, abs=1e-8)


@pytest.mark.parametrize("seconds", [1e-6, 1.1e-4, 3.4e-4, 2e-3])
def test_each_filler_is_behind_the_other(seconds: float) -> None:
    gpu = Simulated()
    KernelRows.on(gpu, find_device("nvidia/h200")).seconds(
        lambda: gpu.passes(seconds, "kernel"), seconds
    )
    fillers = [name for name in gpu.queued if name != "kernel"]
    assert fillers == ["first", "second"] * (len(fillers) // 2)
    both = sum(own == "kernel" for own in gpu.queued)
    assert len(fillers) == 2 * both


@pytest.mark.parametrize(("seconds", "most"), [(1e-6, 400), (1e-3, 10), (5e-3, 2)])
def test_long_kernels_run_a_few_times(seconds: float, most: int) -> None:
    gpu = Simulated()
    KernelRows.on(gpu, find_device("nvidia/h200")).seconds(
        lambda: gpu.passes(seconds, "kernel"), seconds
    )
    assert 2 <= gpu.queued.count("kernel") <= most


def test_events_outlive_what_is_short_lived() -> None:
    gpu = Simulated()
    with gpu.short_lived():
        gpu.turns((lambda: None,), 3)
    assert gpu.clock.destroyed == 0
    assert gpu.time(lambda: gpu.passes(1e-6, "kernel"), 2) == pytest.approx([1e-6] * 2, rel=1e-3)
    gpu._lasting.close()
    assert gpu.clock.destroyed == 4
