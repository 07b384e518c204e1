"""``tvm_tile.prune``: which weights become zeros, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tvm_tile
from tvm_tile.errors import ModelError, OptionError


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(130, 72), nn.ReLU(), nn.Linear(72, 40, bias=False))


def test_two_of_four_of_the_greatest_magnitude_are_kept() -> None:
    module = layers()
    pruned = tvm_tile.prune(module, "2:4")
    before, after = module[2].weight.detach(), pruned[2].weight.detach()
    groups = zip(before.reshape(-1, 4), after.reshape(-1, 4), strict=True)
    for own, left in groups:
        kept = own.abs().argsort(descending=True)[:2]
        assert left.nonzero().flatten().tolist() == sorted(kept.tolist())
        torch.testing.assert_close(left[kept], own[kept], rtol=0, atol=0)
    ragged = pruned[0].weight
    assert ragged.count_nonzero() == 72 * (2 * 32 + 2)  # of the last two, both


@pytest.mark.parametrize("density", [0, 0.3, 1])
def test_blocks_of_the_greatest_sums_are_kept(density: float) -> None:
    module = layers()
    pruned = tvm_tile.prune(module, blocks=(16, 32), density=density)
    for at in (0, 2):
        before, after = module[at].weight.detach(), pruned[at].weight.detach()
        blocks = [
            (before[i : i + 16, j : j + 32], after[i : i + 16, j : j + 32])
            for i in range(0, before.shape[0], 16)
            for j in range(0, before.shape[1], 32)
        ]
        kept = [bool(left.any()) for _, left in blocks]
        assert sum(kept) == -int(-len(blocks) * density // 1)
        for (own, left), is_kept in zip(blocks, kept, strict=True):
            torch.testing.assert_close(left, own if is_kept else torch.zeros_like(own))
        sums = [float(own.square().sum()) for own, _ in blocks]
        left_out = [s for s, is_kept in zip(sums, kept, strict=True) if not is_kept]
        assert max(left_out, default=0) <= min(
            (s for s, is_kept in zip(sums, kept, strict=True) if is_kept), default=float("inf")
        )


def test_the_module_stays_as_it_is_and_biases_do() -> None:
    module = layers()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    pruned = tvm_tile.prune(module, blocks=(64, 64), density=0.25)
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    torch.testing.assert_close(pruned[0].bias, module[0].bias)


def test_layers_that_share_a_weight_still_do() -> None:
    first, second = nn.Linear(64, 64), nn.Linear(64, 64)
    second.weight = first.weight
    pruned = tvm_tile.prune(nn.Sequential(first, second), "1:2")
    assert pruned[0].weight is pruned[1].weight
    assert pruned[0].weight.count_nonzero() == 64 * 32


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "a pattern, or blocks and their density"),
        ({"pattern": "2:4", "blocks": (4, 4), "density": 0.5}, "a pattern, or blocks"),
        ({"blocks": (4, 4)}, "a pattern, or blocks"),
        ({"pattern": "4:2"}, "how many of some neighbours"),
        ({"pattern": "half"}, "how many of some neighbours"),
        ({"blocks": 64, "density": 0.5}, "two extents"),
        ({"blocks": (64, 0), "density": 0.5}, "an extent of a block"),
        ({"blocks": (64, 64), "density": 1.5}, "at most 1"),
        ({"blocks": (64, 64), "density": "all"}, "density must be a number"),
    ],
)
def test_what_is_no_pattern_is_refused(given: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        tvm_tile.prune(layers(), **given)


@pytest.mark.parametrize("given", [nn.ReLU(), "module"])
def test_what_has_no_linear_layers_is_refused(given: Any) -> None:
    with pytest.raises(ModelError):
        tvm_tile.prune(given, "2:4")
