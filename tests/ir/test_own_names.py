"""Buffers of TensorIR functions get names of their own, the same numbers come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from scheduled import relax_module
from tvm import relax, te, tirx

from tvm_tile.graph.own_names import buffers_of, has_own_names, with_own_names
from tvm_tile.passes.sequence import stock_fusion
from tvm_tile.schedule import schedule


def with_twins() -> tirx.PrimFunc:
    """Computes ``((x - y) * 2) + (x - y)``: two parameters and two results of one name each."""
    x, y = (te.placeholder((5, 7), "float32", name="same") for _ in range(2))
    difference = te.compute((5, 7), lambda *i: x(*i) - y(*i), name="twin")
    double = te.compute((5, 7), lambda *i: difference(*i) * 2, name="twin")
    total = te.compute((5, 7), lambda *i: double(*i) + difference(*i), name="total")
    return te.create_prim_func([x, y, total])


def test_the_first_of_a_name_keeps_it() -> None:
    func = with_own_names(with_twins())
    names = [str(buffer.name) for buffer in buffers_of(func)]
    assert names == ["same", "same_", "total", "twin", "twin_"]
    assert with_own_names(func).same_as(func)


def test_it_computes_the_same() -> None:
    given = np.random.default_rng(0).standard_normal((2, 5, 7)).astype("float32")
    x, y = given
    results = []
    for func in (with_twins(), with_own_names(with_twins())):
        arrays = [tvm.runtime.tensor(array) for array in (*given, np.zeros_like(x))]
        tvm.compile(func, "c")(*arrays)
        results.append(arrays[-1].numpy())
    assert np.array_equal(*results)
    np.testing.assert_allclose(results[1], (x - y) * 3, rtol=1e-5)


def test_a_function_with_twins_is_scheduled() -> None:
    func = with_twins()
    assert not has_own_names(func)
    (found,) = schedule(func, "nvidia/h200")
    assert found.rule.name == "elementwise"


def test_variables_of_one_name_become_buffers_of_two() -> None:
    def body(x: Any) -> Any:
        made = [relax.op.exp(x), relax.op.sigmoid(x)]
        return relax.op.matmul(*made)

    mod = relax_module(body, ((4, 4),))
    block = mod["main"].body.blocks[0]
    twins = [relax.DataflowVar("twin", b.var.ty) for b in block.bindings]
    assert len(twins) > 1
    passes = [relax.transform.LegalizeOps(), *stock_fusion()]
    after = tvm.transform.Sequential(passes)(mod)
    funcs = [func for func in after.functions.values() if isinstance(func, tirx.PrimFunc)]
    assert funcs
    assert all(map(has_own_names, funcs))
