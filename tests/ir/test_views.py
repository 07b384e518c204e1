"""Views within a function: what is read through, and the order in which sums are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from cpu_build import CPU
from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract, extract_operator
from tvm_tile.schedule import Task, candidates
from tvm_tile.schedule.s_tir.normalize import NormalForm, inline_views, inlined, store_by_sums
from tvm_tile.schedule.tensor_cores.epilogue import fused_epilogue
from tvm_tile.tile.rules import MMA, WGMMA

H200 = find_device("nvidia/h200")
ROWS, COLUMNS, DEPTH = 48, 24, 16
View = Callable[[Any], Any]  # the sums -> what is stored


def stored(view: View, dtype: str = "float32") -> tirx.PrimFunc:
    """``view`` of a product of two matrices."""
    left = te.placeholder((ROWS, DEPTH), dtype, name="left")
    right = te.placeholder((COLUMNS, DEPTH), dtype, name="right")
    k = te.reduce_axis((0, DEPTH), "k")

    def element(i: Any, j: Any) -> Any:
        return te.sum(left[i, k].astype("float32") * right[j, k].astype("float32"), axis=k)

    return te.create_prim_func(
        [left, right, view(te.compute((ROWS, COLUMNS), element, name="sums"))]
    )


def by_parts(size: int) -> View:
    """Parts of so many columns, one behind the other: heads."""
    shape = (COLUMNS // size, ROWS, size)
    return lambda y: te.compute(shape, lambda h, i, d: y[i, h * size + d], name="out")


def by_strides(step: int) -> View:
    """Every so many columns, one behind the other."""
    shape = (step, ROWS, COLUMNS // step)
    return lambda y: te.compute(shape, lambda h, i, d: y[i, d * step + h], name="out")


def turned(y: Any) -> Any:
    return te.compute((COLUMNS, ROWS), lambda j, i: y[i, j] + 1, name="out")


def flat(y: Any) -> Any:
    def element(n: Any) -> Any:
        return y[tirx.floordiv(n, COLUMNS), tirx.floormod(n, COLUMNS)]

    return te.compute((ROWS * COLUMNS,), element, name="out")


def plain(y: Any) -> Any:
    return te.compute((ROWS, COLUMNS), lambda i, j: y[i, j] + 1, name="out")


def some(y: Any) -> Any:
    return te.compute((ROWS, 2, 4), lambda i, h, d: y[i, h * 4 + d], name="out")


def twice(y: Any) -> Any:
    return te.compute((2, ROWS, 2, 12), lambda _, i, h, d: y[i, h * 12 + d], name="out")


def normal(func: tirx.PrimFunc) -> tuple[Schedule, NormalForm]:
    sch, form = inlined(func, keep_producers=True)
    assert form is not None
    return sch, form


def extents(sch: Schedule) -> list[int]:
    """Of the output's loops."""
    return [int(v.dom.extent) for v in sch.get(sch.get_sblock("out")).iter_vars]


def values(func: tirx.PrimFunc) -> np.ndarray:
    """The output, of the CPU."""
    rng = np.random.default_rng(0)
    shapes = [tuple(int(e) for e in param.ty.shape) for param in func.params]
    tensors = [tvm.runtime.tensor(rng.standard_normal(s).astype("float32")) for s in shapes]
    tvm.compile(func.with_attr("global_symbol", "main"), CPU)["main"](*tensors)
    return tensors[-1].numpy()


class TestStoreBySums:
    @pytest.mark.parametrize("view", [by_parts(8), by_parts(3), by_strides(4), flat])
    def test_loops_are_the_sums(self, view: View) -> None:
        func = stored(view)
        sch, form = normal(func)
        store_by_sums(sch, form)
        assert extents(sch) == [ROWS, COLUMNS]
        after = sch.mod["main"].without_attr("global_symbol")
        assert np.array_equal(values(after), values(func))

    @pytest.mark.parametrize("view", [plain, turned])
    def test_loops_of_their_own_axes_stay(self, view: View) -> None:
        func = stored(view)
        sch, form = normal(func)
        store_by_sums(sch, form)
        tvm.ir.assert_structural_equal(sch.mod["main"], func)

    def test_loops_that_store_sums_twice_stay(self) -> None:
        sch, form = normal(stored(twice))
        before = extents(sch)
        store_by_sums(sch, form)
        assert extents(sch) == before


class TestKeepsNeighbours:
    """Only rows whose sums go side by side are stored by the rules for tensor cores."""

    @pytest.mark.parametrize(
        ("view", "keeps"),
        [
            (plain, True),
            (by_parts(8), True),
            (flat, True),
            (turned, False),
            (by_parts(1), False),
            (by_strides(4), False),
            (some, False),
            (twice, False),
        ],
        ids=["plain", "heads", "flat", "turned", "columns", "strides", "some", "twice"],
    )
    def test_rules(self, view: View, keeps: bool) -> None:
        func = stored(view, "float16")
        task = Task(func, extract(func), H200)
        assert bool(candidates(task, 1, (WGMMA, MMA))) == keeps

    @pytest.mark.parametrize(("view", "keeps"), [(by_parts(8), True), (by_strides(4), False)])
    def test_epilogues(self, view: View, keeps: bool) -> None:
        sch, form = normal(stored(view))
        store_by_sums(sch, form)
        reduction = sch.get(sch.get_sblock("sums"))
        operator = extract_operator(reduction)
        assert operator is not None
        epilogue = fused_epilogue(reduction, operator, sch.get(sch.get_sblock("out")))
        assert (epilogue is not None) == keeps


class TestInlineViews:
    def test_views_are_read_through_and_casts_stay(self) -> None:
        source = te.placeholder((2, DEPTH, ROWS), name="source")
        cast = te.placeholder((COLUMNS, DEPTH), "float16", name="cast")
        view = te.compute((ROWS, DEPTH), lambda i, k: source[1, k, i], name="view")
        wide = te.compute((COLUMNS, DEPTH), lambda j, k: cast[j, k].astype("float32"), name="wide")
        k = te.reduce_axis((0, DEPTH), "k")
        sums = te.compute(
            (ROWS, COLUMNS), lambda i, j: te.sum(view[i, k] * wide[j, k], axis=k), name="sums"
        )
        sch, form = normal(te.create_prim_func([source, cast, sums]))
        assert form.producers == ("view", "wide")
        assert inline_views(sch, form).producers == ("wide",)
        operator = extract_operator(sch.get(sch.get_sblock("sums")))
        assert operator is not None
        assert {read.tensor.name for read in operator.reads} == {"source", "wide"}
