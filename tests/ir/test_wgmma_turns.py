"""Products whose consumers take tiles in turns: their text, run on the CPU."""

from __future__ import annotations

import multiprocessing
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from emulated import arguments, built, guarded, is_intact
from kernels import Case, prim_functions, relative_difference
from warp_emulator import COMPILER, emulate, tensor_maps
from wgmma_cases import WGMMA_CASES, product_case

from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Scheduled, Task
from tvm_tile.schedule.wgmma import schedule_wgmma

pytestmark = pytest.mark.bank(4)

# Few multiprocessors, so that each block has several tiles of a product that is soon emulated.
SMALL = replace(find_device("nvidia/h200"), multi_processor_count=2)
BY_NAME = {entry.name: entry for entry in WGMMA_CASES}
RAGGED = product_case("NT", 328, 456, 200)
SHORT = product_case("NN", 512, 512, 64)  # one chunk a tile
DEEP = product_case("NN", 200, 640, 1032)  # more chunks a tile than the ring has stages
EVERY = 1000


def in_turns(entry: Case) -> list[Scheduled]:
    """The rule's choices for a case in which consumers take turns, the widest and the narrowest."""
    (func,) = prim_functions(entry, SMALL).values()
    graph = extract(func)
    assert graph is not None
    found = [
        choice
        for choice in schedule_wgmma(Task(func, graph, SMALL), EVERY)
        if choice.write.args[-1].alternates  # type: ignore[attr-defined]
    ]
    found.sort(key=lambda choice: choice.write.args[-1].width)  # type: ignore[attr-defined]
    written = [choice() for choice in (found[0], found[-1])]
    assert all(item is not None and "in turns" in item.tile for item in written)
    return [item for item in written if item is not None]


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("entry", [RAGGED, SHORT, DEEP], ids=lambda entry: entry.name)
def test_they_compute_what_the_cpu_does(entry: Case, late: bool, tmp_path: Path) -> None:
    """Copies arrive, and products end, at once or as late as the kernel allows."""
    (func,) = prim_functions(entry, SMALL).values()
    of = arguments(func)
    for number, choice in enumerate(in_turns(entry)):
        memory = {n: guarded(a, is_output=n in of.outputs) for n, a in of.given.items()}
        arrays = {n: inside for n, (_, inside) in memory.items()}
        maps = tensor_maps(choice.func.script(), arrays)
        folder = tmp_path / str(number)
        folder.mkdir()
        kernel = built(choice, SMALL)
        order = {"late": late, "backward": bool(number)}
        emulate(kernel, choice.grid, choice.block, arrays, folder, **order, maps=maps)
        for n in of.outputs:
            assert relative_difference(arrays[n].reshape(of.wanted[n].shape), of.wanted[n]) < 2e-3
            assert is_intact(memory[n][0])


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_without_their_barriers_a_stage_is_taken_for_another(tmp_path: Path) -> None:
    """What one takes for its own chunk is the other's, of an earlier round of the ring."""
    (func,) = prim_functions(DEEP, SMALL).values()
    of = arguments(func)
    choice = in_turns(DEEP)[0]
    kernel = built(choice, SMALL)
    wait = re.compile(r"^ *tvm_builtin_cuda_mbarrier_wait\(.*threadIdx.*$", re.MULTILINE)
    assert len(wait.findall(kernel.source)) == 1
    broken = replace(kernel, source=wait.sub("", kernel.source))
    arrays = dict(of.given)
    maps = tensor_maps(choice.func.script(), arrays)

    def run() -> None:
        order = {"late": True, "backward": False}
        emulate(broken, choice.grid, choice.block, arrays, tmp_path, **order, maps=maps)
        (n,) = of.outputs
        wanted = of.wanted[n]
        sys.exit(relative_difference(arrays[n].reshape(wanted.shape), wanted) >= 2e-3)

    # Where more arrive at a barrier than it expects, the emulator ends the process.
    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode != 0
