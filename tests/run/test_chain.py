"""Every tile that the rule for chains of products offers, against TVM's CPU build."""

from __future__ import annotations

import pytest
import tvm
from chain_cases import CHAIN_CASES
from joined import joined_function
from kernels import Case, function_errors

from tvm_tile.device.detect import resolve_device
from tvm_tile.schedule.chain import schedule_chain

# The reference rounds scores and weights to half precision, the kernel its weights only.
LIMITS = {"float16": 4e-3, "bfloat16": 3e-2}
CANDIDATES = 6


@pytest.mark.cuda
@pytest.mark.skipif(not tvm.cuda(0).exist, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("entry", CHAIN_CASES, ids=[entry.name for entry in CHAIN_CASES])
def test_tiles_compute_what_the_cpu_does(entry: Case) -> None:
    limit = LIMITS[entry.inputs[0].dtype]
    device = resolve_device("auto")
    func = joined_function(entry, device, schedule_chain)
    found = function_errors(func, device, schedule_chain, CANDIDATES)
    assert found
    wrong = [f"{tile}: {error:.1e}" for tile, error in found if not error <= limit]
    assert not wrong
