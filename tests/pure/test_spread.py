"""Shared memory that keeps blocks from crowding on some multiprocessors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.device import Device, devices, find_device
from tvm_tile.device.device import MemoryLevel
from tvm_tile.launches.spread import Blocks, spread_bytes

ABLE = [device for device in devices() if device.supports_dependent_launches]
H200 = find_device("nvidia/h200")


@given(
    st.sampled_from(ABLE),
    st.builds(
        Blocks,
        count=st.integers(1, 10_000),
        threads=st.sampled_from((32, 64, 128, 256, 384, 512, 1024)),
        declared=st.integers(0, 48 << 10),
        given=st.just(0) | st.integers(48 << 10, 160 << 10),
    ),
)
def test_a_multiprocessor_holds_an_even_share_and_no_more(device: Device, blocks: Blocks) -> None:
    found = spread_bytes(blocks, device)
    if found == blocks.given:
        return
    share = -(-blocks.count // device.multi_processor_count)
    each = found + blocks.declared + device.reserved_shared_memory
    assert device.shared_memory_per_multi_processor // each == share
    assert found > blocks.given
    assert found + blocks.declared <= device.memory(MemoryLevel.SHARED).capacity
    # CUDA allows more than 48 KB to what is given at the launch, once that is as much.
    assert found >= 48 << 10 or found + blocks.declared <= 48 << 10


@pytest.mark.parametrize("count", [1, 96, 132])
def test_a_block_a_multiprocessor_lies_alone_there(count: int) -> None:
    found = spread_bytes(Blocks(count, 256), H200)
    assert 2 * (found + 1024) > H200.shared_memory_per_multi_processor


def test_grids_that_fill_the_gpu_keep_what_they_have() -> None:
    assert spread_bytes(Blocks(132 * 5, 256), H200) == 0
    assert spread_bytes(Blocks(132 * 4, 256), H200) > 0
    # Of these a multiprocessor holds two anyway, or one.
    assert spread_bytes(Blocks(264, 384, given=100 << 10), H200) == 100 << 10
    assert spread_bytes(Blocks(100, 384, given=200 << 10), H200) == 200 << 10
