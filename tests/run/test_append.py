"""Attention that appends rows to its caches, next to PyTorch in float64: results and caches after
each of many steps, and what else models do with caches."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from append_cases import CASES, AppendCase, Step
from run.test_decode import FEW_LAUNCHES

import tvm_tile

pytestmark = [
    pytest.mark.bank(4),
    pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl"),
]

LIMITS = {"float32": 1e-5, "bfloat16": 1e-1}
STEPS = tuple(case for case in CASES if case.dtype in LIMITS)


def appends(compiled: Any) -> bool:
    """Whether no kernel but attention's writes rows."""
    kernels = compiled.report.kernels
    assert "decode" in {kernel.rule for kernel in kernels}
    return not any("write_rows" in k.operators for k in kernels if k.rule != "decode")


def compare(compiled: Any, model: Any, inputs: Any, limit: float) -> None:
    """A step of both, and then their caches."""
    got = compiled(*(x if x.dtype == torch.bfloat16 else x.numpy() for x in inputs))
    wanted = model(*(x.double() if x.is_floating_point() else x for x in inputs))
    pairs = [(got, wanted), *((compiled.state[n], getattr(model, n)) for n in compiled.state)]
    for mine, theirs in pairs:
        own = torch.from_dlpack(mine).double()
        torch.testing.assert_close(own, theirs.double(), rtol=limit, atol=limit)


