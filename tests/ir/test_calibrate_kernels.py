"""Every micro-kernel of the calibration becomes machine code; no GPU is needed."""

from __future__ import annotations

import pytest

from tvm_tile.build.cuda import compile_cuda, nvrtc_architectures
from tvm_tile.calibrate.sources import (
    CORE_STEPS_BY_DTYPE,
    MATRIX_STEPS,
    WARP_GROUP_STEPS,
    kernel_text,
)

pytestmark = pytest.mark.skipif(not nvrtc_architectures(), reason="needs NVRTC")
ARCHITECTURES = [("sm_80", (8, 0)), ("sm_89", (8, 9)), ("sm_90a", (9, 0))]


def check(source: str, arch: str, *names: str) -> None:
    cubin = compile_cuda(source, arch)
    assert cubin.startswith(b"\x7fELF")
    for name in names:
        assert f".text.{name}\0".encode() in cubin


@pytest.mark.parametrize(("arch", "version"), ARCHITECTURES)
class TestEveryArchitecture:
    def test_memory(self, arch: str, version: tuple[int, int]) -> None:
        names = ("fill", "count_differences", "copy", "read", "read_l2", "read_shared")
        check(kernel_text("memory"), arch, *names)

    def test_latency(self, arch: str, version: tuple[int, int]) -> None:
        check(kernel_text("latency"), arch, "empty", "spin", "barriers", "checked_barriers")

    def test_cuda_cores(self, arch: str, version: tuple[int, int]) -> None:
        steps = [step for step in CORE_STEPS_BY_DTYPE if version >= step.since]
        assert len(steps) == 5
        for step in steps:
            check(step.source(), arch, "chains")

    def test_matrix_units(self, arch: str, version: tuple[int, int]) -> None:
        steps = [step for step in MATRIX_STEPS if step.is_on(version)]
        assert len(steps) == {(8, 0): 5, (8, 9): 6, (9, 0): 6}[version]
        for step in steps:
            check(step.source(), arch, "products")


@pytest.mark.parametrize("step", WARP_GROUP_STEPS, ids=lambda step: step.dtype)
def test_warp_groups(step: object) -> None:
    assert step in WARP_GROUP_STEPS
    check(step.source(), "sm_90a", "products")  # type: ignore[attr-defined]
