"""Clamped padding: the same values, and reads that stay inside without a test."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from cpu_build import CPU
from kernel_cases import CASES
from kernels import Case, prim_functions
from tvm import tirx
from tvm.s_tir import SBlockRealize

from tvm_tile.device import Device, find_device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import RULES, Task, candidates
from tvm_tile.schedule.s_tir.padding import clamp_padding
from tvm_tile.schedule.s_tir.staged import draft
from tvm_tile.tile.construct import construct_contraction

pytestmark = pytest.mark.bank(6)

PADDED = [
    entry
    for entry in CASES
    if entry.name.startswith(("conv", "depthwise", "max_pool", "avg_pool"))
    and math.prod(entry.inputs[0].shape) < 25_000
]
_BINARY: dict[type, Callable[[int, int], int]] = {
    tirx.Add: lambda a, b: a + b,
    tirx.Sub: lambda a, b: a - b,
    tirx.Mul: lambda a, b: a * b,
    tirx.FloorDiv: lambda a, b: a // b,
    tirx.FloorMod: lambda a, b: a % b,
    tirx.Min: min,
    tirx.Max: max,
}
_COMPARE: dict[type, Callable[[int, int], bool]] = {
    tirx.LT: lambda a, b: a < b,
    tirx.LE: lambda a, b: a <= b,
    tirx.And: lambda a, b: a and b,
}


def evaluate(expr: Any, values: dict[str, int]) -> int:
    """An index or a guard for given loop variables."""
    if isinstance(expr, tirx.Var):
        return values[str(expr.name)]
    if isinstance(expr, tirx.IntImm):
        return int(expr.value)
    operate = (_BINARY | _COMPARE)[type(expr)]
    return operate(evaluate(expr.a, values), evaluate(expr.b, values))


def places(func: tirx.PrimFunc, name: str) -> tuple[SBlockRealize, list[Any]]:
    """A block, and the loops around it."""
    found: list[tuple[SBlockRealize, list[Any]]] = []

    def walk(node: Any, around: list[Any]) -> None:
        if isinstance(node, tirx.For):
            walk(node.body, [*around, node])
        elif isinstance(node, tirx.SeqStmt):
            for part in node.seq:
                walk(part, around)
        elif isinstance(node, SBlockRealize):
            if node.block.name_hint == name:
                found.append((node, around))
            walk(node.block.body, around)

    walk(func.body, [])
    return found[0]


def readers(func: tirx.PrimFunc) -> list[str]:
    """Blocks that read for a staging copy of padding: they copy a parameter to registers."""
    blocks: list[SBlockRealize] = []
    tvm_ffi.structural_walk(func.body, (SBlockRealize, blocks.append), order="pre")
    return [
        str(realize.block.name_hint)
        for realize in blocks
        if len(realize.block.reads) == 1
        and any(param.same_as(realize.block.reads[0].source) for param in func.params)
        and any(isinstance(v, (tirx.Max, tirx.Min)) for v in _parts(realize))
    ]


def _parts(realize: SBlockRealize) -> list[Any]:
    found: list[Any] = []
    for value in realize.iter_values:
        tvm_ffi.structural_walk(value, (tirx.Max, found.append), order="pre")
    return found


def scheduled(entry: Case, device: Device) -> list[tirx.PrimFunc]:
    """The first choice of each rule for each function of a case."""
    done = []
    for func in prim_functions(entry, device).values():
        graph = extract(func)
        assert graph is not None
        asked = Task(func, graph, device)
        found = (own for finder in RULES for own in candidates(asked, 1, (finder.rule,)))
        done += [own.func for own in found]
    return done


@pytest.mark.parametrize("device", ["nvidia/h200", "emulated"])
@pytest.mark.parametrize("entry", PADDED, ids=[entry.name for entry in PADDED])
def test_reads_stay_inside(entry: Case, device: str) -> None:
    """By brute force, for every place of every thread that reads."""
    for func in scheduled(entry, find_device(device)):
        check_reads(func)


def check_reads(func: tirx.PrimFunc) -> None:
    """Every block that reads for a copy reads inside its tensor, wherever it runs."""
    for name in readers(func):
        realize, loops = places(func, name)
        extents = [int(v.dom.extent) for v in realize.block.iter_vars]
        names = [str(loop.loop_var.name) for loop in loops]
        assert len(set(names)) == len(names)
        ranges = [_sample(int(loop.extent)) for loop in loops]
        for point in itertools.product(*ranges):
            values = dict(zip(names, point, strict=True))
            if not evaluate(realize.predicate, values):
                continue
            place = [evaluate(value, values) for value in realize.iter_values]
            assert all(0 <= p < e for p, e in zip(place, extents, strict=True)), place


def test_reads_of_images_that_a_block_overhangs_are_guarded() -> None:
    """Images are no clamped dimension: 37 of them in blocks of several leave a rest."""
    entry = next(entry for entry in PADDED if entry.name == "conv_of_many_images")
    device = find_device("nvidia/h200")
    (func,) = prim_functions(entry, device).values()
    graph = extract(func)
    assert graph is not None
    found = draft(Task(func, graph, device))
    assert found is not None
    plans = construct_contraction(found.operator, device, 400)
    several = [plan for plan in plans if plan.spatial[0][0] not in (1, 37)][:6]
    assert several
    for plan in several:
        done = found.choices([plan], "contraction")[0]()
        assert done is not None
        check_reads(done.func)


def _sample(extent: int) -> list[int]:
    """All of a short loop; of a long one the ends, where places go wrong, and some between."""
    if extent <= 12:
        return list(range(extent))
    return sorted({*range(3), *range(extent - 5, extent), *range(3, extent, extent // 4)})


def test_the_kernels_read_so_at_all() -> None:
    device = find_device("nvidia/h200")
    found = {entry.name: [readers(f) for f in scheduled(entry, device)] for entry in PADDED}
    for name in ("conv3x3", "conv_uneven", "conv_bias_relu"):
        assert any(found[name]), name


@pytest.mark.parametrize("entry", PADDED[::3], ids=[entry.name for entry in PADDED[::3]])
def test_clamping_changes_no_value(entry: Case) -> None:
    for func in prim_functions(entry, find_device("nvidia/h200")).values():
        clamped = clamp_padding(func)
        rng = np.random.default_rng(5)
        arrays = [
            rng.standard_normal([int(e) for e in p.ty.shape]).astype(str(p.ty.dtype))
            for p in func.params
        ]
        results = []
        for version in (func, clamped):
            own = [tvm.runtime.tensor(array) for array in arrays]
            tvm.compile(version, CPU)(*own)
            results.append([tensor.numpy() for tensor in own])
        for before, after in zip(*results, strict=True):
            np.testing.assert_array_equal(before, after)
