"""Products whose kernels walk a list of the chunks that are not zeros: their text, on the CPU."""

from __future__ import annotations

import multiprocessing
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import arguments, built, guarded, is_intact
from kernels import prim_functions, relative_difference
from tvm import tirx
from warp_emulator import COMPILER, emulate, tensor_maps
from wgmma_cases import product_case

from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.graph.positions import Listed, listed_chunks
from tvm_tile.schedule import Scheduled, Task
from tvm_tile.schedule.listed import listed_of, with_listed
from tvm_tile.schedule.wgmma import schedule_wgmma

pytestmark = pytest.mark.bank(4)

# Few multiprocessors, so that each block has several tiles of a product that is soon emulated.
SMALL = replace(find_device("nvidia/h200"), multi_processor_count=2)
WIDE = replace(SMALL, multi_processor_count=16)
EVERY = 1000
CHUNK = 64
RNG = np.random.default_rng(0)


def mask(columns: int, depth: int, box: tuple[int, int], density: float, none: int = 0) -> Any:
    """Boxes that are kept, of which some of the first columns have none."""
    kept = RNG.random((-(-columns // box[0]), -(-depth // box[1]))) < density
    kept[:none] = False
    return np.kron(kept, np.ones(box))[:columns, :depth] > 0


def listed_case(
    layout: str, extents: tuple[int, int, int], kept: Any, place: int = 1
) -> tuple[tirx.PrimFunc, Any, Listed]:
    """A function that takes a matrix with lists, its arguments, and the lists."""
    (func,) = prim_functions(product_case(layout, *extents), SMALL).values()
    name = str(func.params[place].name)
    lists = listed_chunks(kept, CHUNK, f"{name}_listed")
    is_turned = layout[place] == "TN"[place]
    func = with_listed(func, (place, int(is_turned)), lists, 2)
    drawn = RNG.standard_normal(kept.shape) * kept
    matrix = np.ascontiguousarray(drawn.T if is_turned else drawn).astype(np.float16)
    return func, arguments(func, {name: matrix, lists.source: lists.table().copy()}), lists


def split_choices(func: tirx.PrimFunc) -> list[Scheduled]:
    """The rule's first choices in which two blocks share a sum, and four."""
    graph = extract(func)
    assert graph is not None
    found: Any = schedule_wgmma(Task(func, graph, WIDE), EVERY)
    by_splits = {choice.write.args[-1].splits: choice for choice in reversed(found)}
    return [choice for splits in (2, 4) if (choice := by_splits[splits]()) is not None]


def choices(func: tirx.PrimFunc) -> list[Scheduled]:
    """The rule's choices of the least and the greatest width, and of some in between."""
    graph = extract(func)
    assert graph is not None
    found = list(schedule_wgmma(Task(func, graph, SMALL), EVERY))
    found = [c for c in found if c.write.args[-1].splits == 1]  # type: ignore[attr-defined]
    tiles = [choice.write.args[-1] for choice in found]  # type: ignore[attr-defined]
    assert tiles
    assert not any(tile.alternates for tile in tiles)
    found.sort(key=lambda choice: choice.write.args[-1].width)  # type: ignore[attr-defined]
    written = [choice() for choice in found[:: max(1, len(found) // 4)]]
    return [item for item in written if item is not None]


def run(choice: Scheduled, of: Any, folder: Path, *, late: bool, cluster: int = 1) -> float:
    """The error of a kernel; infinite where it writes around its output."""
    memory = {n: guarded(a, is_output=n in of.outputs) for n, a in of.given.items()}
    arrays = {n: inside for n, (_, inside) in memory.items()}
    maps = tensor_maps(choice.func.script(), arrays)
    order: dict[str, Any] = {"late": late, "backward": late, "cluster": cluster}
    emulate(built(choice, SMALL), choice.grid, choice.block, arrays, folder, **order, maps=maps)
    (n,) = of.outputs
    if not is_intact(memory[n][0]):
        return np.inf
    return relative_difference(arrays[n].reshape(of.wanted[n].shape), of.wanted[n])


CASES = {
    # Layout, extents, boxes, density, groups without any, and which operand has the lists.
    "blocks": ("NT", (136, 320, 1032), (64, 64), 0.3, 1, 1),
    "of_one": ("NT", (72, 256, 512), (64, 64), 0.0, 0, 1),
    "words": ("NT", (64, 128, 2304), (32, 128), 0.2, 2, 1),
    "ragged": ("NN", (72, 200, 1000), (24, 64), 0.4, 0, 1),
    "tall": ("NT", (400, 64, 256), (64, 64), 0.5, 0, 1),
    "left": ("NT", (320, 136, 512), (64, 64), 0.3, 1, 0),
}


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_they_compute_what_the_cpu_does(name: str, late: bool, tmp_path: Path) -> None:
    """Copies arrive, and products end, at once or as late as the kernel allows."""
    layout, (m, n, k), box, density, none, place = CASES[name]
    kept = mask(n if place else m, k, box, density, none)
    func, of, _ = listed_case(layout, (m, n, k), kept, place)
    written = choices(func)
    assert "of the chunks" in written[0].tile
    for number, choice in enumerate(written):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert run(choice, of, folder, late=late) < 2e-3, choice.tile


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("late", [False, True])
def test_blocks_share_lists(late: bool, tmp_path: Path) -> None:
    kept = mask(128, 2304, (64, 64), 0.5)
    func, of, _ = listed_case("NT", (72, 128, 2304), kept)
    for splits, choice in zip((2, 4), split_choices(func), strict=True):
        folder = tmp_path / str(splits)
        folder.mkdir()
        assert f"{splits} blocks a sum" in choice.tile
        assert run(choice, of, folder, late=late, cluster=splits) < 2e-3, choice.tile


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_a_table_that_lists_too_little_is_seen(tmp_path: Path) -> None:
    """The tests' matrices do have numbers where the lists say so."""
    func, of, lists = listed_case("NT", (64, 128, 512), mask(128, 512, (64, 64), 0.6))
    table = of.given[lists.source]
    table[:] = np.where(table & (table - 1), table & (table - 1), table)
    choice = choices(func)[0]

    def wrong() -> None:
        sys.exit(run(choice, of, tmp_path, late=False) >= 2e-3)

    process = multiprocessing.get_context("fork").Process(target=wrong)
    process.start()
    process.join()
    assert process.exitcode == 1


def test_the_attribute_tells_the_lists() -> None:
    func, _, lists = listed_case("NT", (64, 128, 512), mask(128, 512, (64, 64), 0.4))
    told = listed_of(func)
    assert told is not None
    assert told[0].same_as(func.params[1])
    assert told[1] == lists
    assert [str(param.name) for param in func.params][2] == lists.source
