"""Kernels for mma without a GPU: which rule takes what, their text, and what the text computes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from emulated import all_built, arguments, emulated_error
from joined import joined_function
from kernels import Case, offers, prim_functions, rules_of
from mma_cases import GATED, GROUPS, IMAGES, MMA_CASES, ONLY_MMA
from warp_emulator import COMPILER
from wgmma_cases import product_case

from tvm_tile.device import Device, find_device
from tvm_tile.graph.extract import extract
from tvm_tile.passes.scheduling.schedule_tiles import with_blocks_only
from tvm_tile.schedule import Task
from tvm_tile.schedule.warp_products import schedule_mma

pytestmark = pytest.mark.bank(8)

A100, RTX3090, RTX4090, H200 = DEVICES = [
    find_device(f"nvidia/{name}") for name in ("a100", "rtx3090", "rtx4090", "h200")
]
BY_NAME = {entry.name: entry for entry in MMA_CASES}
EMULATED = (
    "NT_72x136x200_float16",
    "TN_72x136x200_float16",
    "NN_50x50x50_float16",
    "TT_37x41x53_float16",
    "batch_NN_50x32x50",
    "shared_weight",
    "masked",
    "bias_gelu",
    "row_bias_relu",
    "narrow_sums",
    "conv_3x3_ragged",
    "conv_7x7_of_3",
    "conv_5x5_dilated_odd",
    "conv_grouped",
    "conv_grouped_odd",
    "conv_3x3_of_6_bias_relu",
)
# Each once, by turns with copies that come at once and late; of what has most of a kernel, both.
BOTH = ("NT_72x136x200_float16", "TT_37x41x53_float16", "bias_gelu", "conv_grouped_odd")
COPIES = [
    (name, late)
    for number, name in enumerate(EMULATED)
    for late in (False, True)
    if name in BOTH or late == bool(number % 2)
]


def choices(entry: Case, device: Device) -> list[Any]:
    """The rule's for a case's only function, best first."""
    (func,) = prim_functions(entry, device).values()
    return choices_of(func, device)


def choices_of(func: Any, device: Device) -> list[Any]:
    graph = extract(func)
    assert graph is not None
    return list(schedule_mma(Task(func, graph, device), 1000))


@pytest.mark.parametrize("device", [A100, RTX4090], ids=lambda device: device.name)
@pytest.mark.parametrize("name", sorted(BY_NAME)[::5])
def test_the_rule_takes(name: str, device: Device) -> None:
    assert choices(BY_NAME[name], device)


@pytest.mark.parametrize("entry", ONLY_MMA, ids=lambda entry: entry.name)
def test_the_rule_takes_what_bulk_copies_do_not(entry: Case) -> None:
    assert choices(entry, H200)
    assert "wgmma" not in offers(*prim_functions(entry, H200).values(), H200)


def test_large_products_that_bulk_copies_take_are_not_its() -> None:
    assert rules_of(product_case("NT", 4096, 4096, 4096), H200) == "wgmma"


@pytest.mark.parametrize("device", [with_blocks_only(A100), find_device("emulated")])
def test_other_devices(device: Device) -> None:
    assert choices(BY_NAME["NT_128x256x512_float16"], device) == []


def test_other_dtypes() -> None:
    assert choices(product_case("NT", 64, 64, 64, dtype="float32"), A100) == []


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
@pytest.mark.parametrize(
    ("name", "copy"),
    [
        ("NT_264x520x1032_float16", "cp.async.cg.shared.global [%0], [%1], 16"),
        ("NN_264x520x1032_float16", "cp.async.cg.shared.global [%0], [%1], 16"),
        ("TT_100x300x500_float16", "cp.async.ca.shared.global [%0], [%1], 8"),
        ("TN_50x50x50_bfloat16", "cp.async.ca.shared.global [%0], [%1], 4"),
        ("conv_3x3_stride", "cp.async.cg.shared.global [%0], [%1], 16"),
    ],
)
def test_the_first_choice_becomes_machine_code(name: str, copy: str, device: Device) -> None:
    entry = BY_NAME[name]
    choice = choices(entry, device)[0]()
    kernel, *_ = all_built(choice, device)  # and one that adds parts
    assert kernel.binary.startswith(b"\x7fELF")
    assert "tensormap" not in kernel.arg_types
    dtype = {"float16": "f16", "bfloat16": "bf16"}[entry.inputs[0].dtype]
    assert f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32" in kernel.source
    assert copy in kernel.source
    loads = set(re.findall(r"ldmatrix\.sync\.aligned\.m8n8\.x4(\.trans)?\.shared", kernel.source))
    layout = re.match(r"[NT]{2}_", name)
    turned = {".trans" if i == "T" else "" for i in (name[0], "TN"[name[1] == "T"])}
    assert loads == (turned if layout else {""})


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(("name", "late"), COPIES)
def test_the_text_computes_what_the_cpu_does(name: str, tmp_path: Path, *, late: bool) -> None:
    (func,) = prim_functions(BY_NAME[name], A100).values()
    of = arguments(func)
    found = choices_of(func, A100)
    # The first choice, and one far from it.
    choice = found[len(found) // 2 if late else 0]()
    assert emulated_error(choice, of, A100, tmp_path, late=late) < 2e-3


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("entry", [*GROUPS, *GATED], ids=lambda entry: entry.name)
def test_rows_of_groups_and_halves_of_columns_meet(
    entry: Case, tmp_path: Path, *, late: bool
) -> None:
    func = joined_function(entry, A100, schedule_mma)
    of = arguments(func)
    found = choices_of(func, A100)
    for place in (0, len(found) // 2, len(found) - 1):
        assert emulated_error(found[place](), of, A100, tmp_path, late=late) < 2e-3


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("entry", IMAGES, ids=lambda entry: entry.name)
def test_fragments_come_from_where_the_image_lies(
    entry: Case, tmp_path: Path, *, stays: bool, late: bool
) -> None:
    # With one multiprocessor few blocks are many tiles'.
    device = replace(A100, multi_processor_count=1 if stays else A100.multi_processor_count)
    (func,) = prim_functions(entry, A100).values()
    found = [choice for choice in choices_of(func, device) if choice.tile.startswith("image")]
    found = [choice for choice in found if choice.tile.endswith("in turns") == stays]
    if stays and entry.name in ("image_2x2", "image_grouped"):
        assert not found  # blocks that stay keep all weights
        return
    of = arguments(func)
    for choice in (found[0], found[len(found) // 2]):
        assert emulated_error(choice(), of, A100, tmp_path, late=late) < 2e-3
