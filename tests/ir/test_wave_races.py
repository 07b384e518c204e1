"""Kernels that exchange values within waves, so that Oclgrind cannot run them: no tile has races,
and where a barrier is left out there are some."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from emulated import arguments, built, emulated_error, kernels_error
from gates_cases import lstm
from kernels import Case, prim_functions
from matrix_core_cases import product_of
from warp_emulator import COMPILER, Race

from tvm_tile.device import Device, find_device
from tvm_tile.device.rocm import MI250X, MI300X, MI355X, RX7900XTX, RX9070XT
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Scheduled, Task
from tvm_tile.schedule.gates import schedule_gates
from tvm_tile.schedule.warp_products import schedule_matrix_cores, schedule_mma

A100 = find_device("nvidia/a100")
DTYPES = {
    MI250X: "float32",
    MI300X: "float16",
    MI355X: "int8",
    RX7900XTX: "bfloat16",
    RX9070XT: "float16",
}
LINE = 128  # bytes, the longest of a chunk along the depth
BARRIER = re.compile(r"tvm_builtin_(cuda_(cta|warp)_sync|ptx_cp_async_wait_group)\w*\(\);")

pytestmark = [
    pytest.mark.bank(8),
    pytest.mark.skipif(COMPILER is None, reason="the emulator needs g++"),
]


def by_name(device: Device) -> str:
    return device.name


def product(dtype: str, lines: int = 3) -> Case:
    """As deep as so many of the longest chunks: the third comes to lie where the first did."""
    size = {"float32": 4, "int8": 1}.get(dtype, 2)
    return product_of(dtype, "NN", 40, 72, lines * LINE // size - 2)


def function_and_choices(rule: Any, entry: Case, device: Device) -> tuple[Any, Sequence[Any]]:
    (func,) = prim_functions(entry, device).values()
    graph = extract(func)
    assert graph is not None
    return func, rule(Task(func, graph, device), 10_000)


def of_all_shapes(choices: Sequence[Any]) -> Iterator[Any]:
    """One for each instruction, depth and number of stages, their waves arranged differently."""
    shapes, arrangements = set(), set()
    for choice in choices:
        tile = choice.write.args[-1]
        shape = tile.unit.instruction.shape, tile.depth, tile.stages
        if shape not in shapes and tile.warps not in arrangements:
            shapes.add(shape)
            arrangements.add(tile.warps)
            yield choice


@pytest.mark.parametrize("device", DTYPES, ids=by_name)
def test_no_tile_for_matrix_cores_has_races(device: Device, tmp_path: Path) -> None:
    func, choices = function_and_choices(schedule_matrix_cores, product(DTYPES[device]), device)
    of, shapes = arguments(func), list(of_all_shapes(choices))
    assert len(shapes) == (8 if device.warp_size == 64 else 4)
    # Of neighbouring chips one has the even ones, the next the odd ones.
    own = shapes[list(DTYPES).index(device) % 2 :: 2]
    for number, choice in enumerate(write() for write in own):
        folder = tmp_path / str(number)  # what was loaded once is not loaded again
        folder.mkdir()
        assert emulated_error(choice, of, device, folder, late=False) < 1e-2, choice.tile


def idle_barriers(choice: Scheduled, func: Any, device: Device, folder: Path) -> list[str]:
    """Those without which a kernel's text has no race either."""
    kernel, of, shape = built(choice, device), arguments(func), (choice.grid, choice.block)
    text = kernel.source
    barriers = list(BARRIER.finditer(text, text.index('extern "C" __global__')))
    assert barriers
    idle = []
    for number, barrier in enumerate(barriers):
        own = folder / str(number)
        own.mkdir()
        bare = replace(kernel, source=text[: barrier.start()] + text[barrier.end() :])
        try:
            kernels_error([(bare, shape)], of, device, own, late=True)
        except Race:
            continue
        idle.append(f"{number}: {barrier[0]}")
    return idle


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("device", [MI300X, RX9070XT], ids=by_name)
def test_matrix_cores_need_each_barrier(device: Device, stages: int, tmp_path: Path) -> None:
    func, choices = function_and_choices(schedule_matrix_cores, product(DTYPES[device]), device)
    choice = next(
        choice
        for choice in choices
        if (tile := choice.write.args[-1]).stages == stages
        and tile.depth * tile.unit.element == LINE
        and tile.warp_rows == tile.unit.rows
        and tile.warp_columns == 64
        and tile.block_size > tile.unit.warp
    )
    assert idle_barriers(choice(), func, device, tmp_path) == []


def test_mma_needs_each_barrier(tmp_path: Path) -> None:
    # Of four chunks in two stages the next, which there is none of, would lie in the first: it is
    # read there, if not used, before sums go out through that memory.
    func, choices = function_and_choices(schedule_mma, product("float16", 4), A100)
    choice = next(
        choice
        for choice in choices
        if (tile := choice.write.args[-1]).stages == 2
        and tile.depth == LINE // 2
        and tile.warp_rows == 16
        and tile.warp_columns == 64
        and tile.block_size > 32
    )
    assert idle_barriers(choice(), func, A100, tmp_path) == []


@pytest.mark.parametrize("device", [A100, MI300X, RX9070XT], ids=by_name)
def test_gates_need_their_barrier(device: Device, tmp_path: Path) -> None:
    func, choices = function_and_choices(schedule_gates, lstm(3, 64, 33, 32), device)
    assert idle_barriers(choices[0](), func, device, tmp_path) == []
