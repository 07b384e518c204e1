"""Assignments to slices of state: only the touched elements are written, wherever nobody reads the
old value any more; and what is left behind is PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kept_models import Kept, check, compiled, values

import tvm_tile
from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.stages.forced import Forced

pytestmark = pytest.mark.bank(6)

DRAW = values(2, 3, 2, 4)


def a_slice(kept: Any, x: Any) -> Any:
    kept.cache[:, :, 2:4] = x
    return kept.cache.sum(-1)


def a_place(kept: Any, x: Any) -> Any:
    kept.cache[:, :, 2] = x[:, :, 0]
    return kept.cache.sum(-1)


def broadcast(kept: Any, x: Any) -> Any:
    kept.cache[..., :2].copy_(x[..., :1, :2])
    return kept.cache * 1


def added(kept: Any, x: Any) -> Any:
    kept.cache.narrow(2, 1, 2).add_(x)
    return kept.cache * 1


def nested(kept: Any, x: Any) -> Any:
    kept.cache[0, 1:3, ::2] = x[0, :2].repeat(1, 2, 1)
    kept.cache[1][0] = 1.0
    kept.cache[-1, -2:][..., -3] = 2.0
    return kept.cache * 1


def clamped(kept: Any, x: Any) -> Any:
    kept.cache[:, -99:2, 6:99] = x[:, :2]
    kept.cache[5:] = 7.0
    return kept.cache * 1


def through_views(kept: Any, x: Any) -> Any:
    kept.cache.transpose(1, 2)[:, 2:4] = x.transpose(1, 2)
    kept.cache[:, None, 1, 5:99] = x[:, None, 0, :1]
    kept.cache.view(6, 8, 4)[1:3, :2] = x[0, :2]
    kept.cache[0].diagonal(0, 1, 2).fill_(3)
    return kept.cache * 1


def read_before(kept: Any, x: Any) -> Any:
    before = kept.cache[:, :, 2:4] * 2
    kept.cache[:, :, 2:4] = x + before
    kept.cache[:, :, 0:2] = kept.cache[:, :, 1:3]
    return before, kept.cache.sum()


def returned(kept: Any, x: Any) -> Any:
    kept.cache[:, :, 2] = x[:, :, 0]
    return kept.cache, kept.cache[:, :, 1:3]


def of_one_element(kept: Any, x: Any) -> Any:
    kept.mean[1] = x[0, 0, 0, 0]
    kept.mean[-1:] += 1
    return kept.mean + x


IN_PLACE = [
    *(a_slice, a_place, broadcast, added, nested, clamped, through_views, read_before, returned),
    of_one_element,
]


@pytest.mark.parametrize("function", IN_PLACE)
def test_only_what_is_assigned_is_written(function: Any) -> None:
    ours = check(function, DRAW)
    assert [state.is_in_place for state in ours.effects.state] == [True]
    assert "copied whole" not in ours.explain("all")
    assert any("write_slices" in kernel.name for kernel in ours.report.kernels)
    assert not ours.report.fallbacks


def _within(position: Any, last: int) -> None:
    torch._check(position >= 0)
    torch._check(position <= last)


def from_a_position(kept: Any, x: Any, at: Any) -> Any:
    p = at.item()
    _within(p, 6)
    kept.cache[:, :, p : p + 2] = x
    return kept.cache.sum(-1), kept.cache.narrow(2, p, 2) * 2


def at_computed_positions(kept: Any, x: Any, at: Any) -> Any:
    p = at.item()
    _within(p, 3)
    kept.cache.select(2, p).add_(x[:, :, 0])
    kept.cache.narrow(2, 2 * p + 1, 1).fill_(1.0)
    kept.cache.narrow(2, 3 - p, 1).fill_(2.0)
    return kept.cache * 1


def of_one_layer(kept: Any, x: Any, at: Any) -> Any:
    p = at.item()
    _within(p, 6)
    kept.cache[1][:, p : p + 2] = x[0]
    kept.cache[0, 1:].narrow(1, p, 2).mul_(2)
    kept.cache[0][:, torch.stack([at])] = x[0, :, :1]
    return kept.cache * 1


@pytest.mark.parametrize("function", [from_a_position, at_computed_positions, of_one_layer])
def test_slices_that_begin_where_data_say(function: Any) -> None:
    ours = check(function, DRAW, lambda: torch.randint(0, 4, ()), calls=5)
    assert "state, written in place: cache" in ours.explain("all")
    assert any("write_rows" in kernel.name for kernel in ours.report.kernels)
    assert not ours.report.fallbacks


def test_a_position_that_is_no_arithmetic_is_refused() -> None:
    def halved(kept: Any, x: Any, at: Any) -> Any:
        p = at.item() // 2
        _within(p, 6)
        kept.cache[:, :, p : p + 2] = x
        return kept.cache.sum(-1)

    with pytest.raises(UnsupportedOperatorError, match="a number that only the data decide"):
        compiled(Kept(halved).eval(), DRAW(), torch.tensor(3))


def old_value_returned(kept: Any, x: Any) -> Any:
    old = kept.cache.clone()
    kept.cache[:, :, 2:4] = x
    return old


def old_value_read_later(kept: Any, x: Any) -> Any:
    old = kept.cache.view(6, 32)  # a view of all of it, which is copied behind the write
    old = old.clone()
    kept.cache[:, :, 2:4] = x
    return old.sum(-1), kept.cache * 2


def old_value_of_another(kept: Any, x: Any) -> Any:
    old = kept.mean.clone()
    kept.mean[1:3] = kept.other[:2]
    kept.other.copy_(old)
    return x + kept.mean


def put_into_a_new_value(kept: Any, x: Any) -> Any:
    kept.cache.mul_(0.5)
    kept.cache[:, :, 2:4] = x
    return kept.cache.sum()


@pytest.mark.parametrize(
    "function",
    [old_value_returned, old_value_read_later, old_value_of_another, put_into_a_new_value],
)
def test_what_is_read_later_is_copied(function: Any) -> None:
    ours = check(function, DRAW)
    assert "copied whole in each call: " in ours.explain("all")


def test_equal_positions_are_computed_once() -> None:
    """Layers of a model write at the same positions."""

    def layers(kept: Any, x: Any, at: Any) -> Any:
        total = kept.cache.sum(-1)
        for layer in range(2):
            kept.cache[layer].index_copy_(1, 3 - at // 2, x[layer])
        return total + kept.cache.sum(-1)

    ours = check(layers, DRAW, lambda: 2 * torch.randperm(3)[:2])
    calls = {kernel.name.rpartition("_")[0]: kernel.calls for kernel in ours.report.kernels}
    assert sum(count for name, count in calls.items() if "write_rows" in name) == 2
    positions = [name for name in calls if "floor_divide" in name]
    assert [calls[name] for name in positions] == [1]


def test_an_input_is_written_in_place() -> None:
    def grow(_: Any, x: Any, y: Any) -> Any:
        x[1:, ::2] += y[1:, :2]
        return y * 2

    ours = check(grow, values(5, 4), values(5, 4))
    assert ours.effects.written_inputs == (0,)
    assert any("write_slices" in kernel.name for kernel in ours.report.kernels)


def test_vectors_are_stored_where_memory_lets_them() -> None:
    """On a GPU a store of four numbers at an address that is none of four numbers is an error."""
    sources = {}
    for first in (1, 2, 4):

        def write(kept: Any, x: Any, first: int = first) -> Any:
            kept.wide[..., first : first + 8] = x
            return x + 1

        model = Kept(write).eval()
        model.register_buffer("wide", torch.zeros(512, 1024, 16))
        options = Forced(cache=False, coschedule=False)
        example = (torch.zeros(512, 1024, 8),)
        made = tvm_tile.compile(model, "nvidia/h200", example_inputs=example, options=options)
        (kernel,) = (k for k in made.program.kernels if "write_slices" in k.name)
        sources[first] = kernel.source
    stores = {
        first: [f"*(float{n}*)(data" in text for n in (2, 4)] for first, text in sources.items()
    }
    assert stores == {1: [False, False], 2: [True, False], 4: [False, True]}
