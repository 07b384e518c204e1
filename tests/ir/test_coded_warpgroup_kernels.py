"""Products of many vectors with matrices of codes: kernels' texts on the CPU, and machine code."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import emulated
import numpy as np
import pytest
from coded_products import A100, H200, Case, choices
from emulated import all_built, arguments, built, guarded, is_intact, launches, workspaces
from kernels import drawn, relative_difference
from warp_emulator import COMPILER, emulate, tensor_maps

from tvm_tile.build.cubin import resources_of
from tvm_tile.device import Device
from tvm_tile.graph.tensor_format import E2M1, E8M0, Integers
from tvm_tile.schedule import Scheduled
from tvm_tile.schedule.rule import Choice
from tvm_tile.tile.rules import CODED_WARPGROUP

pytestmark = pytest.mark.bank(10)

TOLERANCES = {"float16": 2e-3, "bfloat16": 1e-2}
UNSIGNED = {bits: Integers(bits, is_signed=False) for bits in (2, 3, 4, 8)}
SIGNED = {bits: Integers(bits, is_signed=True) for bits in (2, 4, 8)}
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

CASES = [
    Case(33, 72, 512, UNSIGNED[4], zero="uint8"),
    Case(40, 128, 256, group=64, zero="int8"),
    Case(64, 200, 128, group=32),
    Case(24, 64, 384, SIGNED[8], group=384),
    Case(50, 130, 256, UNSIGNED[8], group=64, zero="uint8"),
    Case(17, 64, 512, UNSIGNED[2], group=256),
    Case(31, 64, 256, SIGNED[2], group=64, zero="int8"),
    Case(24, 64, 384, group=128, zero="int8", zero_group=96),
    Case(24, 64, 256, group=64, rows_group=4),
    Case(24, 64, 256, skipped=8, behind=24),
    Case(24, 64, 256, group=64, zero="int8", dtype="bfloat16"),
    Case(24, 64, 256, UNSIGNED[4], dtype="bfloat16", zero="uint8"),
    Case(24, 64, 256, SIGNED[2], dtype="bfloat16"),
    Case(24, 64, 256, scale="float32"),
    Case(24, 64, 256, scale="float32", dtype="bfloat16"),
    Case(24, 64, 256, scale="int8"),
    Case(300, 64, 128),
]


def emulated_error(
    func: Any,
    item: Scheduled,
    folder: Path,
    *,
    late: bool,
    known: dict[str, Any] | None = None,
    device: Device = H200,
) -> float:
    """The largest error of a kernel, whose text runs on the CPU, behind others that list and copy
    vectors, if any; infinite where one wrote around its outputs."""
    of = arguments(func, known)
    memory = {n: guarded(a, is_output=n in of.outputs) for n, a in of.given.items()}
    between = {n: guarded(a, is_output=True) for n, a in workspaces(item).items()}
    memory |= between
    arrays = {n: inside for n, (_, inside) in memory.items()}
    order = {"late": late, "backward": not late}
    *ahead, kernel = all_built(item, device, only_text=True)
    for earlier, shape in zip(ahead, launches(item), strict=False):
        own = folder / earlier.name
        own.mkdir()
        emulate(earlier, *shape, arrays, own, **order)
    maps = tensor_maps(item.func.script(), arrays)
    order["cluster"] = cluster_of(item.tile)
    emulate(kernel, item.grid, item.block, arrays, folder, **order, maps=maps)
    if not all(is_intact(memory[n][0]) for n in (*of.outputs, *between)):
        return math.inf
    found = {n: arrays[n].reshape(of.wanted[n].shape) for n in of.outputs}
    return max(relative_difference(found[n], of.wanted[n]) for n in found)


def cluster_of(tile: str) -> int:
    """Blocks of a cluster."""
    found = re.search(r"(\d+) blocks a sum", tile)
    return int(found[1]) if found else 1


def offered(case: Case) -> tuple[Any, list[Choice]]:
    """The function, and this kernel's tiles for it."""
    func, found = choices(case)
    return func, [choice for choice in found if choice.rule == CODED_WARPGROUP]


