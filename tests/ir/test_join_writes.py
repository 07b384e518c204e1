"""JoinWrites: tensors written in place one behind the other are one kernel, where that is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tvm_tile

pytestmark = pytest.mark.bank(4)

CAPACITY = 9
Writes = Callable[[Any, Any, Any, Any], Any]
"""Keys, values, input and position -> what the model returns besides; both are written."""


def _two(keys: Any, values: Any, x: Any, at: Any) -> Any:
    keys.index_copy_(0, at, torch.tanh(x[:, :4]))
    values.index_copy_(0, at, x[:, 4:] * 2.0)
    return x.sum(1)


def _of_other_sizes(keys: Any, values: Any, x: Any, at: Any) -> Any:
    keys.index_copy_(0, at, x[:, :4])
    values[:, :2].index_copy_(0, at, x[:, 4:6])
    return x.sum(1)


def _one_reads_the_other_after(keys: Any, values: Any, x: Any, at: Any) -> Any:
    keys.index_copy_(0, at, x[:, :4])
    values.index_copy_(0, at, torch.roll(keys, -1, 0)[: len(at)] + x[:, 4:])
    return x.sum(1)


def _one_reads_the_other_before(keys: Any, values: Any, x: Any, at: Any) -> Any:
    keys.index_copy_(0, at, torch.roll(values, -1, 0)[: len(at)] + x[:, :4])
    values.index_copy_(0, at, x[:, 4:])
    return x.sum(1)


def _twice_the_same(keys: Any, values: Any, x: Any, at: Any) -> Any:
    keys.index_copy_(0, at, x[:, :4])
    keys.index_copy_(0, at + 1, x[:, 4:])
    values.index_copy_(0, at, x[:, 4:])
    return x.sum(1)


def _read_in_between(keys: Any, values: Any, x: Any, at: Any) -> Any:
    keys.index_copy_(0, at, x[:, :4])
    before = values.sum(0)
    values.index_copy_(0, at, x[:, 4:])
    return x.sum(1)[:, None] + before


def _by_slices(keys: Any, values: Any, x: Any, at: Any) -> Any:
    keys[2:4] = x[:, :4]
    values[1:3] = x[:, 4:] * 3.0
    return x.sum(1)


class _Model(torch.nn.Module):
    def __init__(self, writes: Writes) -> None:
        super().__init__()
        self.writes = writes
        self.register_buffer("keys", torch.arange(4.0 * CAPACITY).reshape(CAPACITY, 4))
        self.register_buffer("values", -torch.arange(4.0 * CAPACITY).reshape(CAPACITY, 4))

    def forward(self, x: Any, at: Any) -> Any:
        result = self.writes(self.keys, self.values, x, at)
        return result, self.keys.sum(0) - self.values.cumsum(0)


CASES = {
    _two: 1,
    _of_other_sizes: 2,
    _one_reads_the_other_after: None,
    _one_reads_the_other_before: None,
    _twice_the_same: None,
    _read_in_between: None,
    _by_slices: 1,
}
"""The writes, and how many kernels write; any number where how does not matter."""


@pytest.mark.parametrize("writes", CASES, ids=lambda writes: writes.__name__)
@pytest.mark.parametrize("count", [1, 2])
def test_both_are_written_in_order(writes: Writes, count: int) -> None:
    if writes is _by_slices and count == 1:
        pytest.skip("it writes two rows")
    torch.manual_seed(0)
    model, at = _Model(writes), torch.arange(1, 1 + count)
    exported = torch.export.export(model, (torch.randn(count, 8), at))
    compiled = tvm_tile.compile(exported, device="emulated")
    kernels = [kernel.name for kernel in compiled.report.kernels if "write_" in kernel.name]
    assert CASES[writes] is None or len(kernels) == CASES[writes]
    for first in (1, 3, CAPACITY - 3, 0):
        x, at = torch.randn(count, 8), torch.arange(first, first + count)
        got = compiled(x.numpy(), at.numpy())
        for own, wanted in zip(got, model(x, at), strict=True):
            np.testing.assert_allclose(own, wanted.numpy(), rtol=1e-5, atol=1e-5)


def test_a_graph_of_two_layers_has_one_function_for_both() -> None:
    """The kernels of layers that are alike are one."""

    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in ("k0", "v0", "k1", "v1"):
                self.register_buffer(name, torch.zeros(CAPACITY, 4))

        def forward(self, x: Any, at: Any) -> Any:
            _two(self.k0, self.v0, x, at)
            x = x + (self.k0 + self.v0).sum()
            _two(self.k1, self.v1, x, at)
            return self.k1.sum(0) - self.v1.sum(0)

    model, x, at = Layers(), torch.randn(1, 8), torch.tensor([2])
    compiled = tvm_tile.compile(torch.export.export(model, (x, at)), device="emulated")
    writing = [k.name for k in compiled.report.kernels if k.name.startswith("joined")]
    assert len(writing) == 1
    for place in (4, 0, CAPACITY - 1):
        x, at = torch.randn(1, 8), torch.tensor([place])
        got = compiled(x.numpy(), at.numpy())
        np.testing.assert_allclose(got, model(x, at).numpy(), rtol=1e-5, atol=1e-5)
