"""The whole calibration on a real GPU: plausible numbers."""

from __future__ import annotations

import pytest

from tvm_tile.calibrate import calibrate
from tvm_tile.device import MemoryLevel
from tvm_tile.device.detect import read_gpu
from tvm_tile.device.record import from_json, to_json


@pytest.mark.cuda
@pytest.mark.skipif(read_gpu() is None, reason="needs an NVIDIA GPU")
def test_calibration_measures_a_plausible_gpu() -> None:
    lines: list[str] = []
    device, built_in = calibrate(15, lines.append)
    assert from_json(to_json(device)) == device
    assert device.measured is not None
    assert len(lines) == 1 + len(device.measured.readings)

    # Within a factor of what data sheets say, and in the order of any memory hierarchy.
    bandwidths = [memory.bandwidth for memory in device.memories]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert device.memory(MemoryLevel.GLOBAL).bandwidth < device.l2_bandwidth
    for memory, expected in zip(device.memories, built_in.memories, strict=True):
        assert 0.5 < memory.bandwidth / expected.bandwidth < 1.5, memory.level
    for name in ("peak_flops", "matrix_flops"):
        expected_rates = dict(getattr(built_in, name))
        for dtype, rate in getattr(device, name):
            assert 0.4 < rate / expected_rates.get(dtype, rate) < 1.6, (name, dtype)
    # Each float32 lane ends at most one multiply-add a cycle.
    lanes = device.multi_processor_count * 128
    assert device.flops("float32") <= 2 * lanes * device.clock * 1.01
    assert 0.3e9 < device.clock < 3.5e9
    assert 0.3e-6 < device.launch_latency <= device.stream_launch_latency * 1.1 < 20e-6
    assert device.grid_barrier_latency is not None
    assert 0.2e-6 < device.grid_barrier_latency < 10e-6
    spreads = [reading.spread for reading in device.measured.readings]
    assert max(spread for spread in spreads if spread is not None) < 0.25
