"""Clamped places: constants are added behind extrema, and the places stay the same."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.script import tirx as T

from tvm_tile.build.exact.integer_extrema import add_behind_extrema
from tvm_tile.graph.expression import substituted


@T.prim_func(private=True, s_tir=True)
def PLACES(b: T.Buffer((20, 4), "int32")) -> None:
    for i in range(20):
        b[i, 0] = T.max(T.min(i - 5, 4), 0)
        b[i, 1] = T.max(i - 1, 0)
        b[i, 2] = T.min(i + 3, 7)
        b[i, 3] = T.max(T.min(i * 3, 11) - 2, 1)


def places(func: tirx.PrimFunc) -> list[Any]:
    """What is stored, and the loop's variable last."""
    found: list[Any] = []
    kinds = [
        (tirx.BufferStore, lambda store: found.append(store.value)),
        (tirx.For, lambda loop: found.append(loop.loop_var)),
    ]
    tvm_ffi.structural_walk(func.body, kinds, order="post")
    return found


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Any, Any, Any, Any]]:
    """Each place before and after, each with its loop's variable."""
    changed = add_behind_extrema(tvm.IRModule({"main": PLACES}))["main"]
    *before, i = places(PLACES)
    *after, j = places(changed)
    return [(old, i, new, j) for old, new in zip(before, after, strict=True)]


def test_no_constant_is_added_before_an_extremum(pairs: Any) -> None:
    for _, _, place, _ in pairs:
        extrema: list[Any] = []
        kinds = [(kind, extrema.append) for kind in (tirx.Max, tirx.Min)]
        tvm_ffi.structural_walk(place, kinds, order="pre")
        assert extrema
        assert not any(isinstance(node.a, tirx.Add | tirx.Sub) for node in extrema)


def test_places_stay_the_same(pairs: Any) -> None:
    simplify = sym.Analyzer().simplify
    for before, i, after, j in pairs:
        for value in range(-12, 20):
            number = tirx.IntImm("int32", value)
            old, new = substituted(before, {i: number}), substituted(after, {j: number})
            assert int(simplify(old)) == int(simplify(new))
