"""Every tile that the rule for warpgroup instructions offers, against TVM's CPU build."""

from __future__ import annotations

import pytest
import tvm
from kernels import Case, candidate_errors
from wgmma_cases import WGMMA_CASES

from tvm_tile.device.detect import resolve_device
from tvm_tile.schedule.wgmma import schedule_wgmma

# A rounding to the output's dtype, and a few more; 8-bit floats are added up, unrounded, in fewer
# bits than float32 has.
LIMITS = {"float16": 2e-3, "bfloat16": 1.6e-2, "float8_e4m3fn": 2e-3}
CANDIDATES = 8


@pytest.mark.cuda
@pytest.mark.skipif(not tvm.cuda(0).exist, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("entry", WGMMA_CASES, ids=[entry.name for entry in WGMMA_CASES])
def test_tiles_compute_what_the_cpu_does(entry: Case) -> None:
    limit = LIMITS[entry.inputs[0].dtype]
    found = candidate_errors(entry, resolve_device("auto"), schedule_wgmma, CANDIDATES)
    assert found
    wrong = [f"{tile}: {error:.1e}" for tile, error in found if not error <= limit]
    assert not wrong
