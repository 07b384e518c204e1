"""A mask that indices tell is chosen by within the product's kernel, in vectors, too."""

from __future__ import annotations

from typing import Any

import pytest

import tvm_tile

torch = pytest.importorskip("torch")


class Scores(torch.nn.Module):
    def forward(self, q: Any, k: Any) -> Any:
        place = torch.arange(128)
        scores = torch.matmul(q, k.transpose(-2, -1))
        return torch.where(place[:, None] >= place[None], scores, -torch.inf)


@pytest.mark.parametrize("device", ["nvidia/h200", "nvidia/a100"])
def test_nothing_falls_back(device: str) -> None:
    q, k = (torch.randn(8, 12, 128, 64) for _ in range(2))
    options = tvm_tile.Options(cache=False)
    model = tvm_tile.compile(Scores(), device, example_inputs=(q, k), options=options)
    assert model.report.fallbacks == ()
    assert [kernel.rule for kernel in model.report.kernels] == ["contraction"]
