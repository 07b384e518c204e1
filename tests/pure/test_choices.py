"""What the blocks of a kernel take inside a persistent one, from the kernel by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tvm_tile
from tvm_tile.device import MemoryLevel
from tvm_tile.plan.choices import Launch, make_choice, with_weights_in_place
from tvm_tile.tile.rules import GATES, WINDOW

H200 = tvm_tile.find_device("nvidia/h200")
PROCESSORS = H200.multi_processor_count
# 256 threads of 64 registers: four blocks on a multiprocessor.
LAUNCH = Launch(WINDOW, 2 * PROCESSORS, 256, 4096, 64, 4e-6, 1e6, 1e6)


def block_seconds(launch: Launch) -> float:
    return make_choice(launch, H200, barriers=True).block_seconds


def test_a_choice_has_the_kernel_s_shape() -> None:
    for barriers in (False, True):
        choice = make_choice(LAUNCH, H200, barriers=barriers)
        assert (choice.blocks, choice.threads, choice.shared_bytes) == (2 * PROCESSORS, 256, 4096)
        assert (choice.registers, choice.resident_bytes) == (64, 0)
        assert choice.barriers is barriers


@pytest.mark.parametrize(
    ("change", "turns"),
    [
        ({}, 1),
        ({"blocks": 4 * PROCESSORS}, 1),
        ({"blocks": 4 * PROCESSORS + 1}, 2),
        ({"registers": 128}, 1),
        ({"registers": 129}, 2),
        ({"threads": 993, "registers": 32}, 1),  # whole warps
        ({"threads": 993, "registers": 33}, 2),
        ({"threads": 993, "registers": None}, 2),  # as many as are usual
        ({"shared_bytes": 233_472 // 2}, 1),
        ({"shared_bytes": 233_472 // 2 + 1}, 2),
    ],
)
def test_blocks_that_do_not_fit_side_by_side_take_turns(
    change: dict[str, int | None], turns: int
) -> None:
    seconds = block_seconds(replace(LAUNCH, **change))  # type: ignore[arg-type]
    assert seconds == pytest.approx(1.6 * (4e-6 - 0.9e-6) / turns + 0.6e-6)


def test_cells_are_as_fast_as_they_were_measured_inside() -> None:
    assert block_seconds(replace(LAUNCH, rule=GATES)) == pytest.approx(4e-6 - 0.9e-6)
    assert block_seconds(replace(LAUNCH, rule=GATES, seconds=1e-6)) == pytest.approx(0.4e-6)


@pytest.mark.parametrize("bound", ["flops", "traffic"])
def test_a_block_keeps_its_multiprocessor_busy_by_the_roofline(bound: str) -> None:
    rates = {"flops": H200.flops("float32"), "traffic": H200.l2_bandwidth}
    launch = replace(LAUNCH, flops=0.0, traffic=0.0)
    launch = replace(launch, **{bound: 1e-7 * rates[bound]})  # type: ignore[arg-type]
    busy = make_choice(launch, H200, barriers=True).busy_seconds
    assert busy == pytest.approx(3 * 1e-7 * PROCESSORS / launch.blocks)
    late = replace(launch, seconds=1e-8)
    assert make_choice(late, H200, barriers=True).busy_seconds == 1e-8


def test_weights_in_place_are_read_from_shared_memory_or_added_up() -> None:
    plain = make_choice(LAUNCH, H200, barriers=True)
    size = 40_000
    reading = size / (H200.memory(MemoryLevel.SHARED).bandwidth / PROCESSORS)
    held = with_weights_in_place(plain, size, 0.0, H200)
    assert held.busy_seconds == pytest.approx(reading)
    assert held.block_seconds == pytest.approx(1.2e-6 + reading)
    assert held.resident_bytes == 40_064  # a multiple of 128
    flops = 1e-4 * H200.flops("float32")
    added = with_weights_in_place(plain, size, flops, H200)
    assert added.busy_seconds == pytest.approx(2.3 * 1e-4 * PROCESSORS / plain.blocks)
    same = {"block_seconds": 0.0, "busy_seconds": 0.0, "resident_bytes": 0}
    assert replace(added, **same) == replace(plain, **same)  # type: ignore[arg-type]
