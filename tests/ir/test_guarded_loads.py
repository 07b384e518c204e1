"""What is not chosen is not read: a load stays behind every condition that guards it."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.script import tirx as T

from tvm_tile.build.exact.guarded_loads import GuardLoads

IF = ir.Op.get("prim.if_then_else")


def choices(body: object) -> tuple[int, int]:
    """How many choices are branches, and how many read both values."""
    branches: list[ir.Call] = []
    selects: list[tirx.Select] = []

    def note(call: ir.Call) -> None:
        if call.op.same_as(IF):
            branches.append(call)

    kinds = [(ir.Call, note), (tirx.Select, selects.append)]
    tvm_ffi.structural_walk(body, kinds, order="pre")
    return len(branches), len(selects)


def test_load_behind_two_conditions_waits_for_both() -> None:
    @T.prim_func(private=True, s_tir=True)
    def func(a: T.Buffer((4,), "float32"), b: T.Buffer((9, 9), "float32")) -> None:
        for i, j in T.grid(9, 9):
            b[i, j] = T.Select(
                i == 4, T.if_then_else(j % 3 == 0, a[i - 4], T.float32(0)), T.float32(0)
            )

    found = GuardLoads()(tvm.IRModule({"main": func}))["main"]
    assert (choices(func.body), choices(found.body)) == ((1, 1), (2, 0))


def test_choice_between_numbers_stays() -> None:
    @T.prim_func(private=True, s_tir=True)
    def func(b: T.Buffer((9,), "float32")) -> None:
        for i in range(9):
            b[i] = T.Select(i == 4, T.float32(1), T.float32(0))

    found = GuardLoads()(tvm.IRModule({"main": func}))["main"]
    assert choices(found.body) == (0, 1)
