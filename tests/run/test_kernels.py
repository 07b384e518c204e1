"""Every rule's kernels against TVM's CPU build, on functions with awkward extents."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import tvm
from kernel_cases import CASES
from kernels import Case, candidate_errors, largest_errors
from rowwise_cases import ROWWISE
from window_cases import HALVES, VECTORS

from tvm_tile.device.detect import resolve_device
from tvm_tile.schedule.s_tir.window import schedule_window

pytestmark = pytest.mark.bank(8)

GPU = tvm.cuda(0).exist
cuda = [pytest.mark.cuda, pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")]
emulated = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
DEVICES = [pytest.param("emulated", marks=emulated), pytest.param("auto", marks=cuda)]
LIMIT = 1e-4
HALF_LIMIT = 2e-3


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("entry", [*CASES, *ROWWISE], ids=lambda entry: entry.name)
def test_kernels_compute_what_the_cpu_does(entry: Case, device: str) -> None:
    errors = largest_errors(entry, resolve_device(device))
    wrong = [f"{kernel}: {error:.1e}" for kernel, error in errors if not error <= LIMIT]
    assert not wrong


@pytest.mark.cuda
@pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("entry", [*HALVES, *VECTORS], ids=lambda entry: entry.name)
def test_windows_in_vectors(entry: Case) -> None:
    errors = candidate_errors(entry, resolve_device("auto"), schedule_window, 12)
    assert [(tile, error) for tile, error in errors if not error <= HALF_LIMIT] == []
