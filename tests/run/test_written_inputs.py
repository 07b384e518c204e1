"""Models that write to their inputs do so in the caller's arrays, as PyTorch does."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kept_models import ROWS, WIDTH, Kept, check, compiled, places

import tvm_tile
from tvm_tile.errors import InputError


def grow(_: Any, x: Any, at: Any) -> Any:
    x.add_(1)
    return x * at.sum()


def put_into_input(_: Any, x: Any, at: Any) -> Any:
    x[at] = 3.0
    return x.sum()


def return_input(_: Any, x: Any, at: Any) -> Any:
    old = x.clone()
    x.mul_(2)
    return old, x, at


@pytest.mark.parametrize("function", [grow, put_into_input, return_input])
@pytest.mark.parametrize("strided", [False, True])
def test_inputs_that_are_written_to(function: Any, strided: bool) -> None:
    def draw() -> Any:
        return torch.randn(WIDTH, ROWS).t() if strided else torch.randn(ROWS, WIDTH)

    ours = check(function, draw, places(2))
    assert ours.effects.written_inputs == (0,)
    array, at = np.ones((ROWS, WIDTH), "float32"), np.array([1, 2])
    tensor = torch.ones(ROWS, WIDTH)
    function(None, tensor, torch.from_numpy(at))
    ours(array, at)
    np.testing.assert_allclose(array, tensor.numpy())


def test_who_may_not_be_written_to_is_refused_before_anything_runs() -> None:
    def add(kept: Any, x: Any, y: Any) -> Any:
        x += y
        kept.count += 1
        return x * 2

    ours = compiled(Kept(add).eval(), torch.zeros(4), torch.zeros(4))
    fixed = np.zeros(4, "float32")
    fixed.setflags(write=False)
    whole = np.zeros(6, "float32")
    for x, y in (
        (fixed, whole[:4].copy()),
        (torch.zeros(1).expand(4), torch.zeros(4)),
        (whole[:4], whole[2:]),  # overlap
        (torch.ones(4, requires_grad=True), torch.zeros(4)),
    ):
        with pytest.raises(InputError, match="writes to its input"):
            ours(x, y)
    assert int(ours.state["count"].numpy()) == 0
    ours(whole[:3].repeat(2)[:4].copy(), whole[:4])
    assert int(ours.state["count"].numpy()) == 1


def test_state_beside_weights_and_written_inputs(tmp_path: Path) -> None:
    def product(kept: Any, x: Any, at: Any, weight: Any) -> Any:
        kept.cache[0, 0, at] = x @ weight
        kept.mean.add_(x[0])
        x.mul_(2)
        return kept.cache.sum(2) + kept.mean

    def draw() -> list[Any]:
        return [torch.randn(2, WIDTH), torch.randperm(ROWS)[:2], torch.randn(WIDTH, WIDTH)]

    theirs = Kept(product).eval()
    program = torch.export.export(copy.deepcopy(theirs), tuple(draw()))
    options = tvm_tile.Options(cache=False)
    tvm_tile.compile(program, "emulated", weights=1, options=options).save(tmp_path / "m.tvmtile")
    ours = tvm_tile.load(tmp_path / "m.tvmtile")
    for _ in range(3):
        inputs = draw()
        given = [tensor.clone() for tensor in inputs]
        with torch.no_grad():
            torch.testing.assert_close(ours(*given), theirs(*inputs))
        torch.testing.assert_close(given, inputs)
        for name, buffer in (("cache", theirs.cache), ("mean", theirs.mean)):
            torch.testing.assert_close(torch.from_dlpack(ours.state[name]), buffer)
