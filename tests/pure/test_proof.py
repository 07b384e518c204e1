"""That all blocks of a persistent kernel are resident at once, from registers and bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tvm_tile
from tvm_tile.errors import DeviceTooSmallError
from tvm_tile.plan.execution_plan import ExecutionPlan
from tvm_tile.plan.proof import require_residency, residency

# 65,536 registers, 2,048 threads and 233,472 bytes of shared memory a multiprocessor.
H200 = tvm_tile.find_device("nvidia/h200")
PLAN = ExecutionPlan(2 * 132, 2, 512, 2048, (), (), (), False, (), 1e-5)


@pytest.mark.parametrize(
    ("block_size", "registers", "shared_bytes", "resident"),
    [
        (512, 64, 1024, 2),  # 64 registers * 512 threads, twice, are all there are
        (512, 65, 1024, 1),  # given by eights: 72
        (512, 32, 1024, 4),
        (512, 16, 1024, 4),  # 2,048 threads
        (512, 16, 233_472 // 2 - 1024, 2),  # with what the driver keeps
        (512, 16, 233_472 // 2 - 1023, 1),
        (512, 16, 240_000, 0),  # more than a block may have
        (32, 16, 0, 32),
        (33, 16, 0, 32),
        (1025, 16, 0, 0),
    ],
)
def test_blocks_that_a_multiprocessor_holds(
    block_size: int, registers: int, shared_bytes: int, resident: int
) -> None:
    plan = replace(PLAN, block_size=block_size)
    assert residency(plan, registers, shared_bytes, H200).resident == resident


def test_threads_are_given_in_whole_warps() -> None:
    # 33 threads take the registers of 64: 128 * 64 of 65,536.
    assert residency(replace(PLAN, block_size=33), 128, 0, H200).resident == 8


def test_a_grid_that_fits_exactly_is_accepted() -> None:
    require_residency(residency(PLAN, 64, 1024, H200))


@pytest.mark.parametrize("change", [{"num_veus": 2 * 132 + 1}, {"block_size": 544}])
def test_one_that_could_wait_for_ever_is_refused(change: dict[str, int]) -> None:
    proof = residency(replace(PLAN, **change), 64, 1024, H200)  # type: ignore[arg-type]
    assert not proof.holds
    with pytest.raises(DeviceTooSmallError, match="on each of 132 multiprocessors: 64 registers"):
        require_residency(proof)
