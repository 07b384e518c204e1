"""Products and windows over their values as one kernel, without a GPU: what is taken, its text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from emulated import arguments, built, emulated_error
from halo_cases import (
    HALO_CASES,
    Layer,
    depthwise,
    gate,
    plain,
    pointwise,
    relu,
    stacked,
)
from joined import joined_function, joined_functions
from kernels import Case, Input
from tvm import tirx
from tvm.relax import op
from warp_emulator import COMPILER

from tvm_tile.build.cubin import resources_of
from tvm_tile.device import Device, find_device
from tvm_tile.graph.extract import extract
from tvm_tile.passes.scheduling.schedule_tiles import with_blocks_only
from tvm_tile.schedule import Task
from tvm_tile.schedule.halo import schedule_halo

pytestmark = pytest.mark.bank(10)

A100, H200 = find_device("nvidia/a100"), find_device("nvidia/h200")
BY_NAME = {entry.name: entry for entry in HALO_CASES}

# Windows that no box divides, warps without channels, half a fragment's depth, few places.
EDGES = {
    entry.name: entry
    for entry in (
        stacked(
            "three_channel_warps",
            (1, 5, 9, 48),
            pointwise(48),
            depthwise(48, padding=1),
            pointwise(24, plain),
        ),
        stacked(
            "one_column_of_8", (3, 37, 1, 8), pointwise(16), depthwise(16, (5, 1), padding=(2, 0))
        ),
        stacked(
            "box_over_the_edge",
            (1, 3, 3, 16),
            pointwise(32),
            depthwise(32, padding=1),
            pointwise(16, plain),
        ),
        stacked(
            "padded_on_two_sides",
            (1, 7, 9, 16),
            pointwise(32),
            depthwise(32, padding=(0, 0, 1, 2)),
            pointwise(16, plain),
        ),
    )
}
EMULATED = {
    name: BY_NAME[name]
    for name in (
        "bottleneck_residual",
        "bottleneck_strides",
        "bottleneck_unpadded",
        "bottleneck_gated",
        "half_dilated",
        "half_gated",
        "half_gelu",
        "half_odd_depth",
        "feed_forward",
        "feed_forward_gated",
    )
} | EDGES
LIMIT = 4e-3  # a rounding of each product's values, and of what lies between


def choices(func: tirx.PrimFunc, device: Device = H200) -> list[Any]:
    """The rule's, best first."""
    graph = extract(func)
    return [] if graph is None else list(schedule_halo(Task(func, graph, device), 1000))


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", EMULATED)
def test_the_text_computes_what_the_cpu_does(name: str, tmp_path: Path) -> None:
    """The first choice, with copies that come late, or one far from it, with early ones."""
    func = joined_function(EMULATED[name], H200, schedule_halo)
    found, of = choices(func), arguments(func)
    late = list(EMULATED).index(name) % 2 == 0
    choice = found[0 if late else len(found) * 2 // 3]()
    # Neighbouring windows may be any number of rows apart.
    error = emulated_error(choice, of, H200, tmp_path, late=late, conflicts=True)
    assert error < LIMIT, choice.tile


# All but one whose kernel the compiler makes with few registers and some spills, unasked.
BUILT = ("bottleneck_bfloat16", "bottleneck_silu", "half", "feed_forward_wide")


@pytest.mark.parametrize("device", [A100, H200], ids=lambda device: device.name)
@pytest.mark.parametrize("name", BUILT)
def test_the_first_choice_becomes_machine_code_that_spills_nothing(
    name: str, device: Device
) -> None:
    entry = BY_NAME[name]
    choice = choices(joined_function(entry, device, schedule_halo), device)[0]()
    kernel = built(choice, device)
    taken = resources_of(kernel.binary)
    assert taken.stack == 0, choice.tile
    assert taken.registers * choice.block <= device.registers_per_multi_processor
    dtype = {"float16": "f16", "bfloat16": "bf16"}[entry.inputs[0].dtype]
    # The shallow ones sum windows.
    found = [
        depth
        for depth in (8, 16)
        if f"mma.sync.aligned.m16n8k{depth}.row.col.f32.{dtype}.{dtype}.f32" in kernel.source
    ]
    assert found == ([16] if "feed_forward" in name else [8, 16])


# What is not the rule's, each one thing away from what is.
IMAGE = (1, 8, 8, 32)
FIRST, WINDOW, SECOND = pointwise(64), depthwise(64, padding=1), pointwise(16, plain)
DENSE = Layer((3, 3), 64, relu, is_dense=True, options=(("padding", 1),))


def taken(entry: Case, device: Device = H200) -> list[int]:
    """How many products and windows are in each kernel that the rule writes."""
    return [
        len(graph.reductions)
        for func in joined_functions(entry, device, schedule_halo)
        if choices(func, device) and (graph := extract(func)) is not None
    ]


def layers(*own: Layer, dtype: str = "float16") -> Case:
    return stacked("", IMAGE, *own, dtype=dtype)


def test_a_bottleneck_is_taken() -> None:
    assert taken(layers(FIRST, WINDOW, SECOND)) == [3]


@pytest.mark.parametrize("device", [with_blocks_only(A100), find_device("emulated")])
def test_other_devices(device: Device) -> None:
    assert taken(layers(FIRST, WINDOW, SECOND), device) == []


@pytest.mark.parametrize(
    "own",
    [
        (FIRST, DENSE, SECOND),
        (FIRST, DENSE),
        (pointwise(64, layout="HWIO"), WINDOW, SECOND),  # channels contiguous, not the depth
        (FIRST, depthwise(128, padding=1), SECOND),  # two windows over each channel
        (FIRST, depthwise(128, padding=1)),
        (pointwise(72), depthwise(72, padding=1)),  # no whole fragments
        (pointwise(64, gate), DENSE),
    ],
    ids=[
        "dense window",
        "dense window, half",
        "weights by depth",
        "channels' multiplier",
        "channels' multiplier, half",
        "72 channels",
        "dense window, gated",
    ],
)
def test_other_layers(own: tuple[Layer, ...]) -> None:
    assert taken(layers(*own)) == []


def test_float32() -> None:
    assert taken(layers(FIRST, WINDOW, SECOND, dtype="float32")) == []


def test_a_second_product_that_is_not_taken_leaves_the_first_half() -> None:
    assert taken(layers(FIRST, WINDOW, pointwise(16, plain, layout="HWIO"))) == [2]


def convolved(x: Any, w: Any, **options: Any) -> Any:
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    wide = op.nn.conv2d(x, w, out_dtype="float32", **layouts, **options)
    return op.astype(wide, "float16")


def windows_over(x: Any, w: Any) -> Any:
    return convolved(x, w, padding=1, groups=64)


def made(x: Any, w: Any) -> Any:
    return op.nn.relu(convolved(x, w))


def values_are_an_output(x: Any, a: Any, w: Any, b: Any) -> Any:
    values = made(x, a)
    return convolved(windows_over(values, w), b), values


def values_are_added_to_the_windows(x: Any, a: Any, w: Any, b: Any) -> Any:
    values = made(x, a)
    return convolved(op.add(windows_over(values, w), values), b)


def values_are_pooled(x: Any, a: Any, _: Any, b: Any) -> Any:
    return convolved(op.nn.max_pool2d(made(x, a), (3, 3), padding=1, layout="NHWC"), b)


def weights_are_computed(x: Any, a: Any, w: Any, _: Any) -> Any:
    return windows_over(made(x, a), op.add(w, w))


def sums_are_an_output(x: Any, a: Any, w: Any, b: Any) -> Any:
    sums = windows_over(made(x, a), w)
    return convolved(sums, b), sums


SHAPES = (IMAGE, (64, 1, 1, 32), (64, 3, 3, 1), (32, 1, 1, 64))


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (values_are_an_output, []),
        (values_are_added_to_the_windows, []),
        (values_are_pooled, []),
        (weights_are_computed, []),
        (sums_are_an_output, [2]),
    ],
)
def test_other_uses(body: Any, kept: list[int]) -> None:
    inputs = tuple(Input(shape, "float16") for shape in SHAPES)
    assert taken(Case("", "halo", body, inputs)) == kept