@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels_compute_what_the_function_does(case: Case, tmp_path: Path) -> None:
    """Once with copies and products as late as may be, once with a cluster and all at once."""
    func, own = offered(case)
    alone = next(c for c in own[len(own) // 2 :] if cluster_of(c.tile) == 1)
    shared = next((c for c in own if cluster_of(c.tile) > 1), own[0])
    for choice, late in ((alone, True), (shared, False)):
        folder = tmp_path / str(late)
        folder.mkdir()
        item = choice()
        assert item is not None
        error = emulated_error(func, item, folder, late=late)
        assert error < TOLERANCES[case.dtype], choice.tile


# Few multiprocessors, so that blocks have several tiles, some of them of no vectors.
SMALL = replace(H200, multi_processor_count=2)


@needs_compiler
@pytest.mark.parametrize(
    ("case", "ids"),
    [
        (Case(0, 192, 256, zero="int8", matrices=5), [2] * 20 + [0] * 19 + [4]),
        (Case(0, 72, 512, group=64, dtype="bfloat16", matrices=4), [3, 0, 0, 2] * 17),
        (Case(0, 64, 256, SIGNED[8], group=256, rows_group=64, matrices=3), [1] * 20),
        (Case(0, 136, 256, UNSIGNED[4], zero="uint8", matrices=9), list(range(-3, 15))),
    ],
    ids=str,
)
def test_vectors_of_one_matrix_are_multiplied_side_by_side(
    case: Case, ids: list[int], tmp_path: Path
) -> None:
    case = replace(case, vectors=len(ids))
    func, found = choices(case, SMALL)
    own = [choice for choice in found if choice.rule == CODED_WARPGROUP]
    for number, choice in enumerate((own[0], own[len(own) // 2])):
        folder = tmp_path / str(number)
        folder.mkdir()
        item = choice()
        assert item is not None
        given = {"late": number % 2 > 0, "known": {"ids": np.array(ids)}, "device": SMALL}
        assert emulated_error(func, item, folder, **given) < TOLERANCES[case.dtype], choice.tile


@needs_compiler
def test_scales_that_are_powers_of_two_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def near_one(rng: Any, size: int, dtype: Any) -> Any:
        is_byte = np.dtype(dtype) == np.uint8
        return rng.integers(120, 130, size, dtype) if is_byte else drawn(rng, size, dtype)

    monkeypatch.setattr(emulated, "drawn", near_one)
    func, own = offered(Case(24, 64, 256, group=64, scale=E8M0))
    item = own[0]()
    assert item is not None
    assert emulated_error(func, item, tmp_path, late=True) < TOLERANCES["float16"]


@pytest.mark.parametrize(
    "case",
    [
        Case(33, 64, 512),
        Case(128, 4096, 4096, zero="int8"),
        Case(512, 4096, 4096, SIGNED[8]),
        Case(512, 4096, 4096, UNSIGNED[4], dtype="bfloat16", zero="uint8"),
    ],
    ids=str,
)
def test_tiles_become_machine_code_that_spills_nothing(case: Case) -> None:
    _, own = offered(case)
    for choice in (own[0], own[-1]):
        item = choice()
        assert item is not None
        kernel = built(item, H200)
        taken = resources_of(kernel.binary)
        assert taken.stack == 0, choice.tile
        assert taken.registers * item.block <= 65536, choice.tile


@pytest.mark.parametrize(
    "case",
    [
        Case(16, 64, 512),  # few
        Case(64, 64, 512, group=16),  # a step has two scales
        Case(64, 64, 480, group=96),  # no whole chunks
        Case(64, 64, 512, UNSIGNED[3]),
        Case(64, 64, 512, E2M1, group=32),
        Case(64, 64, 512, SIGNED[8], dtype="bfloat16"),
        Case(64, 64, 512, zero="int32"),
        Case(64, 64, 512, skipped=1),
    ],
    ids=str,
)
def test_others_are_left_alone(case: Case) -> None:
    assert not offered(case)[1]


def test_devices_without_warpgroups_are_left_alone() -> None:
    assert not choices(Case(64, 64, 512), A100)[1]
