"""What the calibration makes of chains of dependent launches, and how it launches them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from test_calibrate import FACTS, READINGS, VERSIONS

from tvm_tile.build.cuda import compile_cuda, compiler_for
from tvm_tile.calibrate import dependent
from tvm_tile.calibrate.driver import Buffer, Gpu, LoadedKernel
from tvm_tile.calibrate.record import assemble, describe
from tvm_tile.calibrate.sources import kernel_text
from tvm_tile.device import Reading, find_device
from tvm_tile.device.record import from_json, to_json
from tvm_tile.device.times import DependentLaunchTimes
from tvm_tile.errors import CalibrationError

MEASURED = (
    Reading("dependent_launches", "overlap", 7e-7, "s", None),
    Reading("dependent_launches", "wait", 3.00001e-8, "s", None),
)


class ChainGpu:
    """Runs no kernel, but knows what a chain of them takes, and what is in its last buffer.

    Args:
        wrong: what is added to each word.
    """

    def __init__(self, wrong: int = 0) -> None:
        self.wrong = wrong
        self.launched: list[tuple[str, bool]] = []

    def load(self, _cubin: bytes, name: str, shared_bytes: int) -> LoadedKernel:
        assert 2 * shared_bytes > FACTS.shared_memory_per_block_optin
        return LoadedKernel(name, shared_bytes)

    def allocate(self, size: int) -> Buffer:
        return Buffer(0, size)

    def launch(
        self, kernel: LoadedKernel, blocks: int, threads: int, *given: Any, dependent: bool
    ) -> None:
        self.launched.append((kernel.function, dependent))

    def graph(self, queue: Callable[[], None]) -> Callable[[], list[tuple[str, bool]]]:
        self.launched = []
        queue()
        launched = self.launched
        return lambda: launched

    def download(self, buffer: Buffer, _dtype: Any) -> np.ndarray:
        return np.full(buffer.size // 4, len(self.launched) + self.wrong)

    def time(self, queue: Callable[[], Any], repeats: int, before: Any) -> list[float]:
        each = {"ordinary": 1.0e-6, "waiting": 1.1e-6}
        return [sum(each[name] - 4e-7 * early for name, early in queue())] * repeats


@pytest.fixture(autouse=True)
def _no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependent, "compile_cuda", lambda *_: b"")
    measure = dependent.measure
    monkeypatch.setattr(dependent, "measure", lambda *given: measure(*given, warm_up_s=0.0))


def readings(gpu: ChainGpu) -> dict[str, float]:
    found = dependent.dependent_launches(gpu, "sm_90a", FACTS, 3)  # type: ignore[arg-type]
    return {reading.variant: reading.value for reading in found}


def test_chains_tell_overlap_and_wait() -> None:
    found = readings(ChainGpu())
    assert found == pytest.approx({"overlap": 4e-7, "wait": 1e-7})


def test_a_kernel_that_does_not_wait_is_found() -> None:
    with pytest.raises(CalibrationError, match="see what the one before it wrote"):
        readings(ChainGpu(wrong=-1))


def test_a_record_holds_what_was_measured_of_them() -> None:
    device = assemble(FACTS, (*READINGS, *MEASURED), date="2026-11-21", versions=VERSIONS)
    known = find_device("nvidia/h200").dependent_launches
    assert known is not None
    kept = known.slowed_share, known.ahead_seconds
    expected = DependentLaunchTimes("NVIDIA H200, 2026-11-21", 7e-7, 3e-8, *kept)
    assert device.dependent_launches == expected
    assert from_json(to_json(device)) == device
    before = assemble(FACTS, READINGS, date="2026-11-21", versions=VERSIONS)
    assert before.dependent_launches == find_device("nvidia/h200").dependent_launches
    assert describe(MEASURED[0]) == "dependent launches overlap: 0.7 µs"


@pytest.mark.skipif(compiler_for("sm_90a") == "none", reason="no CUDA compiler")
def test_the_kernels_build() -> None:
    assert compile_cuda(kernel_text("dependent"), "sm_90a")


def test_a_dependent_launch_has_the_attribute() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    calls: list[tuple[Any, ...]] = []

    class Api:
        """The driver's structures, and a launch that is only noted."""

        CUlaunchAttribute = driver.CUlaunchAttribute
        CUlaunchConfig = driver.CUlaunchConfig
        CUlaunchAttributeID = driver.CUlaunchAttributeID

        @staticmethod
        def cuLaunchKernelEx(*given: Any) -> tuple[int]:
            calls.append(given)
            return (0,)

    gpu = Gpu.__new__(Gpu)
    gpu._api, gpu._stream, gpu._stack = Api, driver.CUstream(0), ExitStack()
    gpu.launch(LoadedKernel("f", 64), 3, 128, Buffer(16, 4), 7, dependent=True)
    ((config, function, _, _),) = calls
    assert (config.gridDimX, config.blockDimX, config.sharedMemBytes) == (3, 128, 64)
    (attribute,) = config.attrs
    wanted = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    assert (attribute.id, attribute.value.programmaticStreamSerializationAllowed) == (wanted, 1)
    assert function == "f"
