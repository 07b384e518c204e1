"""Products with matrices of codes: kernels' texts on the CPU, next to the function as it is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from coded_products import A100, H200, Case, assert_builds, choices
from emulated import arguments, emulated_error, idle_barriers
from warp_emulator import COMPILER

from tvm_tile.build.early.dependent_launches import asked_ahead
from tvm_tile.device import Device
from tvm_tile.graph.extract import extract
from tvm_tile.graph.tensor_format import E2M1, E4M3, E8M0, Entries, Integers
from tvm_tile.schedule.rule import Task
from tvm_tile.schedule.s_tir.matvec import schedule_matvec
from tvm_tile.tile.rules import CODED

pytestmark = pytest.mark.bank(6)

TOLERANCES = {"float16": 2e-3, "bfloat16": 1e-2}
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

CASES = [
    Case(1, 64, 512),
    Case(1, 64, 512, Integers(4, is_signed=False), zero="uint8"),
    Case(3, 32, 256, zero="int8"),
    Case(8, 32, 256, group=64),
    Case(9, 16, 128, group=32),
    Case(16, 32, 512, Integers(8, is_signed=True), group=512),
    Case(2, 32, 512, Integers(8, is_signed=False), group=64, zero="uint8"),
    Case(1, 32, 1024, Integers(2, is_signed=False), group=256),
    Case(31, 16, 512, Integers(2, is_signed=True), group=64),
    Case(5, 48, 384, group=384),
    Case(2, 16, 384, group=64, zero="int8", zero_group=96),
    Case(2, 32, 256, group=64, rows_group=4, zero="int8"),
    Case(2, 32, 256, group=256, rows_group=32),
    Case(3, 32, 256, skipped=8, behind=24),
    Case(4, 32, 256, zero="int8", dtype="bfloat16"),
    Case(4, 32, 256, scale="int8"),
    Case(9, 16, 256, E2M1, 64),
    Case(2, 32, 512, Integers(8, is_signed=True), scales=0),
    Case(2, 32, 512, Integers(8, is_signed=True), dtype="bfloat16", scales=0),
    Case(2, 32, 512, Integers(4, is_signed=False), zero="uint8", scales=0),
    Case(2, 32, 256, E2M1, 32, scale="float32", scales=2),
    Case(2, 32, 256, Entries(4), 64, scale="float32", dtype="bfloat16", scales=2),
    Case(3, 48, 1024, E2M1, 1024, dtype="bfloat16"),
    Case(1, 64, 512, gated=True),
    Case(9, 32, 256, zero="int8", rows_group=16, gated=True),
    Case(2, 48, 256, dtype="bfloat16", gated=True),
    Case(1, 64, 512, normed=True),
    Case(1, 64, 2048, dtype="bfloat16", gated=True, normed=True),
    Case(3, 32, 384, group=384, zero="int8", normed=True),
]


@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels_compute_what_the_function_does(case: Case, tmp_path: Path) -> None:
    func, offered = choices(case)
    found = [choice for choice in offered if choice.rule == CODED]
    assert found
    of = arguments(func)
    # The best tile, the last one, or one in between: of each case another.
    place = (0, len(found) // 2, len(found) - 1)[CASES.index(case) % 3]
    scheduled = found[place]()
    assert scheduled is not None
    for late in (False, True):
        error = emulated_error(scheduled, of, H200, tmp_path, late=late)
        assert error < TOLERANCES[case.dtype], found[place].tile


# Numbers of matrices, and the numbers of each vector's own.
ROUTES = {
    "even": (8, list(range(8)) * 2),
    "some met by none": (9, [7, 0, 7, 3, 3, 3, 0, 7, 3, 3, 8]),
    "all of one": (4, [2] * 37),
    "one vector": (4, [3]),
    "without ends": (4, [-1, 3, 4, 0, 1 << 40]),
}
STACKS = [
    Case(0, 64, 512),
    Case(0, 32, 256, zero="int8", rows_group=16),
    Case(0, 32, 256, rows_group=16, gated=True),
    Case(0, 48, 256, E2M1, 32, scale="float32", dtype="bfloat16"),
    Case(0, 32, 256, E4M3, 128, rows_group=16, scale="float32", dtype="bfloat16", scales=2),
    Case(0, 32, 256, Integers(8, is_signed=True), group=256, dtype="bfloat16", gated=True),
]


@needs_compiler
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("case", STACKS, ids=str)
def test_vectors_read_their_own_matrices(case: Case, route: str, tmp_path: Path) -> None:
    matrices, ids = ROUTES[route]
    func, offered = choices(replace(case, vectors=len(ids), matrices=matrices))
    known = {"ids": np.array(ids)}
    if case.code == E4M3:  # of which two are no numbers
        codes = np.random.default_rng(0).integers(0, 0x7F, (matrices, case.rows, case.depth))
        known[str(func.params[0].name)] = codes.astype(np.uint8)
    of = arguments(func, known)
    found = [choice for choice in reversed(offered) if choice.rule == CODED]
    slots = {choice.tile.split(", ")[0]: choice for choice in found}
    assert len(slots) > 1 or len(ids) == 1
    for number, choice in enumerate(slots.values()):
        scheduled = choice()
        assert scheduled is not None
        error = emulated_error(scheduled, of, H200, tmp_path, late=number % 2 > 0)
        assert error < TOLERANCES[case.dtype], choice.tile


SCALED = [
    Case(2, 32, 512, group=16),
    Case(3, 32, 512, group=32, zero="int8", gated=True),
    Case(9, 32, 512, E2M1, 32, scale=E8M0, dtype="bfloat16"),
    Case(1, 32, 512, Entries(4), 64, dtype="bfloat16"),
    Case(1, 32, 512, Integers(8, is_signed=True), group=32, scale="int8"),
    Case(2, 32, 512, group=64, scale="float16", zero="int8", zero_group=32),
]


@needs_compiler
@pytest.mark.parametrize("case", SCALED, ids=str)
def test_weights_of_short_groups_are_scaled_by_themselves(case: Case, tmp_path: Path) -> None:
    func, offered = choices(case)
    found = [choice for choice in offered if choice.tile.endswith("scaled weights")]
    assert found
    known = {}
    if case.scale == E8M0:
        shape = [int(extent) for extent in func.params[1].ty.shape]
        powers = np.random.default_rng(0).integers(120, 130, shape)
        known[str(func.params[1].name)] = powers.astype(np.uint8)
    scheduled = found[0]()
    assert scheduled is not None
    of = arguments(func, known)
    assert emulated_error(scheduled, of, H200, tmp_path, late=True) < TOLERANCES[case.dtype]


def test_numbers_are_not_made_anew_for_each_element() -> None:
    """Of matrices that are decoded in the function, none is read by the rule for numbers."""
    func, _ = choices(Case(8, 64, 512, matrices=5))
    graph = extract(func)
    assert graph is not None
    assert not schedule_matvec(Task(func, graph, H200), 10)


def test_codes_that_data_tell_are_not_asked_for_ahead() -> None:
    _, offered = choices(Case(8, 64, 512, matrices=5))
    scheduled = offered[0]()
    assert scheduled is not None
    assert asked_ahead(scheduled.func) is None


@needs_compiler
def test_vectors_that_blocks_make_wait_for_all_threads(tmp_path: Path) -> None:
    func, offered = choices(Case(2, 64, 2048, normed=True))
    (choice,) = [choice for choice in offered if choice.rule == CODED][:1]
    scheduled = choice()
    assert scheduled is not None
    barrier = re.compile(r"tvm_builtin_cuda_cta_sync\(\);")
    idle, count = idle_barriers(scheduled, arguments(func), H200, tmp_path, barrier)
    assert not idle
    assert count == 4  # of each vector's sum, of the vectors, of all parts


@pytest.mark.parametrize("normed", [False, True])
def test_codes_and_nothing_else_are_asked_for_before_the_kernel_waits(normed: bool) -> None:
    func, offered = choices(Case(1, 64, 512, normed=normed))
    scheduled = offered[0]()
    assert scheduled is not None
    codes, scales = (str(param.name) for param in func.params[:2])
    assert asked_ahead(scheduled.func) == {codes, scales}
    (earlier, *_) = choices(Case(1, 64, 512, normed=normed), A100)[1]
    older = earlier()
    assert older is not None
    assert asked_ahead(older.func) is None


@pytest.mark.parametrize("device", [A100, H200], ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_kernels_build(dtype: str, device: Device) -> None:
    assert_builds(Case(4, 64, 512, zero="int8", dtype=dtype), device)


@pytest.mark.parametrize(
    "case",
    [
        Case(33, 64, 512),
        Case(1, 60, 512),
        Case(1, 64, 512, group=4),
        Case(1, 64, 512, group=16, scale="float32"),
        Case(1, 64, 512, Integers(3, is_signed=False)),
        Case(1, 64, 512, Integers(8, is_signed=False), dtype="bfloat16"),
        Case(1, 64, 512, Integers(8, is_signed=True), zero="int8", dtype="bfloat16"),
        Case(1, 64, 512, zero="uint8", dtype="bfloat16"),
        Case(1, 64, 512, zero="int32"),
        Case(1, 64, 512, skipped=1),
        Case(2, 64, 512, behind=4),
        Case(1, 64, 512, zero="int16"),
        Case(1, 64, 512, scales=2),
        Case(1, 64, 512, skipped=8, normed=True),
        Case(9, 64, 512, normed=True),
        Case(9, 60, 512, matrices=3),
        Case(9, 64, 512, scales=2, matrices=3),
    ],
    ids=str,
)
def test_others_are_left_alone(case: Case) -> None:
    assert CODED not in [choice.rule for choice in choices(case)[1]]
