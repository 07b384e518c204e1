"""Attention that appends rows to its caches, without a GPU: what its CUDA text computes and writes,
and its races."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from append_cases import CASES, AppendCase, appending_function
from emulated import arguments, emulated_error, idle_barriers
from ir.test_decode_kernels import A100, BARRIER, H200
from joined import tile_of
from tvm import tirx
from warp_emulator import COMPILER

from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Choice, Task
from tvm_tile.schedule.decode import schedule_decode

pytestmark = [pytest.mark.bank(4), pytest.mark.skipif(COMPILER is None, reason="needs g++")]

LIMITS = {"float32": 1e-5, "float16": 8e-3}
EMULATED = tuple(case for case in CASES if case.dtype in LIMITS)


def places_of(case: AppendCase) -> list[list[int]]:
    """Where rows are appended: at both ends, within, across tiles' borders, twice at one place, and
    outside."""
    keys, rows = case.keys, range(case.rows)
    starts = (0, keys - case.rows, keys // 2, 31, 32 - case.rows // 2, -case.rows)
    runs = [[start + row for row in rows] for start in starts]
    same = [[keys - 1 - row % 2 for row in rows], [keys + row // 2 * 3 for row in rows]]
    return [*runs, *same, [keys - 1 + row for row in rows], [-keys - 1 + row for row in rows]]


def positions(func: tirx.PrimFunc, places: list[int], keys: int) -> dict[str, Any]:
    """Positions of new rows, and which row stands in for which, by the parameters' names."""
    shape = (len(places),)
    names = [
        str(param.name)
        for param in func.params
        if str(param.ty.dtype) == "int64" and tuple(map(int, param.ty.shape)) == shape
    ]
    own = [place + keys if place < 0 else place for place in places]
    inside = [0 <= place < keys for place in own]
    source = [
        max(j if inside[j] and (own[j] == place or not inside[k]) else -1 for j in range(len(own)))
        for k, place in enumerate(own)
    ]
    return dict(zip(names, (np.array(places), np.array(source)), strict=False))


def choices_of(func: tirx.PrimFunc, device: Any = H200) -> list[Choice]:
    graph = extract(func)
    assert graph is not None
    return list(schedule_decode(Task(func, graph, device), 1000))


@pytest.mark.parametrize("case", EMULATED, ids=str)
def test_the_text_computes_what_the_cpu_does(case: AppendCase, tmp_path: Path) -> None:
    """The first choice, with copies that come late, others with early ones; caches, too."""
    func = appending_function(case, H200)
    found = choices_of(func)
    runs = places_of(case)
    first = EMULATED.index(case) % 3  # the emulator takes its time
    for number, places in list(enumerate(runs))[first::3]:
        of = arguments(func, positions(func, places, case.keys))
        assert len(of.in_place) == 2 < len(of.outputs)
        choice = found[0 if number % 2 == 0 else (number * 7 + 3) % len(found)]
        folder = tmp_path / str(number)
        folder.mkdir()
        late, cluster = number % 4 < 2, tile_of(choice).splits
        error = emulated_error(choice(), of, H200, folder, late=late, cluster=cluster)
        assert error < LIMITS[case.dtype], (places, choice.tile)


def test_the_text_for_devices_without_clusters(tmp_path: Path) -> None:
    case = EMULATED[0]
    func = appending_function(case, A100)
    of = arguments(func, positions(func, [70], case.keys))
    for number in (0, -1):
        folder = tmp_path / str(number)
        folder.mkdir()
        error = emulated_error(choices_of(func, A100)[number](), of, A100, folder, late=True)
        assert error < 1e-5


@pytest.mark.parametrize("case", EMULATED[1:3], ids=str)
def test_each_barrier_is_needed(case: AppendCase, tmp_path: Path) -> None:
    func = appending_function(case, H200)
    of = arguments(func, positions(func, [40 + row for row in range(case.rows)], case.keys))
    choice = next(own for own in choices_of(func) if tile_of(own).workers > 1)
    cluster = tile_of(choice).splits
    idle, count = idle_barriers(choice(), of, H200, tmp_path, BARRIER, cluster=cluster)
    assert count > 3
    assert [entry for entry in idle if "cluster" not in entry] == []
