"""Tiles with halos that the rule offers, against TVM's CPU build."""

from __future__ import annotations

import pytest
import tvm
from halo_cases import HALO_CASES
from joined import joined_function
from kernels import Case, function_errors

from tvm_tile.device.detect import resolve_device
from tvm_tile.schedule.halo import schedule_halo

# A rounding of each product's values, and of what lies between.
LIMITS = {"float16": 4e-3, "bfloat16": 3e-2}
CANDIDATES = 10


@pytest.mark.cuda
@pytest.mark.skipif(not tvm.cuda(0).exist, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("entry", HALO_CASES, ids=[entry.name for entry in HALO_CASES])
def test_tiles_compute_what_the_cpu_does(entry: Case) -> None:
    device = resolve_device("auto")
    func = joined_function(entry, device, schedule_halo)
    found = function_errors(func, device, schedule_halo, CANDIDATES)
    assert found
    limit = LIMITS[entry.inputs[0].dtype]
    wrong = [f"{tile}: {error:.1e}" for tile, error in found if not error <= limit]
    assert not wrong
