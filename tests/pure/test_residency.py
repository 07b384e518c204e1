"""How many blocks share a multiprocessor."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.device import MemoryLevel, find_device
from tvm_tile.tile.residency import fitting_blocks

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
