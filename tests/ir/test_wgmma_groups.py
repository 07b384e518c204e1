"""Products of rows in groups, and of halves, for warpgroups: their text, run on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import all_built, arguments, guarded, is_intact, launches, workspaces
from joined import joined_function
from kernels import Case, relative_difference
from mma_cases import GATED, GROUPS
from tvm import tirx
from warp_emulator import COMPILER, emulate, tensor_maps

from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Scheduled, Task
from tvm_tile.schedule.tensor_cores import grouping
from tvm_tile.schedule.wgmma import schedule_wgmma

pytestmark = pytest.mark.bank(2)

# Few multiprocessors, so that blocks have several tiles, some of them of no rows.
SMALL = replace(find_device("nvidia/h200"), multi_processor_count=2)
CASES = [entry for entry in GROUPS if all(n % 8 == 0 for n in entry.inputs[1].shape[1:])]
EVERY = 1000


def choices(func: tirx.PrimFunc) -> list[Any]:
    """The rule's, best first."""
    graph = extract(func)
    assert graph is not None
    return list(schedule_wgmma(Task(func, graph, SMALL), EVERY))


def error(choice: Scheduled, of: Any, folder: Path, *, late: bool) -> float:
    """The largest error of its kernels, run one behind the other."""
    memory = {n: guarded(a, is_output=n in of.outputs) for n, a in of.given.items()}
    memory |= {n: guarded(a, is_output=True) for n, a in workspaces(choice).items()}
    arrays = {n: inside for n, (_, inside) in memory.items()}
    maps = tensor_maps(choice.func.script(), arrays)
    *ahead, last = zip(all_built(choice, SMALL, only_text=True), launches(choice), strict=True)
    for kernel, shape in ahead:
        own = folder / kernel.name
        own.mkdir()
        emulate(kernel, *shape, arrays, own, late=late, backward=late)
    kernel, _ = last
    shape = choice.grid, choice.block
    emulate(kernel, *shape, arrays, folder, late=late, backward=late, maps=maps)
    assert all(is_intact(own) for own, _ in memory.values())
    (name,) = of.outputs
    return relative_difference(arrays[name].reshape(of.wanted[name].shape), of.wanted[name])


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("drawn", ["even", "one", "ends"])
@pytest.mark.parametrize("entry", CASES, ids=lambda entry: entry.name)
def test_rows_of_a_group_are_multiplied_side_by_side(
    entry: Case, drawn: str, tmp_path: Path, *, late: bool
) -> None:
    func = joined_function(entry, SMALL, schedule_wgmma)
    rows, groups = entry.inputs[2].shape[0], entry.inputs[1].shape[0]
    rng = np.random.default_rng(rows)
    ids = {
        "even": rng.integers(0, groups, rows),
        "one": np.full(rows, groups - 1),
        "ends": rng.choice([-3, 0, groups + 2], rows),  # nearest groups
    }[drawn]
    (name,) = [str(p.name) for p in func.params if str(p.ty.dtype) == "int64"]
    of = arguments(func, {name: ids.astype("int64")})
    found = choices(func)
    turns = [number for number, choice in enumerate(found) if "in turns" in choice.tile]
    for number in sorted({0, turns[0], turns[-1], len(found) - 1}):
        choice = found[number]()
        assert choice is not None
        folder = tmp_path / str(number)
        folder.mkdir()
        assert error(choice, of, folder, late=late) < 2e-3


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_rows_of_a_thread_may_take_several_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "_BITS", 2)  # of four rows that a thread has
    func = joined_function(CASES[0], SMALL, schedule_wgmma)
    choice = choices(func)[0]()
    assert choice is not None
    assert error(choice, arguments(func), tmp_path, late=True) < 2e-3


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("entry", GATED[:2], ids=lambda entry: entry.name)
def test_halves_of_columns_meet(entry: Case, tmp_path: Path, *, late: bool) -> None:
    func = joined_function(entry, SMALL, schedule_wgmma)
    of = arguments(func)
    found = choices(func)
    for number in (0, len(found) // 2, len(found) - 1):
        choice = found[number]()
        assert choice is not None
        folder = tmp_path / str(number)
        folder.mkdir()
        assert error(choice, of, folder, late=late) < 2e-3
