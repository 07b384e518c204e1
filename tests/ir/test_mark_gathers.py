"""MarkGathers: tables are read where their elements are used, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tvm_tile

TABLE, WIDTH = 11, 12


class _Model(torch.nn.Module):
    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = body
        self.words, self.places = torch.nn.Embedding(TABLE, WIDTH), torch.nn.Embedding(7, WIDTH)
        self.norm, self.linear = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 8)

    def forward(self, tokens: Any, at: Any) -> Any:
        return self.body(self, tokens, at)


def _sum(model: Any, tokens: Any, at: Any) -> Any:
    return model.words(tokens) * 2.0 + model.places(at)[None]


def _counted_from_the_end(model: Any, tokens: Any, at: Any) -> Any:
    return model.words.weight[tokens - TABLE] + model.places.weight[-at - 1]


def _indices_computed(model: Any, tokens: Any, at: Any) -> Any:
    return torch.tanh(model.words((tokens + at) % TABLE))


def _row_by_row(model: Any, tokens: Any, at: Any) -> Any:
    return torch.gather(model.words.weight, 0, tokens[:, :1].expand(-1, WIDTH)) + 1.0


def _summed(model: Any, tokens: Any, at: Any) -> Any:
    return model.words(tokens).mean(1)


def _normalized(model: Any, tokens: Any, at: Any) -> Any:
    return model.norm(model.words(tokens) + model.places(at))


def _multiplied(model: Any, tokens: Any, at: Any) -> Any:
    return model.linear(model.words(tokens))


def _used_twice(model: Any, tokens: Any, at: Any) -> Any:
    x = model.words(tokens)
    return x + model.norm(x)


def _of_a_table_that_is_made(model: Any, tokens: Any, at: Any) -> Any:
    table = torch.nn.functional.gelu(model.places.weight * at[0])
    return table[at] + 1.0


KERNELS = {
    _sum: 1,
    _counted_from_the_end: 1,
    _indices_computed: 1,
    _row_by_row: 1,
    _summed: 2,
    _normalized: 2,
    _multiplied: 2,
    _used_twice: 2,
    _of_a_table_that_is_made: 4,
}


@pytest.mark.parametrize("body", KERNELS, ids=lambda body: body.__name__)
def test_what_only_element_wise_functions_read(body: Callable[..., Any]) -> None:
    model = _Model(body)
    tokens, at = torch.randint(0, TABLE, (3, 5)), torch.randint(0, 7, (5,))
    compiled = tvm_tile.compile(torch.export.export(model, (tokens, at)), device="emulated")
    assert len(compiled.report.kernels) == KERNELS[body]
    for seed in range(3):
        torch.manual_seed(seed)
        tokens, at = torch.randint(0, TABLE, (3, 5)), torch.randint(0, 7, (5,))
        with torch.no_grad():
            wanted = model.double()(tokens, at).numpy()
        np.testing.assert_allclose(compiled(tokens.numpy(), at.numpy()), wanted, 1e-5, 1e-5)


def test_indices_beyond_the_table_read_as_before() -> None:
    """The last row, and the first one, whether another function computes of them or not."""
    tables = _Model(_sum)
    tokens, at = torch.zeros((1, 3), dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    whole = tvm_tile.compile(torch.export.export(tables, (tokens, at)), device="emulated")
    tables.body = lambda model, tokens, at: (model.words(tokens), model.places(at))
    apart = tvm_tile.compile(torch.export.export(tables, (tokens, at)), device="emulated")
    far = np.array([[TABLE, 3, 10**12]]), np.array([7, -1, 99])
    words, places = apart(*far)
    np.testing.assert_allclose(whole(*far), words * 2.0 + places[None], rtol=1e-6)
