"""Attention for warps' matrix instructions and CUDA cores without a GPU: what the text computes,
its races, its machine code."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attention_cases import FLOATS
from chain_bodies import attention
from chain_cases import CHAIN_CASES
from emulated import arguments, built, emulated_error, idle_barriers
from hip_assembly import metadata, unfinished_stores
from joined import function_and_choices, joined_function, tile_of
from kernels import Case, Input, offers, rules_of
from warp_emulator import COMPILER

from tvm_tile.build import Builder, Program
from tvm_tile.build.cubin import resources_of
from tvm_tile.build.hip import assembly_of
from tvm_tile.device import Device, find_device
from tvm_tile.device.rocm import MI300X, ROCM_DEVICES, RX7900XTX, RX9070XT
from tvm_tile.schedule.attention import schedule_attention
from tvm_tile.schedule.chain import schedule_chain

pytestmark = pytest.mark.bank(8)

A100, RTX4090, H200, V100 = (
    find_device(f"nvidia/{name}") for name in ("a100", "rtx4090", "h200", "v100")
)
HALVES = {entry.name: entry for entry in CHAIN_CASES}
SINGLES = {entry.name: entry for entry in FLOATS}
# Every kind of edge and mask, rows without a key, columns and depths that no power of two is.
EMULATED = (
    "masked",
    "shifted_windows",
    "biased",
    "rows_hidden",
    "causal_longer",
    "causal_no_key",
    "window_around",
    "causal_padded",
    "positions_no_key",
    "positions_padded",
    "positions_window",
    "positions_of_batches",
    "groups_both_scaled",
    "groups_prompt",
    "77x77x80x80",
    "130x97x48x40",
    "65x129x8x8",
    "feed_forward_turned",
    "feed_forward_ragged",
    "feed_forward_half_turned",
    "feed_forward_image",
    "sunk",
    "sunk_masked",
    "sunk_no_key",
    "sunk_steep",
    "sunk_positions",
    "sunk_prompt",
    "sunk_number",
    "sunk_band",
)
# Of each chip some.
ON_WAVES = {
    device: EMULATED[number :: len(ROCM_DEVICES)] + ("bfloat16",) * (number % 2)
    for number, device in enumerate(ROCM_DEVICES)
}
BUILT = (
    *("256x512x128x128", "61x1024x64x72", "bfloat16", "biased", "rows_hidden", "causal_wide"),
    *("feed_forward_turned", "feed_forward_half_turned", "sunk_masked", "sunk_number"),
)
# Every case meets several devices, every device several cases.
BUILT_FOR_WAVES = [
    (name, device)
    for number, device in enumerate(ROCM_DEVICES)
    for name in BUILT[number % 2 :: 2]
    # It has no registers for 128 columns: see the test below.
    if not (name.startswith("256x512x128") and device is RX7900XTX)
]
BUILT_FOR_WARPS = [
    (name, device)
    for number, device in enumerate((A100, RTX4090, H200))
    for name in (*BUILT[number::3], *BUILT[(number + 1) % 3 :: 3])
]
BY_ID: Any = {"ids": lambda own: getattr(own, "name", own)}
BARRIER = re.compile(r"tvm_builtin_(cuda_cta_sync|ptx_cp_async_wait_all)\w*\(\);")


def of_few_heads(case: Case) -> Case:
    """What is computed depends on neither batch nor head, but for a bias and a mask."""
    if case.name.startswith("feed_forward"):
        return case
    few = {"biased": (1, 3), "causal_padded": (2, 1), "shifted_windows": (8, 49)}.get(
        case.name, (1, 2)
    )
    inputs = (
        replace(entry, shape=(*map(min, entry.shape[:2], few), *entry.shape[2:]))
        for entry in case.inputs
    )
    return replace(case, inputs=tuple(inputs))


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", EMULATED)
def test_the_text_computes_what_the_cpu_does(name: str, tmp_path: Path) -> None:
    """The first choice, with copies that come late, or one far from it, with early ones."""
    func, found = function_and_choices(of_few_heads(HALVES[name]), A100, schedule_attention)
    of = arguments(func)
    late = EMULATED.index(name) % 2 == 0
    choice = found[0 if late else len(found) * 2 // 3]()
    # Of 8 columns two rows of a tile lie on the same banks.
    error = emulated_error(choice, of, A100, tmp_path, late=late, conflicts=True)
    assert error < 4e-3, choice.tile


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(
    ("device", "name"), [(device, name) for device, names in ON_WAVES.items() for name in names]
)
def test_the_text_for_waves_computes_what_the_cpu_does(
    device: Device, name: str, tmp_path: Path
) -> None:
    """The first choice, or one of another instruction, or with more rows of a wave."""
    func, found = function_and_choices(of_few_heads(HALVES[name]), device, schedule_attention)
    of = arguments(func)
    first = found[0]
    unit, rows = tile_of(first).unit, tile_of(first).warp_rows
    others = [own for own in found if (tile_of(own).unit, tile_of(own).warp_rows) != (unit, rows)]
    # Of each device's cases every other.
    late = ON_WAVES[device].index(name) % 2 == 0
    choice = first if late else (others or found)[-1]
    error = emulated_error(choice(), of, device, tmp_path, late=late)
    assert error < (8e-3 if name == "bfloat16" else 4e-3), choice.tile


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("device", [H200, MI300X, RX7900XTX], ids=lambda device: device.name)
def test_the_text_for_cores_computes_what_the_cpu_does(device: Device, tmp_path: Path) -> None:
    func, found = function_and_choices(SINGLES["by_heads_of_odd_width"], device, schedule_attention)
    of = arguments(func)
    for late, choice in ((True, found[0]()), (False, found[len(found) // 2]())):
        folder = tmp_path / str(late)
        folder.mkdir()
        error = emulated_error(choice, of, device, folder, late=late)
        assert error < 1e-5, choice.tile


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(
    ("entry", "device"),
    [
        (HALVES["130x97x48x40"], A100),
        (HALVES["65x129x8x8"], A100),
        (SINGLES["130x97x48x40"], H200),
        (HALVES["130x97x48x40"], MI300X),
        (HALVES["65x129x8x8"], RX9070XT),
    ],
    ids=["mma", "mma, sums over values", "cores", "mfma", "wmma, sums over values"],
)
def test_each_barrier_is_needed(entry: Case, device: Device, tmp_path: Path) -> None:
    func, found = function_and_choices(entry, device, schedule_attention)
    # Several steps, and several warps.
    choice = next(
        own()
        for own in found
        if (tile := tile_of(own)).keys == 32 and tile.block_size in (64, 128, 256)
    )
    idle, count = idle_barriers(choice, arguments(func), device, tmp_path, BARRIER)
    assert count > 1
    assert idle == []


@pytest.mark.parametrize(("name", "device"), BUILT_FOR_WARPS, **BY_ID)
def test_the_first_choice_becomes_machine_code(name: str, device: Device) -> None:
    """What a step needs once may be spilled, as compilers do to have more threads."""
    for entry in (own[name] for own in (HALVES, SINGLES) if name in own):
        _, found = function_and_choices(entry, device, schedule_attention)
        choice = found[0]()
        program = Builder(device).build_functions({"t": choice.func})["t"]
        assert isinstance(program, Program), str(program)
        (kernel,) = program.kernels
        taken = resources_of(kernel.binary)
        assert taken.stack <= 32, choice.tile
        assert choice.registers is not None
        assert taken.registers <= choice.registers + 40, choice.tile


@pytest.mark.parametrize(("name", "device"), BUILT_FOR_WAVES, **BY_ID)
def test_choices_for_waves_become_machine_code_that_spills_nothing(
    name: str, device: Device
) -> None:
    _, found = function_and_choices(HALVES[name], device, schedule_attention)
    for choice in (found[0](), found[-1]()):
        kernel = built(choice, device, only_text=True)
        assembly = assembly_of(kernel.source, str(dict(device.target)["mcpu"]))
        facts = metadata(assembly)
        assert (facts["vgpr_spill_count"], facts["private_segment_fixed_size"]) == (0, 0)
        assert facts["group_segment_fixed_size"] == choice.shared_bytes
        assert facts["wavefront_size"] == device.warp_size
        assert choice.registers is not None
        assert facts["vgpr_count"] < choice.registers + 60, choice.tile
        assert re.search(r"\tv_(w?mma|mfma)", assembly)
        assert unfinished_stores(assembly) == []


@pytest.mark.parametrize(
    ("device", "dtype", "rule"),
    [
        (A100, "float16", "warp_attention"),
        (A100, "float32", "attention"),
        (V100, "float32", "attention"),
        (MI300X, "float16", "warp_attention"),
        (RX7900XTX, "bfloat16", "warp_attention"),
        (MI300X, "float32", "attention"),
        (H200, "float16", "chain"),
        (H200, "float32", "attention"),
    ],
    **BY_ID,
)
def test_units_by_device_and_type(device: Device, dtype: str, rule: str) -> None:
    """Whether or not products and a softmax by themselves are predicted to be faster."""
    inputs = tuple(Input((64, 12, 128, 64), dtype) for _ in range(3))
    find = schedule_chain if rule == "chain" else schedule_attention
    func = joined_function(Case("", "", attention(0.125), inputs), device, find)
    assert rule in offers(func, device)


@pytest.mark.parametrize(("width", "rule"), [(96, "warp_attention"), (128, None)])
def test_what_registers_do_not_hold_stays_apart(width: int, rule: str | None) -> None:
    inputs = tuple(Input((2, 3, 512, width), "float16") for _ in range(3))
    found = rules_of(Case("", "", attention(0.125), inputs), RX7900XTX)
    assert (found == rule) if rule else ("warp_attention" not in found)


def test_a_feed_forward_of_float32_stays_apart() -> None:
    case = HALVES["feed_forward"]
    inputs = tuple(replace(entry, dtype="float32") for entry in case.inputs)
    assert rules_of(replace(case, inputs=inputs), H200).count("contraction") == 2


def test_what_bulk_copies_do_not_take_goes_to_mma() -> None:
    """Rows of 35 elements lie on no multiple of 16 bytes."""
    inputs = tuple(Input((64, 12, 128, 35), "float16") for _ in range(3))
    assert rules_of(Case("", "", attention(0.125), inputs), H200) == "warp_attention"
