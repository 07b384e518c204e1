"""Sums that end within a step: their copies are filled with zeros, the sums test nothing."""

from __future__ import annotations

import pytest
import tvm_ffi
from kernel_cases import case, mm
from kernels import Case, prim_functions
from tvm import ir, tirx
from tvm.s_tir import SBlockRealize

from tvm_tile.device import find_device
from tvm_tile.schedule import schedule

H200 = find_device("nvidia/h200")
IF = ir.Op.get("prim.if_then_else")
UNEVEN = (
    case("odd_rows", "contraction", mm("NN"), (134, 1019), (1019, 131)),
    case("vectors_over_the_end", "contraction", mm("NN"), (134, 1028), (1028, 132)),
    case("whole", "contraction", mm("NN"), (2048, 509), (509, 2048)),
)
EVEN = case("even", "contraction", mm("NN"), (2048, 512), (512, 2048))


def sums_and_copies(entry: Case) -> tuple[list[SBlockRealize], list[SBlockRealize]]:
    (func,) = prim_functions(entry, H200).values()
    (scheduled,) = schedule(func, H200)
    found: list[SBlockRealize] = []
    tvm_ffi.structural_walk(scheduled.func.body, (SBlockRealize, found.append), order="pre")
    sums = [r for r in found if str(r.block.name_hint) in ("matmul_update", "matmul_rf_update")]
    copies = [r for r in found if str(r.block.name_hint).endswith("_shared")]
    return sums[:1], copies


def has_zeros(copy: SBlockRealize) -> bool:
    calls: list[ir.Call] = []
    chosen: list[tirx.Select] = []
    kinds = [(ir.Call, calls.append), (tirx.Select, chosen.append)]
    tvm_ffi.structural_walk(copy.block.body, kinds, order="pre")
    return bool(chosen) or any(call.op.same_as(IF) for call in calls)


@pytest.mark.parametrize("entry", UNEVEN, ids=[entry.name for entry in UNEVEN])
def test_zeros_instead_of_tests(entry: Case) -> None:
    (total,), copies = sums_and_copies(entry)
    assert isinstance(total.predicate, tirx.IntImm)
    assert len(copies) == 2
    assert all(map(has_zeros, copies))


def test_a_sum_of_whole_steps_stays_as_it_is() -> None:
    (total,), copies = sums_and_copies(EVEN)
    assert isinstance(total.predicate, tirx.IntImm)
    assert not any(map(has_zeros, copies))
