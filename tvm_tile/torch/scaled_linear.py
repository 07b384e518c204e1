"""A linear layer of PyTorch's that multiplies 8-bit floats, to which it rounds what it is given."""

from __future__ import annotations

import torch
from torch import Tensor, nn

NUMBER = torch.float8_e4m3fn
LARGEST = torch.finfo(NUMBER).max
_LEAST = 1e-12  # magnitude of a row, as torchao has it: rows of zeros have a scale, too


def scaled(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows as 8-bit floats with a scale each.

    Args:
        rows: (rows, elements), floating point.

    Returns:
        (rows, elements) of ``NUMBER``, the nearest, and (rows, 1) of float32: a row's largest
        magnitude becomes the largest number.
    """
    scales = rows.abs().amax(-1, keepdim=True).float().clamp(min=_LEAST) / LARGEST
    # Where the scale was rounded down, the largest would be none.
    return (rows.float() / scales).clamp(-LARGEST, LARGEST).to(NUMBER), scales


class ScaledLinear(nn.Module):
    """``x @ weight.T + bias``, as ``nn.Linear``, of 8-bit floats, which are added up in float32.

    Each row of ``x`` is rounded to such numbers when it comes. Products have the precision of
    bfloat16, whatever type ``x`` has, as PyTorch's GPU kernels write no other.

    Attributes:
        numbers: (out_features, in_features), ``NUMBER``.
        scales: (out_features, 1), float32.
        bias: (out_features,), or ``None``.
    """

    numbers: Tensor
    scales: Tensor

    def __init__(self, numbers: Tensor, scales: Tensor, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.register_buffer("numbers", numbers)
        self.register_buffer("scales", scales)
        self.register_parameter("bias", bias)
        self.out_features, self.in_features = numbers.shape

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        numbers, scales = scaled(x.reshape(-1, self.in_features))
        made = torch._scaled_mm(
            numbers, self.numbers.t(), scales, self.scales.t(), out_dtype=torch.bfloat16
        )
        y = made.to(x.dtype).reshape(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        """The layer's sizes, for PyTorch's text of a module."""
        return f"in_features={self.in_features}, out_features={self.out_features}, float8_e4m3fn"
