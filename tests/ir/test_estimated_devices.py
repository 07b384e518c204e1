"""Kernels for GPUs that there is a data sheet of and nobody has measured build, without a GPU."""

from __future__ import annotations

import pytest
import torch

import tvm_tile

DEVICES = ("l40s", "l4", "a10", "t4", "rtx5090", "b200")


class Block(torch.nn.Module):
    """A convolution, a norm, a product and an attention of two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.windows = torch.nn.Conv2d(32, 64, 3, padding=1)
        self.norm = torch.nn.LayerNorm(64)
        self.heads = torch.nn.Linear(64, 192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.relu(self.windows(x)).flatten(2).transpose(1, 2)
        heads = self.heads(self.norm(rows)).unflatten(2, (3, 2, 32)).permute(2, 0, 3, 1, 4)
        return torch.nn.functional.scaled_dot_product_attention(*heads.unbind(0))


@pytest.mark.bank(4)
@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_its_kernels_build(name: str, dtype: torch.dtype) -> None:
    model = tvm_tile.compile(
        Block().to(dtype).eval(),
        f"nvidia/{name}",
        example_inputs=(torch.randn(1, 32, 16, 16).to(dtype),),
        cache=False,
    )
    assert not any(kernel.fallback for kernel in model.report.kernels)
    rules = {kernel.rule for kernel in model.report.kernels}
    # The T4's instructions are of half the depth of those that our kernels have.
    uses_units = dtype == torch.float16 and name != "t4"
    assert ({"mma", "warp_attention"} <= rules) == uses_units
    assert "us estimated" in str(model.explain())
