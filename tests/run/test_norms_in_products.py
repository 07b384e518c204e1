"""Norms within products, and products side by side, in any of the model's tiles."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from few_vectors_cases import FEW_VECTORS, LEFT_APART, gated, rms_norm, times
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from joined import joined_function, joined_functions
from kernel_bodies import case
from kernels import Case, Input, relative_difference, written_errors
from run.test_decode import FEW_LAUNCHES

import tvm_tile
from tvm_tile.build import Builder, Program
from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.runtime.launch import load_functions
from tvm_tile.schedule import Task
from tvm_tile.schedule.s_tir.matvec import schedule_matvec

pytestmark = pytest.mark.bank(6)

EMULATED, H200 = find_device("emulated"), find_device("nvidia/h200")
LIMIT, TILES = 1e-5, 4
emulated = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")


def choices_of(func: Any, device: Any = EMULATED) -> Any:
    graph = extract(func)
    assert graph is not None
    return schedule_matvec(Task(func, graph, device), 1000)


def computed(func: Any, *inputs: np.ndarray, rank: float = 0.0) -> np.ndarray:
    """What a function of a row of inputs and one output makes of them, in one of its tiles."""
    choices = choices_of(func)
    written = choices[math.floor(rank * (len(choices) - 1))]()
    assert written is not None
    program = Builder(EMULATED).build_functions({"kernel": written.func})["kernel"]
    assert isinstance(program, Program), program
    loaded = load_functions(program, EMULATED.name)  # it owns the kernels
    shape = [int(extent) for extent in func.params[-1].ty.shape]
    out = tvm.runtime.tensor(np.full(shape, np.nan, "float32"))
    loaded["kernel"](*map(tvm.runtime.tensor, inputs), out)
    return out.numpy()


@emulated
@pytest.mark.parametrize("entry", FEW_VECTORS, ids=lambda entry: entry.name)
def test_tiles_compute_what_the_cpu_does(entry: Case) -> None:
    func = joined_function(entry, EMULATED, schedule_matvec)
    choices = choices_of(func)
    written = [choice() for choice in choices[:: max(1, len(choices) // TILES)]]
    assert None not in written
    errors = written_errors(func, written, EMULATED)
    assert max(errors) <= LIMIT, list(zip(written, errors, strict=True))


@pytest.mark.parametrize("entry", LEFT_APART, ids=lambda entry: entry.name)
def test_what_stays_apart(entry: Case) -> None:
    assert len(joined_functions(entry, EMULATED, schedule_matvec)) > 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("entry", FEW_VECTORS, ids=lambda entry: entry.name)
def test_halves_are_written(entry: Case, dtype: str) -> None:
    if dtype == "bfloat16" and "layer_norm" in entry.name:
        pytest.skip("TVM states a layer norm of bfloat16 by its parts only")
    halves = replace(entry, inputs=tuple(Input(own.shape, dtype) for own in entry.inputs))
    func = joined_function(halves, H200, schedule_matvec)
    choices = choices_of(func, H200)
    assert all(choice() is not None for choice in choices[:: max(1, len(choices) // TILES)])


@emulated
@settings(deadline=None, max_examples=20, derandomize=True, phases=[Phase.generate])
@given(
    m=st.integers(1, 8),
    n=st.integers(9, 200),
    k=st.integers(65, 500),
    turned=st.booleans(),
    rank=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_any_tile_of_a_gated_norm(
    m: int, n: int, k: int, turned: bool, rank: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, g = rng.standard_normal((m, k)), rng.standard_normal(k)
    w, v = rng.standard_normal((2, *((n, k) if turned else (k, n))))
    entry = case(
        *("drawn", "", lambda x, g, w, v: gated(rms_norm(x, g), w, v, turned=turned)),
        *(x.shape, g.shape, w.shape, v.shape),
    )
    func = joined_function(entry, EMULATED, schedule_matvec)
    # The gate's product is that with the tail, behind the other one.
    got = computed(func, *(a.astype("float32") for a in (x, g, v, w)), rank=rank)
    norm = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g
    left, right = (norm @ (own.T if turned else own) for own in (w, v))
    assert relative_difference(got, left / (1 + np.exp(-left)) * right) < LIMIT


@emulated
@pytest.mark.parametrize("turned", [False, True])
def test_extreme_rows_leave_the_others_alone(turned: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 100)).astype("float32")
    x[1], x[2, 7], x[3, 8], x[4] = 0, np.inf, np.nan, 3e-30
    g = rng.standard_normal(100).astype("float32")
    w = rng.standard_normal((60, 100) if turned else (100, 60)).astype("float32")
    entry = case(
        *("extreme", "", lambda x, g, w: times(rms_norm(x, g), w, turned=turned)),
        *(x.shape, g.shape, w.shape),
    )
    got = computed(joined_function(entry, EMULATED, schedule_matvec), x, g, w)
    wide = x.astype("float64")
    with np.errstate(invalid="ignore"):
        norm = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-6) * g
        want = norm @ (w.T if turned else w)
    assert np.isnan(want[2:4]).all()
    assert relative_difference(got, want) < LIMIT


class Sandwiches(torch.nn.Module):
    """Layers whose norms are behind their products, too, as Gemma 2 and OLMo 2 have them."""

    def __init__(self, layers: int, width: int, *, in_front: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.in_front = in_front
        norms, products = 2 * layers, layers
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(width, 1e-5) for _ in range(2 * norms))
        self.ups = torch.nn.ModuleList(
            torch.nn.Linear(width, 2 * width, bias=False) for _ in range(2 * products)
        )
        self.downs = torch.nn.ModuleList(
            torch.nn.Linear(width, width, bias=False) for _ in range(2 * products)
        )
        for norm in self.norms:
            torch.nn.init.normal_(norm.weight, 1.0, 0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, (up, down) in enumerate(zip(self.ups, self.downs, strict=True)):
            before, behind = self.norms[2 * number], self.norms[2 * number + 1]
            gate, let_through = up(before(x) if self.in_front else x).chunk(2, -1)
            x = x + behind(down(torch.nn.functional.silu(gate) * let_through))
        return x


@emulated
@pytest.mark.parametrize("in_front", [True, False])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_behind_products_are_stored_by_the_next(
    dtype: torch.dtype, rows: int, in_front: bool
) -> None:
    """Two kernels a layer, but for the last norm."""
    layers, width = 2, 96
    model = Sandwiches(layers, width, in_front=in_front).to(dtype).eval()
    x = torch.randn(1, rows, width, generator=torch.Generator().manual_seed(rows)).to(dtype)
    compiled = tvm_tile.compile(model, device=FEW_LAUNCHES, example_inputs=(x,))
    kernels = compiled.report.kernels
    assert sum(kernel.calls for kernel in kernels) == 4 * layers + 1, compiled.explain("all")
    for seed in range(2):
        x = torch.randn(1, rows, width, generator=torch.Generator().manual_seed(seed)).to(dtype)
        got = torch.from_dlpack(compiled(x if dtype == torch.bfloat16 else x.numpy()))
        wanted = model.double()(x.double())
        model.to(dtype)
        limit = 1e-5 if dtype == torch.float32 else 1e-1
        torch.testing.assert_close(got.double(), wanted, rtol=limit, atol=limit)