@pytest.mark.parametrize("case", STEPS, ids=str)
def test_many_steps(case: AppendCase) -> None:
    step = Step(case)
    compiled = tvm_tile.compile(torch.export.export(step, step.inputs()), device=FEW_LAUNCHES)
    assert appends(compiled)
    exact = Step(case).double()
    keys, rows = case.keys, torch.arange(case.rows)
    for number, start in enumerate([*range(0, 40, 3), keys // 2, keys - case.rows, 0]):
        x, _, cos, sin = step.inputs(number)
        places = start + rows if start + case.rows <= keys else keys - 1 - rows
        compare(compiled, exact, (x, places, cos, sin), LIMITS[case.dtype])


Use = Callable[[Any, Any, Any, Any], Any]
"""Caches, an input of queries, keys and values, and a position -> what the model returns."""


def _attend(q: Any, keys: Any, values: Any, at: Any) -> Any:
    scores = (q @ keys.transpose(2, 3)) * 0.3
    keep = torch.arange(keys.shape[2]) <= at[:, None]
    return torch.softmax(scores.masked_fill(~keep, -torch.inf), -1) @ values


def _twice(keys: Any, values: Any, x: Any, at: Any) -> Any:
    """The second attention reads what the first one wrote."""
    keys.index_copy_(2, at, x[1])
    values.index_copy_(2, at, x[2])
    once = _attend(x[0], keys, values, at)
    return once + _attend(torch.tanh(once), keys, values, at - 1)


def _returned(keys: Any, values: Any, x: Any, at: Any) -> Any:
    keys.index_copy_(2, at, x[1])
    values.index_copy_(2, at, x[2])
    return _attend(x[0], keys, values, at) + keys.sum((2,), keepdim=True)


def _read_in_between(keys: Any, values: Any, x: Any, at: Any) -> Any:
    keys.index_copy_(2, at, x[1])
    values.index_copy_(2, at, x[2])
    return _attend(x[0] + values.sum((2,), keepdim=True), keys, values, at)


def _values_of_keys(keys: Any, values: Any, x: Any, at: Any) -> Any:
    """What is appended to values is made of the keys behind what is appended to them."""
    keys.index_copy_(2, at, x[1])
    values.index_copy_(2, at, torch.tanh(keys[:, :, 3:4] + x[2]))
    return _attend(x[0], keys, values, at)


def _of_what_was_there(keys: Any, values: Any, x: Any, at: Any) -> Any:
    keys.index_copy_(2, at, torch.tanh(keys[:, :, 3:4] + x[1]))
    values.index_copy_(2, at, x[2])
    return _attend(x[0], keys, values, at)


def _some_rows(keys: Any, values: Any, x: Any, at: Any) -> Any:
    keys.index_copy_(2, at, x[1])
    values.index_copy_(2, at, x[2])
    return _attend(x[0], keys[:, :, :32], values[:, :, :32], at)


def _some_heads(keys: Any, values: Any, x: Any, at: Any) -> Any:
    keys.index_copy_(2, at, x[1])
    values.index_copy_(2, at, x[2])
    return _attend(x[0][:, 1:], keys[:, 1:], values[:, 1:], at)


def _into_some_heads(keys: Any, values: Any, x: Any, at: Any) -> Any:
    keys[:, :1].index_copy_(2, at, x[1][:, :1])
    values[:, :1].index_copy_(2, at, x[2][:, :1])
    return _attend(x[0], keys, values, at)


def _two_rows_apart(keys: Any, values: Any, x: Any, at: Any) -> Any:
    keys.index_copy_(2, at, x[1])
    keys.index_copy_(2, 49 - at, x[2])
    values.index_copy_(2, at, x[2])
    return _attend(x[0], keys, values, at + 3)


def _elsewhere(keys: Any, values: Any, x: Any, at: Any) -> Any:
    """Keys and values have places of their own."""
    keys.index_copy_(2, at, x[1])
    values.index_copy_(2, 49 - at, x[2])
    return _attend(x[0], keys, values, at)


def _one_cache(keys: Any, _: Any, x: Any, at: Any) -> Any:
    keys.index_copy_(2, at, x[1])
    return _attend(x[0], keys, keys, at)


def _functional(keys: Any, values: Any, x: Any, at: Any) -> Any:
    """New caches next to the old ones, which are read, too."""
    new = keys.index_copy(2, at, x[1]), values.index_copy(2, at, x[2])
    return _attend(x[0], *new, at) + keys.sum((2,), keepdim=True)


def _concatenated(keys: Any, values: Any, x: Any, at: Any) -> Any:
    grown = [torch.cat([c[:, :, 1:], n], 2) for c, n in ((keys, x[1]), (values, x[2]))]
    out = _attend(x[0], *grown, at)
    keys.copy_(grown[0])
    values.copy_(grown[1])
    return out


class _Model(torch.nn.Module):
    def __init__(self, use: Use) -> None:
        super().__init__()
        self.use = use
        for seed, name in enumerate(("keys", "values")):
            rng = torch.Generator().manual_seed(seed)
            self.register_buffer(name, torch.randn(1, 2, 50, 16, generator=rng))

    def forward(self, x: Any, at: Any) -> Any:
        return self.use(self.keys, self.values, x, at)


@pytest.mark.parametrize(
    ("use", "is_one"),
    [
        (_twice, True),
        (_returned, None),
        (_read_in_between, False),
        (_values_of_keys, False),
        (_of_what_was_there, None),
        (_some_rows, False),
        (_some_heads, False),
        (_into_some_heads, False),
        (_two_rows_apart, False),
        (_elsewhere, True),
        (_one_cache, False),
        (_functional, None),
        (_concatenated, None),
    ],
)
def test_what_models_do_with_caches(use: Use, is_one: bool | None) -> None:
    """Appended by attention where nobody else needs the cache; right in any case."""
    model, x, at = _Model(use), torch.randn(3, 1, 2, 1, 16), torch.tensor([5])
    compiled = tvm_tile.compile(torch.export.export(model, (x, at)), device=FEW_LAUNCHES)
    exact = _Model(use).double()
    for start in (5, 6, 31, 49, 33, 3, 49):
        x, at = torch.randn(3, 1, 2, 1, 16), torch.tensor([start])
        compare(compiled, exact, (x, at), 1e-5)
    assert is_one is None or appends(compiled) is is_one
