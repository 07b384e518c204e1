"""Products of few rows with constant weights, in whichever layout they end up, against float64."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import nn

import tvm_tile

pytestmark = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
OPTIONS = tvm_tile.Options(cache=False)


class Step(nn.Module):
    """A norm, linear layers of both layouts, a gate, and a table that is read twice."""

    def __init__(self, depth: int, columns: int) -> None:
        super().__init__()
        self.table = nn.Embedding(23, depth)
        self.norm = nn.LayerNorm(depth)
        self.gate, self.up = (nn.Linear(depth, columns, bias=False) for _ in range(2))
        self.down = nn.Parameter(torch.randn(columns, depth) / columns)  # as GPT-2's Conv1D

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        own = self.norm(x)
        hidden = nn.functional.silu(self.gate(own)) * self.up(own)
        return (x + hidden @ self.down) @ self.table.weight.T


@settings(deadline=None, max_examples=4, derandomize=True, phases=[Phase.generate])
@given(rows=st.integers(1, 16), depth=st.integers(5, 150), columns=st.integers(5, 200))
def test_a_step_computes_what_float64_does(rows: int, depth: int, columns: int) -> None:
    torch.manual_seed(0)
    model = Step(depth, columns).eval()
    tokens = torch.arange(rows) % 23
    compiled = tvm_tile.compile(model, "emulated", example_inputs=(tokens,), options=OPTIONS)
    found = np.asarray(compiled(tokens.numpy()), np.float64)
    with torch.no_grad():
        wanted = model.double()(tokens).numpy()
    assert np.linalg.norm(found - wanted) < 1e-5 * np.linalg.norm(wanted)


def test_weights_of_entries_are_held_once() -> None:
    model = Step(40, 64).eval()
    programs = {
        name: torch.export.export(model, (torch.arange(rows),))
        for name, rows in (("prompt", 20), ("step", 1))
    }
    entries = tvm_tile.compile(programs, "emulated", options=OPTIONS)
    one, other = (entries[name].program.constants for name in programs)
    matrices = {constant for constant in (*one, *other) if len(constant.shape) > 1}
    assert sorted(c.shape for c in matrices) == [(23, 40), (64, 40), (64, 40), (64, 40)]
