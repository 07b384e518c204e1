"""Kernels of strips: right values, places inside their tensors, each output stored once."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
import tvm
import tvm_ffi
from cpu_build import CPU
from kernel_bodies import case, conv, pool
from kernel_cases import CASES
from kernels import Case, prim_functions, relative_difference
from strips import Threads
from tvm import tirx
from window_cases import HALVES, VECTORS

from tvm_tile.device import find_device
from tvm_tile.frontend import import_model
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Task
from tvm_tile.schedule.rule import Choice
from tvm_tile.schedule.s_tir.window import schedule_window
from tvm_tile.stages.fusing import fuse
from tvm_tile.tile.windows.window import WindowTile

pytestmark = pytest.mark.bank(8)

H200 = find_device("nvidia/h200")
TILES = 6
OWN = (
    # Nothing is padded: what a strip overhangs is behind the tensor's end.
    case("conv_depthwise_valid", "window", conv(groups=3), (2, 3, 33, 13), (3, 1, 3, 3)),
    case("avg_pool_valid", "window", pool("avg_pool2d", 3), (2, 3, 19, 12)),
    case("max_pool_wide_stride", "window",
         pool("max_pool2d", (5, 2), strides=(2, 3), padding=(2, 0)), (2, 3, 23, 14)),
)  # fmt: skip
NAMES = (
    "conv_depthwise_overhang",
    "conv_depthwise_prime",
    "conv_depthwise_stride",
    "conv_depthwise_valid_stride",
    "conv_depthwise_uneven",
    "conv_depthwise_dilated",
    "conv_depthwise_of_relu",
    "conv_depthwise_row",
    "conv_nhwc_depthwise_stride",
    "conv1d_depthwise",
    "depthwise_bias_relu",
    "max_pool",
    "max_pool_ceil",
    "max_pool_dilated",
    "max_pool1d",
    "avg_pool",
    "avg_pool3d_overlapping",
)


def task(entry: Case) -> Task:
    (func,) = prim_functions(entry, H200).values()
    graph = extract(func)
    assert graph is not None
    return Task(func, graph, H200)


ENTRIES = (*(entry for entry in CASES if entry.name in NAMES), *OWN, *HALVES, *VECTORS)


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.name for entry in ENTRIES])
def test_all_kinds_of_strips(entry: Case) -> None:
    several = check_strips(task(entry))
    assert entry not in (HALVES if several else VECTORS)


def test_windows_that_a_sum_cuts_off_read_nothing_ahead_of_the_tensor() -> None:
    """PyTorch's pools ask of each place whether it is in the tensor: nothing pads it before."""
    pool2d = torch.nn.AvgPool2d((4, 1), (2, 1), (2, 0), ceil_mode=True)
    imported = import_model(torch.export.export(pool2d, (torch.zeros(2, 4, 11, 16),)))
    functions = fuse(imported.mod, H200).mod.functions.values()
    (func,) = (func for func in functions if isinstance(func, tirx.PrimFunc))
    graph = extract(func)
    assert graph is not None
    check_strips(Task(func, graph, H200))


def check_strips(given: Task) -> list[Choice]:
    """Run some of a function's tiles, thread by thread; those that read by vectors."""
    choices = schedule_window(given, 10_000)
    assert choices, "not taken"
    arrays = draw(given.func)
    expected = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(given.func.with_attr("global_symbol", "f"), CPU)(*expected)
    several = [choice for choice in choices if tile_of(choice).vectors.count > 1]
    kinds = {tile_of(choice).vectors for choice in several}
    of_each = [next(c for c in several if tile_of(c).vectors == kind) for kind in kinds]
    some = several[:: max(1, len(several) // TILES)]
    for choice in (*choices[:: max(1, len(choices) // TILES)], *some, *of_each):
        done = choice()
        assert done is not None
        own = [array.copy() for array in arrays]
        threads = Threads(done.func, own)
        assert threads.count == done.grid * done.block
        for position in outputs(done.func):
            assert (threads.stored[position] == 1).all(), done.tile
            error = relative_difference(own[position], expected[position].numpy())
            is_half = own[position].dtype == np.float16
            assert error <= (2e-3 if is_half else 1e-4), (done.tile, error)
    return several


def tile_of(choice: Choice) -> WindowTile:
    assert isinstance(choice.write, partial)
    (tile,) = (a for a in choice.write.args if isinstance(a, WindowTile))
    return tile


def draw(func: tirx.PrimFunc) -> list[np.ndarray]:
    """Inputs, and outputs that hold nothing yet."""
    rng = np.random.default_rng(3)
    shapes = [([int(e) for e in p.ty.shape], str(p.ty.dtype)) for p in func.params]
    arrays = [rng.standard_normal(shape).astype(dtype) for shape, dtype in shapes]
    for position in outputs(func):
        arrays[position][...] = np.nan
    return arrays


def outputs(func: tirx.PrimFunc) -> list[int]:
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, stores.append), order="pre")
    return [i for i, p in enumerate(func.params) if any(p.same_as(s.buffer) for s in stores)]


def test_each_row_is_read_once() -> None:
    given = task(next(entry for entry in CASES if entry.name == "conv_depthwise_large"))
    choice = schedule_window(given, 1)[0]
    tile = tile_of(choice)
    done = choice()
    assert done is not None
    loads: list[tvm.ir.TensorLoad] = []
    tvm_ffi.structural_walk(done.func.body, (tvm.ir.TensorLoad, loads.append), order="pre")
    source = given.func.params[0]
    assert sum(load.source.same_as(source) for load in loads) == tile.rows
