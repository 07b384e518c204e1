"""Every micro-kernel of the calibration becomes machine code; no GPU is needed."""

from __future__ import annotations

import struct

import pytest

from tvm_tile.build.cuda import compile_cuda, nvrtc_architectures
from tvm_tile.calibrate.sources import (
    CORE_STEPS_BY_DTYPE,
    FILLER_NAMES,
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


def code_sizes(cubin: bytes) -> dict[str, int]:
    """Bytes of each kernel's code, by its name, from the sections of an ELF file."""
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    # Of each section: its name's place, kind, flags, address, offset and size.
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + i * size) for i in range(count)]
    text = cubin[sections[names][4] :]
    named = {text[own[0] :].partition(b"\0")[0].decode(): own[5] for own in sections}
    return {name[6:]: own for name, own in named.items() if name.startswith(".text.")}


@pytest.mark.parametrize(("arch", "version"), ARCHITECTURES)
class TestEveryArchitecture:
    def test_memory(self, arch: str, version: tuple[int, int]) -> None:
        names = ("fill", "count_differences", "copy", "read", "read_l2", "read_shared")
        check(kernel_text("memory"), arch, *names)

    def test_latency(self, arch: str, version: tuple[int, int]) -> None:
        check(kernel_text("latency"), arch, "empty", "spin", "barriers", "checked_barriers")

    def test_pick(self, arch: str, version: tuple[int, int]) -> None:
        check(kernel_text("pick"), arch, "pick")

    def test_fillers_are_larger_than_caches_of_instructions(
        self, arch: str, version: tuple[int, int]
    ) -> None:
        sizes = code_sizes(compile_cuda(kernel_text("filler"), arch))
        assert sizes.keys() == {*FILLER_NAMES}
        # Nothing was folded: an instruction of 16 bytes for each of 10240 steps.
        assert all(160 << 10 <= size < 162 << 10 for size in sizes.values())

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
