"""Sums of AMD's matrix cores in parts: what the two kernels compute, and their machine code."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import Arguments, all_built, arguments, emulated_error, launches, workspaces
from hip_assembly import metadata
from kernels import Case, prim_functions
from matrix_core_cases import MATRIX_CORE_CASES, device_for, product_of
from scheduled import relax_module
from warp_emulator import COMPILER
from wgmma_cases import LAYOUTS, product

import tvm_tile
from tvm_tile.build.hip import assembly_of
from tvm_tile.device import Device
from tvm_tile.device.rocm import MI300X, ROCM_DEVICES
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Scheduled, Task
from tvm_tile.schedule.rule import as_written
from tvm_tile.schedule.tensor_cores.found import find_in
from tvm_tile.schedule.warp_products.kernel import write_kernel
from tvm_tile.tile.products.matrix_cores import (
    LEAST_LINE,
    MatrixTile,
    construct_matrix_cores,
    matrix_core_dtypes,
)
from tvm_tile.tile.products.warp_tile import chunk_counts
from tvm_tile.tile.rules import MATRIX_CORES
from tvm_tile.tile.units.product import Product, fold_window

pytestmark = pytest.mark.bank(10)

PARTS = (2, 3, 8)
# With strides of 16 bytes and of one element; of 8 bits, 19 chunks of 64 elements, or 10 of 128.
DEEP = ((40, 72, 1200), (37, 41, 1203))
LIMITS = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 3e-6, "int8": 0.0}
DTYPES = tuple(LIMITS)
# Every second one of all, so every type and every chip.
PAIRS = [
    pytest.param(dtype, device, id=f"{dtype}-{device.name}")
    for dtype in DTYPES
    for device in ROCM_DEVICES
    if dtype in matrix_core_dtypes(device)
][::2]
FOLLOWED = (
    "batch_NN_197x64x197",
    "shared_weight",
    "row_bias_relu",
    "bias_gelu",
    "bias_residual_relu",
    "float32_output",
    "conv_3x3_ragged",
    "conv_7x7_of_3",
    "conv_5x5_dilated_odd",
    "conv_grouped_odd",
    "conv_3x3_of_6_bias_relu",
    "int8_residual",
    "int8_conv_requantized",
    "tf32_bias_relu",
    "tf32_conv",
)


def in_parts(entry: Case, device: Device, parts: int, share: float) -> tuple[Any, Scheduled]:
    """A case's function, and the tile so far from the first with sums in at most so many parts."""
    (func,) = prim_functions(entry, device).values()
    graph = extract(func)
    assert graph is not None
    found = find_in(Task(func, graph, device), matrix_core_dtypes(device))
    assert found is not None
    product = fold_window(found.product, LEAST_LINE // found.product.left.tensor.element_size)
    tiles = construct_matrix_cores(product, device, 10_000)
    whole = [tile for tile in tiles if tile.parts == 1 and chunks_of(product, tile) > 1]
    tile = whole[int(share * (len(whole) - 1))]
    parts = min(parts, chunks_of(product, tile))
    tile = replace(tile, parts=parts, grid=tile.grid * parts)
    written = write_kernel(replace(found, product=product), tile, device)
    return func, as_written(written, MATRIX_CORES, tile)


def chunks_of(product: Product, tile: MatrixTile) -> int:
    return int(np.prod(chunk_counts(product, tile.depth)))


def exact(of: Arguments, layout: str) -> Arguments:
    """With what float64, or int64, makes of a product's operands."""
    (output,) = of.outputs
    left, right = (of.given[name] for name in of.given if name != output)
    wide = np.int64 if left.dtype == np.int8 else np.float64
    left, right = left.astype(wide), right.astype(wide)
    left = left if layout[0] == "N" else left.T
    right = right if layout[1] == "N" else right.T
    return Arguments(of.given, {**of.wanted, output: left @ right}, of.outputs)


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(("dtype", "device"), PAIRS)
def test_deep_products(dtype: str, device: Device, tmp_path: Path) -> None:
    # On each device another layout, another tile, other parts.
    number = ROCM_DEVICES.index(device) + DTYPES.index(dtype)
    layout, parts = LAYOUTS[number % len(LAYOUTS)], PARTS[number % len(PARTS)]
    entry = product_of(dtype, layout, *DEEP[number % len(DEEP)])
    func, scheduled = in_parts(entry, device, parts, number % 5 / 5)
    assert scheduled.tile.endswith(f", parts {parts}")
    of = exact(arguments(func), layout)
    error = emulated_error(scheduled, of, device, tmp_path, late=bool(number % 2))
    assert error <= LIMITS[dtype], (entry.name, scheduled.tile)


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", FOLLOWED)
def test_what_follows_and_convolutions(name: str, tmp_path: Path) -> None:
    entry = MATRIX_CORE_CASES[name]
    dtype = entry.inputs[0].dtype
    number = FOLLOWED.index(name)
    device = device_for(entry, number)
    func, scheduled = in_parts(entry, device, PARTS[number % 3], number % 4 / 4)
    error = emulated_error(scheduled, arguments(func), device, tmp_path, late=bool(number % 2))
    assert error <= 2 * LIMITS[dtype], scheduled.tile


def test_all_that_the_parts_leave_is_between_the_kernels() -> None:
    _, scheduled = in_parts(product_of("float16", "NN", *DEEP[1]), MI300X, 3, 0)
    ((name, memory),) = workspaces(scheduled).items()
    # Lines of 41 columns, up to a multiple of four.
    assert (name, memory.shape, memory.dtype) == ("partial", (3, 37, 44), np.float32)
    (main, added) = launches(scheduled)
    assert main == (scheduled.grid, scheduled.block)
    assert added == (-(-37 * 11 // 64), 64)


def test_a_model_plans_memory_for_them() -> None:
    mod = relax_module(product("NT"), ((128, 3072), (768, 3072)), "float16")
    model = tvm_tile.compile(mod, MI300X, options=tvm_tile.Options(cache=False))
    (kernel,) = model.report.kernels
    assert kernel.rule == "matrix_cores"
    assert ", parts " in kernel.tile
    assert len(kernel.resources) == len(model.program.kernels) == 2
    assert b"AllocWorkspace" not in model.program.host


@pytest.mark.parametrize(("dtype", "device"), PAIRS)
def test_machine_code(dtype: str, device: Device) -> None:
    _, scheduled = in_parts(product_of(dtype, "NT", 128, 768, 3072), device, 16, 0)
    chip = dict(device.target)["mcpu"]
    main, added = (
        assembly_of(k.source, chip) for k in all_built(scheduled, device, only_text=True)
    )
    taken = ((main, scheduled.block, scheduled.shared_bytes), (added, 64, 0))
    for assembly, threads, shared in taken:
        facts = metadata(assembly)
        assert (facts["vgpr_spill_count"], facts["private_segment_fixed_size"]) == (0, 0)
        assert facts["max_flat_workgroup_size"] == threads
        assert facts["group_segment_fixed_size"] == shared
        assert facts["wavefront_size"] == device.warp_size
    assert re.search(r"\tv_(w?mma|mfma)", main)
    # Sums go out, and are read, 16 bytes at a time.
    assert set(re.findall(r"\tglobal_store_(\w+)", main)) <= {"dwordx4", "b128"}
    loads = re.findall(r"\tglobal_load_(\w+)", added)
    assert len(loads) == 16
    assert set(loads) <= {"dwordx4", "b128"}
