"""JoinWrites: what is written in place is computed by who writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tvm_tile

CAPACITY = 9
Step = Callable[[Any, Any, Any], tuple[Any, Any]]
"""Cache, input and position -> what is written there, and what the model returns."""


class _Model(torch.nn.Module):
    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        self.register_buffer("cache", torch.arange(4.0 * CAPACITY).reshape(CAPACITY, 4))

    def forward(self, x: Any, at: Any) -> Any:
        value, result = self.step(self.cache, x, at)
        self.cache.index_copy_(0, at, value)
        return result + self.cache.sum(0)


def _alone(_: Any, x: Any, __: Any) -> tuple[Any, Any]:
    return torch.flip(x, (1,)), x


def _used_elsewhere(_: Any, x: Any, __: Any) -> tuple[Any, Any]:
    value = torch.tanh(x) * 3.0
    return value, value.sum(1)[:, None]


def _of_the_cache(cache: Any, x: Any, at: Any) -> tuple[Any, Any]:
    """Each of two rows from where the other one is written; how, does not matter."""
    return torch.roll(cache, -1, 0)[: len(at)] * 0.5 + x, x


@pytest.mark.parametrize(
    ("step", "is_joined"), [(_alone, True), (_used_elsewhere, False), (_of_the_cache, None)]
)
def test_writers_make_what_only_they_read(step: Step, is_joined: bool | None) -> None:
    torch.manual_seed(0)
    model, x, at = _Model(step), torch.randn(2, 4), torch.tensor([1, 2])
    compiled = tvm_tile.compile(torch.export.export(model, (x, at)), device="emulated")
    names = [kernel.name for kernel in compiled.report.kernels if "write_rows" in kernel.name]
    assert is_joined is None or [name.startswith("joined") for name in names] == [is_joined]
    for first in (1, 3, CAPACITY - 2):
        x, at = torch.randn(2, 4), torch.tensor([first, first + 1])
        got = compiled(x.numpy(), at.numpy())
        np.testing.assert_allclose(got, model(x, at).numpy(), rtol=1e-5, atol=1e-5)
