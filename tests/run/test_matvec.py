"""Products with few vectors, of any shape and in any of the model's tiles, against NumPy."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_bodies import case, mm
from kernels import prim_functions, relative_difference

from tvm_tile.build import Builder, Program
from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.runtime.launch import load_functions
from tvm_tile.schedule import Task
from tvm_tile.schedule.s_tir.matvec import schedule_matvec

EMULATED = find_device("emulated")
LIMIT = 1e-5


def computed(func: Any, rank: float, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> str:
    """Fill ``y`` with ``func`` in the tile at ``rank``, from zero to one; the tile."""
    graph = extract(func)
    assert graph is not None
    choices = schedule_matvec(Task(func, graph, EMULATED), 1000)
    written = choices[math.floor(rank * (len(choices) - 1))]()
    assert written is not None
    program = Builder(EMULATED).build_functions({"kernel": written.func})["kernel"]
    assert isinstance(program, Program), program
    loaded = load_functions(program, EMULATED.name)  # it owns the kernels
    out = tvm.runtime.tensor(y)
    loaded["kernel"](tvm.runtime.tensor(x), tvm.runtime.tensor(w), out)
    y[:] = out.numpy()
    return written.tile


@pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    m=st.integers(1, 8),
    n=st.integers(9, 300),
    k=st.integers(32, 700),
    batch=st.sampled_from([(), (3,)]),
    transposed=st.booleans(),
    rank=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_any_tile_computes_the_product(
    m: int, n: int, k: int, batch: tuple[int, ...], transposed: bool, rank: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((*batch, m, k)).astype("float32")
    w = rng.standard_normal((*batch, n, k) if transposed else (*batch, k, n)).astype("float32")
    entry = case("drawn", "matvec", mm("NT" if transposed else "NN"), x.shape, w.shape)
    (func,) = prim_functions(entry, EMULATED).values()
    y = np.full((*batch, m, n), np.nan, "float32")
    tile = computed(func, rank, x, w, y)
    right = w.swapaxes(-1, -2) if transposed else w
    want = x.astype("float64") @ right.astype("float64")
    assert relative_difference(y, want) < LIMIT, tile
