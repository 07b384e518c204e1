"""Kernels for AMD's matrix cores without a GPU: the rule, their machine code, what they compute."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from emulated import all_built, arguments, emulated_error
from hip_assembly import metadata
from kernels import Case, prim_functions
from matrix_core_cases import MATRIX_CORE_CASES, PRODUCTS, device_for, product_of
from warp_emulator import COMPILER
from wgmma_cases import product_case

from tvm_tile.build.hip import assembly_of
from tvm_tile.device import Device, find_device
from tvm_tile.device.rocm import MI300X, ROCM_DEVICES, RX9070XT
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Scheduled, Task
from tvm_tile.schedule.warp_products import schedule_matrix_cores
from tvm_tile.tile.products.matrix_cores import matrix_core_dtypes

pytestmark = pytest.mark.bank(10)

# Of products with float32 sums, in their outputs' dtypes.
LIMITS = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 3e-6, "int8": 0.0}
EMULATED = (
    "batch_NN_50x32x50",
    "shared_weight",
    "heads",
    "masked",
    "row_bias_relu",
    "bias_residual_relu",
    "float32_output",
    "conv_3x3_ragged",
    "conv_7x7_of_3",
    "conv_5x5_dilated_odd",
    "conv_grouped_odd",
    "conv_patches",
    "conv_3x3_of_6_bias_relu",
    "shallow_odd",
    "int8_residual",
    "int8_conv_requantized",
    "int8_257x250x112",
    "tf32_bias_relu",
    "tf32_conv",
)
BY_ID = {"ids": lambda value: value.name}


def choices(entry: Case, device: Device) -> list[Any]:
    """The rule's for a case's only function, best first."""
    (func,) = prim_functions(entry, device).values()
    return choices_of(func, device)


def choices_of(func: Any, device: Device) -> list[Any]:
    graph = extract(func)
    assert graph is not None
    return list(schedule_matrix_cores(Task(func, graph, device), 10_000))


def error(
    entry: Case, device: Device, folder: Path, share: float, *, only_text: bool = True
) -> float:
    """Of one of the rule's choices, so far from the first."""
    (func,) = prim_functions(entry, device).values()
    found = choices_of(func, device)
    choice = found[int(share * (len(found) - 1))]()
    how = {"late": share > 0, "only_text": only_text}
    return emulated_error(choice, arguments(func), device, folder, **how)


@pytest.mark.parametrize("device", ROCM_DEVICES, **BY_ID)
@pytest.mark.parametrize("entry", PRODUCTS[::3], **BY_ID)
def test_the_rule_takes(entry: Case, device: Device) -> None:
    is_known = entry.inputs[0].dtype in matrix_core_dtypes(device)
    assert bool(choices(entry, device)) == is_known


def test_other_devices_and_dtypes() -> None:
    half = product_case("NT", 64, 64, 64)
    assert choices(half, find_device("nvidia/a100")) == []
    assert choices(product_case("NT", 64, 64, 64, dtype="float32"), RX9070XT) == []
    assert choices(MATRIX_CORE_CASES["uint8_by_int8"], MI300X) == []


@cache
def built_for(dtype: str, device: Device) -> tuple[Scheduled, str]:
    """The first choice for a large product, and its assembly."""
    choice = choices(product_of(dtype, "NT", 1024, 1024, 1024), device)[0]()
    kernel, *_ = all_built(choice, device, only_text=True)
    return choice, assembly_of(kernel.source, dict(device.target)["mcpu"])


@pytest.mark.parametrize("device", ROCM_DEVICES, **BY_ID)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "float32"])
def test_machine_code(dtype: str, device: Device) -> None:
    if dtype not in matrix_core_dtypes(device):
        return
    choice, assembly = built_for(dtype, device)
    facts = metadata(assembly)
    assert (facts["vgpr_spill_count"], facts["private_segment_fixed_size"]) == (0, 0)
    assert facts["group_segment_fixed_size"] == choice.shared_bytes
    assert facts["wavefront_size"] == device.warp_size
    assert 0.7 < facts["vgpr_count"] / choice.registers < 1.2
    loop = loop_of(assembly)
    products = [n for n, line in enumerate(loop) if re.match(r"v_(w?mma|mfma)", line)]
    loads = [n for n, line in enumerate(loop) if line.startswith("global_load")]
    stores = [n for n, line in enumerate(loop) if re.match(r"ds_(write|store)", line)]
    assert products
    assert loads
    assert stores
    assert all(re.match(r"global_load_(dwordx4|b128)", loop[n]) for n in loads)
    assert all(re.match(r"ds_(write|store)(_b128|2)", loop[n]) for n in stores)
    # A chunk is asked for before the last is multiplied, and stored when most of that is done.
    assert max(loads) < products[len(products) // 4]
    assert min(stores) > products[len(products) // 2]
    assert "scratch_" not in " ".join(loop)


@pytest.mark.parametrize("device", ROCM_DEVICES, **BY_ID)
def test_meetings_wait_for_what_was_stored(device: Device) -> None:
    lines = code_of(built_for("float16", device)[1])
    meetings = [
        n for n, line in enumerate(lines) if line.startswith(("s_barrier", "s_barrier_sig"))
    ]
    assert meetings
    for meeting in meetings:
        for line in reversed(lines[:meeting]):
            if re.match(r"s_waitcnt.*lgkmcnt\(0\)|s_wait_(loadcnt_)?dscnt.*0x0", line):
                break
            assert not re.match(r"ds_", line), lines[meeting - 20 : meeting + 1]


def code_of(assembly: str) -> list[str]:
    """Its instructions."""
    lines = (line.strip() for line in assembly.splitlines())
    return [line for line in lines if line and line[0] not in ".;"]


def loop_of(assembly: str) -> list[str]:
    """The instructions of the only loop that multiplies."""
    blocks = re.split(r"^\.LBB0_\d+:.*$", assembly, flags=re.MULTILINE)
    (found,) = (
        block
        for block in blocks
        if re.search(r"s_cbranch", block) and re.search(r"ds_(write|store)", block)
        if re.search(r"\tv_(mfma|wmma)", block.partition("s_cbranch")[0])
    )
    return code_of(found.partition("s_cbranch")[0])


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("device", ROCM_DEVICES, **BY_ID)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
def test_products_compute_what_the_cpu_does(dtype: str, device: Device, tmp_path: Path) -> None:
    if dtype not in matrix_core_dtypes(device):
        return
    own = [entry for entry in PRODUCTS if entry.inputs[0].dtype == dtype]
    # Each order of operands and each of the extents on some device, with different tiles.
    able = [other for other in ROCM_DEVICES if dtype in matrix_core_dtypes(other)]
    first, step = able.index(device), min(4, len(able))
    for number, entry in enumerate(own[first % step :: step]):
        folder = tmp_path / entry.name  # what was loaded once is not loaded again
        folder.mkdir()
        share = (first + 2 * number) % 4 / 4
        assert error(entry, device, folder, share) <= LIMITS[dtype], entry.name


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", EMULATED)
def test_what_follows_and_convolutions(name: str, tmp_path: Path) -> None:
    entry = MATRIX_CORE_CASES[name]
    number = EMULATED.index(name)
    # What follows, and how windows are read, becomes machine code here only.
    device, share = device_for(entry, number), number % 4 / 4
    found = error(entry, device, tmp_path, share, only_text=False)
    assert found <= 2 * LIMITS[entry.inputs[0].dtype]
