"""Every tile that the rule for warpgroup instructions offers, against TVM's CPU build."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
import tvm
from joined import joined_function
from kernels import Case, function_errors
from two_of_four import compressed, pruned
from wgmma_cases import SHALLOW_CASES, TF32_CASES, WGMMA_CASES, product_case

from tvm_tile.device import with_tf32
from tvm_tile.device.detect import resolve_device
from tvm_tile.schedule.rule import Choice, Task
from tvm_tile.schedule.wgmma import schedule_wgmma

# A rounding to the output's dtype, and a few more; 8-bit floats are added up, unrounded, in fewer
# bits than float32 has, of which tf32 reads ten of the mantissa; integers are exact.
LIMITS = {
    "float16": 2e-3,
    "bfloat16": 1.6e-2,
    "float32": 2e-3,
    "float8_e4m3fn": 2e-3,
    "float8_e5m2": 2e-3,
    "int8": 0.0,
    "uint8": 0.0,
}
CANDIDATES, EVERY = 8, 1000
CASES = (*WGMMA_CASES, *TF32_CASES)


@pytest.mark.cuda
@pytest.mark.skipif(not tvm.cuda(0).exist, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("entry", CASES, ids=[entry.name for entry in CASES])
def test_tiles_compute_what_the_cpu_does(entry: Case) -> None:
    limit = LIMITS[entry.inputs[0].dtype]
    device = with_tf32(resolve_device("auto"))
    func = joined_function(entry, device, schedule_wgmma)
    found = function_errors(func, device, schedule_wgmma, CANDIDATES)
    assert found
    wrong = [f"{tile}: {error:.1e}" for tile, error in found if not error <= limit]
    assert not wrong


@pytest.mark.cuda
@pytest.mark.skipif(not tvm.cuda(0).exist, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("extents", [(1, 520, 272), (16, 1024, 2064), (264, 520, 1040)], ids=str)
@pytest.mark.parametrize("layout", ["NT", "TN"])
def test_two_numbers_in_four(layout: str, extents: tuple[int, int, int], dtype: str) -> None:
    device = resolve_device("auto")
    (m, n, k), kind = extents, ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    if layout == "TN" and m % 8:
        pytest.skip("rows that no copy takes")
    matrix = pruned(np.random.default_rng(0), n, k, kind)
    func = compressed(product_case(layout, m, n, k, dtype), device, matrix).func
    found = function_errors(func, device, schedule_wgmma, CANDIDATES)
    assert found
    wrong = [f"{tile}: {error:.1e}" for tile, error in found if not error <= LIMITS[dtype]]
    assert not wrong


def one_of_each_sharing(task: Task, count: int) -> Sequence[Choice]:
    """The first choice for each number of blocks that share a multiprocessor, and of consumers."""
    found: dict[tuple[int, int, int], Choice] = {}
    for choice in schedule_wgmma(task, count):
        tile = choice.write.args[-1]  # type: ignore[attr-defined]
        found.setdefault((tile.blocks, tile.consumers, tile.instructions), choice)
    return tuple(found.values())


@pytest.mark.cuda
@pytest.mark.skipif(not tvm.cuda(0).exist, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("entry", SHALLOW_CASES, ids=[entry.name for entry in SHALLOW_CASES])
def test_blocks_that_share_a_multiprocessor(entry: Case) -> None:
    device = resolve_device("auto")
    func = joined_function(entry, device, schedule_wgmma)
    found = function_errors(func, device, one_of_each_sharing, EVERY)
    assert any("blocks a multiprocessor" in tile for tile, _ in found)
    wrong = [f"{tile}: {error:.1e}" for tile, error in found if not error <= LIMITS["float16"]]
    assert not wrong
