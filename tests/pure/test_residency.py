"""How many blocks share a multiprocessor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.device import MemoryLevel, find_device
from tvm_tile.tile.cost import compiled_registers
from tvm_tile.tile.residency import (
    fitting_blocks,
    given_registers,
    launched_registers,
    shared_capacity,
)

H200 = find_device("nvidia/h200")
SHARED = H200.memory(MemoryLevel.SHARED).capacity


@given(threads=st.integers(1, 1024), registers=st.integers(16, 255), shared=st.integers(0, SHARED))
def test_resident_blocks_fit_the_multiprocessor(threads: int, registers: int, shared: int) -> None:
    blocks = fitting_blocks(H200, threads, registers, shared)
    assert blocks * threads <= H200.max_threads_per_multi_processor
    assert blocks * threads * registers <= H200.registers_per_multi_processor
    assert blocks * shared <= H200.shared_memory_per_multi_processor


@given(threads=st.integers(1, 1024), registers=st.integers(16, 200), shared=st.integers(0, SHARED))
def test_more_of_anything_never_raises_occupancy(threads: int, registers: int, shared: int) -> None:
    blocks = fitting_blocks(H200, threads, registers, shared)
    assert fitting_blocks(H200, threads, registers + 8, shared) <= blocks
    assert fitting_blocks(H200, threads, registers, shared + 1024) <= blocks
    assert fitting_blocks(H200, threads + 32, registers, shared) <= blocks


def test_blocks_that_do_not_fit() -> None:
    assert fitting_blocks(H200, 128, 32, SHARED) >= 1
    assert fitting_blocks(H200, 128, 32, SHARED + 1) == 0
    assert fitting_blocks(H200, H200.max_threads_per_block + 1, 32, 0) == 0
    assert fitting_blocks(H200, 1024, 255, 0) == 0  # more registers than there are


def test_the_record_says_how_many_blocks_there_are() -> None:
    assert fitting_blocks(H200, 32, 16, 0) == 32
    assert fitting_blocks(replace(H200, max_blocks_per_multi_processor=16), 32, 16, 0) == 16


def test_the_record_says_how_registers_are_given_out() -> None:
    coarse = replace(H200, register_unit=24)
    assert (given_registers(H200, 41), given_registers(coarse, 41)) == (48, 48)
    assert (given_registers(H200, 49), given_registers(coarse, 49)) == (56, 72)
    # Of 65,536 registers each of 1,024 threads may have 64.
    assert (launched_registers(H200, 2, 512), launched_registers(coarse, 2, 512)) == (64, 48)
    threads, sums, ahead = np.array([1024]), np.array([256]), np.array([0])
    assert compiled_registers(H200, threads, sums, ahead).tolist() == [64]
    assert compiled_registers(coarse, threads, sums, ahead).tolist() == [48]
    # One thread can name 255.
    assert launched_registers(H200, 1, 128) == 255


def test_the_record_says_what_a_block_takes_of_shared_memory() -> None:
    whole = H200.shared_memory_per_multi_processor
    free = replace(H200, reserved_shared_memory=0)
    assert fitting_blocks(H200, 64, 16, whole // 4) == 3
    assert fitting_blocks(free, 64, 16, whole // 4) == 4
    assert fitting_blocks(free, 64, 16, 0) == 32
    assert (shared_capacity(H200, 4), shared_capacity(free, 4)) == (whole // 4 - 1024, whole // 4)
