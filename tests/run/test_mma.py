"""Tiles that the rule for warp instructions offers, against TVM's CPU build."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tvm
from joined import joined_function
from kernels import Case, function_errors
from mma_cases import GATED, GROUPS, MMA_CASES

from tvm_tile.device import Device, find_device
from tvm_tile.device.detect import resolve_device
from tvm_tile.schedule.warp_products import schedule_mma

# A rounding to the output's dtype, and a few more.
LIMITS = {"float16": 2e-3, "bfloat16": 1.6e-2}
CANDIDATES = 8
CASES = [*MMA_CASES, *GROUPS, *GATED]


def device_here() -> Device:
    """This GPU, with these instructions at least."""
    found = resolve_device("auto")
    own = find_device("nvidia/a100").matrix_instructions
    return replace(found, matrix_instructions=tuple({*found.matrix_instructions, *own}))


@pytest.mark.cuda
@pytest.mark.skipif(not tvm.cuda(0).exist, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("entry", CASES, ids=[entry.name for entry in CASES])
def test_tiles_compute_what_the_cpu_does(entry: Case) -> None:
    limit = LIMITS[entry.inputs[0].dtype]
    device = device_here()
    func = joined_function(entry, device, schedule_mma)
    found = function_errors(func, device, schedule_mma, CANDIDATES)
    assert found
    wrong = [f"{tile}: {error:.1e}" for tile, error in found if not error <= limit]
    assert not wrong
