"""``Forced(weld=False)``: TVM's own groups of operators, more kernels and the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scheduled import relax_module
from tvm import relax
from tvm.relax import op

import tvm_tile
from tvm_tile import CompiledModel
from tvm_tile.stages.forced import Forced

pytest.importorskip("pyopencl")

ROWS, LENGTH = 24, 40
X = np.random.default_rng(0).normal(size=(ROWS, LENGTH)).astype("float32")


def scores(x: relax.Expr) -> relax.Expr:
    """A reduction with something before it, which stock fusion leaves alone, and behind it."""
    weights = op.nn.softmax(op.multiply(op.tanh(x), relax.const(0.5, "float32")))
    return op.add(weights, x)


def compiled(folder: Path, *, weld: bool) -> CompiledModel:
    options = Forced(weld=weld, cache=folder)
    return tvm_tile.compile(relax_module(scores, (X.shape,)), "emulated", options=options)


def test_unwelded_has_more_kernels_and_the_same_numbers(tmp_path: Path) -> None:
    # One cache for both, and each of them from it: neither finds what is the other's.
    models = [compiled(tmp_path, weld=weld) for weld in (True, False, True, False)]
    welded, unwelded, *again = models
    assert len(welded.report.kernels) < len(unwelded.report.kernels)
    assert [model.report.kernels for model in again] == [
        model.report.kernels for model in (welded, unwelded)
    ]
    assert not unwelded.report.decisions
    powers = np.exp(0.5 * np.tanh(X))
    wanted = powers / powers.sum(1, keepdims=True) + X
    for model in models:
        np.testing.assert_allclose(model(X), wanted, rtol=1e-5, atol=1e-6)


def test_only_an_unwelded_model_says_so(tmp_path: Path) -> None:
    assert "weld is off" in compiled(tmp_path, weld=False).explain("all")
    assert "weld is off" not in compiled(tmp_path, weld=True).explain("all")
