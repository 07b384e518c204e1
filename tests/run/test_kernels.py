"""Every rule's kernels against TVM's CPU build, on functions with awkward extents."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import tvm
from kernel_cases import CASES
from kernels import Case, largest_errors

from tvm_tile.device.detect import resolve_device

GPU = tvm.cuda(0).exist
cuda = [pytest.mark.cuda, pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")]
emulated = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
DEVICES = [pytest.param("emulated", marks=emulated), pytest.param("auto", marks=cuda)]
LIMIT = 1e-4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("entry", CASES, ids=[entry.name for entry in CASES])
def test_kernels_compute_what_the_cpu_does(entry: Case, device: str) -> None:
    errors = largest_errors(entry, resolve_device(device))
    wrong = [f"{kernel}: {error:.1e}" for kernel, error in errors if not error <= LIMIT]
    assert not wrong
