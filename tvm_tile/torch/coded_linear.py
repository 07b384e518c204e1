"""A linear layer of PyTorch's whose weight is kept as codes, and decoded by plain operators."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tvm_tile.torch.codebooks import Codebook

_BYTE = 8  # bits
_AT_ONCE = 1 << 20  # elements of a weight that are rounded at once: few enough for caches


def _packed(weight: Tensor, codebook: Codebook, group: int) -> tuple[Tensor, Tensor, Tensor]:
    """The nearest codes of some rows, in bytes, their scales, and their zeros, if any.

    Returns:
        Each of (rows, groups, ...), as of :class:`CodedMatrix`; zeros without elements for none.
    """
    rounded = codebook.rounded(weight.reshape(-1, group).contiguous())
    shape = (weight.shape[0], weight.shape[1] // group, -1)
    parts = rounded.codes.reshape(*shape, codebook.in_a_byte).unbind(-1)
    packed = torch.zeros_like(parts[0])
    for place, part in enumerate(parts):
        packed |= part << place * codebook.bits
    zeros = packed[..., :0] if rounded.zeros is None else rounded.zeros.reshape(shape)
    return packed, rounded.scales.reshape(shape), zeros


class CodedMatrix(nn.Module):
    """A matrix of codes: calling it returns its values, (rows, depth), of the scales' type.

    ``(code - zero point) * scale``, or ``entries[code] * scale``, each step rounded to that type.
    Layers that share a weight have one of these in common.

    Attributes:
        bits: bits of a code.
        zero: number that is subtracted from codes where there are no ``zeros``.
        packed: (rows, groups, bytes), uint8; of a byte, the lowest bits are the first code.
        scales: (rows, groups, 1), float16, bfloat16 or float32.
        zeros: (rows, groups, 1), uint8, or ``None``.
        entries: (2**bits,), of the scales' type, or ``None`` where codes are integers.
    """

    packed: Tensor
    scales: Tensor
    zeros: Tensor | None
    entries: Tensor | None

    def __init__(
        self,
        bits: int,
        zero: int,
        packed: Tensor,
        scales: Tensor,
        zeros: Tensor | None,
        entries: Tensor | None,
    ) -> None:
        super().__init__()
        self.bits, self.zero = bits, zero
        self.register_buffer("packed", packed)
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", zeros)
        self.register_buffer("entries", entries)

    @classmethod
    def of(cls, weight: Tensor, codebook: Codebook, group: int) -> CodedMatrix:
        """The nearest codes of a weight, (rows, depth), finite; ``group`` divides its depth."""
        at_once = max(_AT_ONCE // weight.shape[1], 1)
        parts = [_packed(rows, codebook, group) for rows in weight.split(at_once)]
        packed, scales, zeros = (torch.cat(own) for own in zip(*parts, strict=True))
        entries = weight.new_tensor(codebook.entries) if codebook.entries else None
        own_zeros = zeros if zeros.numel() else None
        return cls(codebook.bits, codebook.zero, packed, scales, own_zeros, entries)

    def forward(self) -> Tensor:
        """The values."""
        mask = (1 << self.bits) - 1
        parts = [self.packed >> place & mask for place in range(0, _BYTE, self.bits)]
        codes = torch.stack(parts, -1).flatten(2)
        if self.entries is not None:
            numbers = self.entries[codes.long()]
        else:
            zeros = self.zero if self.zeros is None else self.zeros.to(self.scales.dtype)
            numbers = codes.to(self.scales.dtype) - zeros
        return (numbers * self.scales).flatten(1)

    def extra_repr(self) -> str:
        """The matrix's sizes, for PyTorch's text of a module."""
        rows, groups, size = self.packed.shape
        group = size * _BYTE // self.bits
        return f"{rows} x {groups * group}, {self.bits} bits, groups of {group}"


class CodedLinear(nn.Module):
    """``x @ weight.T + bias``, as ``nn.Linear``, with a weight of codes.

    Attributes:
        matrix: the weight, which is (out_features, in_features).
        bias: (out_features,), or ``None``.
    """

    def __init__(self, matrix: CodedMatrix, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.matrix = matrix
        self.register_parameter("bias", bias)
        rows, groups, size = matrix.packed.shape
        self.out_features, self.in_features = rows, groups * size * _BYTE // matrix.bits

    @property
    def weight(self) -> Tensor:
        """The weight, decoded anew each time: for modules that look at those of their layers."""
        values = self.matrix()
        assert isinstance(values, Tensor)
        return values

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        return functional.linear(x, self.weight, self.bias)
