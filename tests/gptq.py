"""What a GPTQ layer computes its weight by."""

from __future__ import annotations

from typing import Any

import torch


def gptq_weight(layer: Any) -> torch.Tensor:
    """The weight of a layer: eight codes of a column in an int32, zero points less one of a row."""
    spread = layer.qzeros.unsqueeze(2).expand(-1, -1, 8)
    zeros = torch.bitwise_right_shift(spread, layer.shifts.view(1, 1, 8)).to(torch.int8)
    zeros = (torch.bitwise_and(zeros, 15) + 1).reshape(layer.scales.shape)
    spread = layer.qweight.unsqueeze(1).expand(-1, 8, -1)
    codes = torch.bitwise_right_shift(spread, layer.shifts.view(1, 8, 1)).to(torch.int8)
    codes = torch.bitwise_and(codes, 15).reshape(-1, layer.scales.shape[1])
    return layer.scales[layer.g_idx] * (codes - zeros[layer.g_idx])
