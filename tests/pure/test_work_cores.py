"""What kernels on CUDA cores are said to do is at least what their operators ask for."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
from operators import conv2d, conv_nhwc, depthwise, matmul, row_sum

from tvm_tile.device import Device, find_device
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.tile.construct import construct_contraction
from tvm_tile.tile.cost import arithmetic_slots
from tvm_tile.tile.rows.reduce import construct_window
from tvm_tile.tile.rtile import RProgram
from tvm_tile.tile.tile import Tile
from tvm_tile.tile.time import ALONE, AMID, Part, Work, seconds_of
from tvm_tile.tile.windows.accesses import block_bytes
from tvm_tile.tile.windows.strips import construct_strips
from tvm_tile.tile.windows.window import WindowTile

H200, MI300X = find_device("nvidia/h200"), find_device("amd/mi300x")
PRODUCTS = {
    "square": matmul(1024, 1024, 1024),
    "primes": matmul(197, 49, 197),
    "deep": matmul(8, 24, 8191),
    "half": matmul(128, 768, 768, "float16"),
    "stem": conv2d(3, 64, 112, 7, stride=2),
    "channels_last": conv_nhwc(),
}
WINDOWS = {"small": depthwise(64, 14, 3), "large": depthwise(512, 112, 5)}
LONE = {"sums": row_sum(1 << 20, 4), "few": row_sum(64, 8), "windows": depthwise(64, 14, 3)}


def work_of(tile: Tile) -> Work:
    assert tile.work is not None
    return tile.work


def total(work: Work, quantity: str) -> float:
    """All blocks' repetitions of a quantity."""
    each = (float(part.repeats) * float(getattr(part, quantity)) for part in work.parts)
    return float(work.blocks) * sum(each)


def check(tile: Tile, operator: Operator, device: Device) -> None:
    """What holds of every kernel that sums."""
    work = work_of(tile)
    numbers = [getattr(part, f.name) for part in work.parts for f in fields(Part)]
    numbers += [work.blocks, work.resident, work.warps, work.read, work.written]
    assert all(isinstance(number, int | float) and 0 <= number < math.inf for number in numbers)
    assert work.blocks == tile.grid
    assert work.resident >= 1
    assert work.warps == -(-tile.block_size // device.warp_size)
    slots = operator.points / device.warp_size * arithmetic_slots(device)
    assert total(work, "operations") >= 0.99 * slots
    size = operator.write.tensor.size
    assert work.read + size == operator.traffic
    assert total(work, "stores") >= 0.99 * work.written
    assert total(work, "moves") > operator.outputs / device.warp_size / 8  # by vectors of 8 halves
    assert max(float(part.loads) for part in work.parts) >= 1
    if device is H200:
        alone, amid = (seconds_of([work], device, scene)[0] for scene in (ALONE, AMID))
        assert device.launch_latency < amid < alone < math.inf


def check_product(program: RProgram, device: Device) -> None:
    operator, work = program.operator, work_of(program)
    check(program, operator, device)
    step = work.parts[1]
    staged = math.prod(program.staged[axis.name] for axis in operator.reduce_axes)
    assert step.repeats == program.steps
    assert float(step.repeats) * staged * program.parts >= operator.depth
    sizes = [read.elements(program.staged) * read.tensor.element_size for read in operator.reads]
    assert step.fills >= sum(sizes)
    # Operands cross shared memory twice at least, on their way there and to registers.
    assert step.wavefronts >= 2 * sum(sizes) / (4 * device.bank_count)
    assert step.ahead == 1 + program.is_prefetched
    assert work.written == program.parts * operator.write.tensor.size
    assert [adding.read for adding in work.then] == [work.written] * (program.parts > 1)
    sums = program.exchanged / 4 / device.warp_size
    assert work.parts[2].moves == 2 * sums


@pytest.mark.parametrize("device", [H200, MI300X], ids=lambda device: device.name)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_do_what_they_must(name: str, device: Device) -> None:
    programs = construct_contraction(PRODUCTS[name], device, 20)
    for program in programs:
        check_product(program, device)
    if device is H200:
        amid = seconds_of([work_of(program) for program in programs], H200, AMID)
        assert amid == pytest.approx([program.seconds for program in programs])


@pytest.mark.parametrize("device", [H200, MI300X], ids=lambda device: device.name)
@pytest.mark.parametrize("name", WINDOWS)
def test_strips_do_what_they_must(name: str, device: Device) -> None:
    operator = WINDOWS[name]
    tiles = construct_strips(operator, device, operator.traffic, count=12)
    assert len(tiles) == 12
    for tile in tiles:
        check(tile, operator, device)
        assert total(work_of(tile), "fills") >= work_of(tile).read
        assert float(work_of(tile).parts[-1].repeats) >= tile.rows / 2


def test_longer_strips_read_less_and_wait_longer() -> None:
    operator = WINDOWS["large"]
    tiles = construct_strips(operator, H200, operator.traffic)

    def with_strip(strip: int) -> WindowTile:
        return next(t for t in tiles if (t.strip, t.columns, t.block_size) == (strip, 1, 128))

    short, long = work_of(with_strip(4)), work_of(with_strip(28))
    for quantity in ("fills", "moves", "wavefronts"):
        assert total(long, quantity) < total(short, quantity)
    assert long.parts[-1].repeats > short.parts[-1].repeats


@pytest.mark.parametrize("device", [H200, MI300X], ids=lambda device: device.name)
@pytest.mark.parametrize("name", LONE)
def test_windows_of_one_thread_do_what_they_must(name: str, device: Device) -> None:
    for tile in construct_window(LONE[name], device):
        check(tile, LONE[name], device)
        assert total(work_of(tile), "fills") >= work_of(tile).read


def test_what_threads_have_in_common_is_read_once_a_block() -> None:
    operator = depthwise(64, 30, 3)
    # Two rows of 30 outputs read four rows of 32; weights are of one channel.
    assert block_bytes(operator.reads[:1], operator, {}, [60]) == [4 * 32 * 4]
    assert block_bytes(operator.reads[1:], operator, {}, [60]) == [64]  # of 36 bytes, two sectors
    assert block_bytes(operator.reads[:1], operator, {"x": 2}, [30]) == [4 * 32 * 4]
