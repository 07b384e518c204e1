"""Numbers that codes of a few bits stand for, and the nearest of these to weights.

A group of weights has a scale, and perhaps a zero point. PyTorch computes all of it in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

_BYTE = 8  # bits


class Rounded(NamedTuple):
    """Groups of weights as codes.

    Attributes:
        codes: (groups, elements), uint8, a code each.
        scales: (groups, 1), of the weights' element type.
        zeros: (groups, 1), uint8; ``None`` where all groups have the codebook's.
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor | None


class Codebook(Protocol):
    """Numbers that codes stand for."""

    @property
    def bits(self) -> int:
        """Bits of a code."""

    @property
    def in_a_byte(self) -> int:
        """Codes in a byte."""

    @property
    def entries(self) -> tuple[float, ...]:
        """The number of each code; none where that is the code less a zero point."""

    @property
    def zero(self) -> int:
        """The zero point of groups that have none of their own."""

    def rounded(self, groups: Tensor) -> Rounded:
        """The codes of weights, (groups, elements), at most half of what their type holds."""


@dataclass(frozen=True, slots=True)
class IntegerCodes:
    """Equal steps: a number is ``(code - zero point) * scale``.

    Attributes:
        bits: bits of a code.
        has_zeros: whether groups have zero points of their own, instead of the middle.
    """

    bits: int
    has_zeros: bool

    @property
    def in_a_byte(self) -> int:
        """Codes in a byte."""
        return _BYTE // self.bits

    @property
    def entries(self) -> tuple[float, ...]:
        """No numbers: they are computed of codes."""
        return ()

    @property
    def zero(self) -> int:
        """The middle."""
        return 1 << (self.bits - 1)

    @property
    def most(self) -> int:
        """The largest code."""
        return (1 << self.bits) - 1

    def rounded(self, groups: Tensor) -> Rounded:
        """Round weights to equal steps: codes, scales, and zero points where there are any."""
        if not self.has_zeros:
            scales = (_largest(groups) / (self.zero - 1)).to(groups.dtype)
            return Rounded(self._codes(groups, scales, self.zero), scales, None)
        low, high = groups.float().aminmax(dim=1, keepdim=True)
        low, high = low.clamp(max=0), high.clamp(min=0)
        scales = ((high - low) / self.most).to(groups.dtype)
        zeros = (-low / _divisors(scales)).round().clamp(0, self.most)
        return Rounded(self._codes(groups, scales, zeros), scales, zeros.to(torch.uint8))

    def _codes(self, groups: Tensor, scales: Tensor, zeros: Tensor | int) -> Tensor:
        """The nearest codes to the numbers of groups."""
        steps = (groups.float() / _divisors(scales)).round() + zeros
        return steps.clamp(0, self.most).to(torch.uint8)


@dataclass(frozen=True, slots=True)
class TableCodes:
    """Numbers of a table, which ascend from -1 to 1: a number is ``entries[code] * scale``."""

    entries: tuple[float, ...]

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return (len(self.entries) - 1).bit_length()

    @property
    def in_a_byte(self) -> int:
        """Codes in a byte."""
        return _BYTE // self.bits

    @property
    def zero(self) -> int:
        """Nothing is subtracted."""
        return 0

    def rounded(self, groups: Tensor) -> Rounded:
        """Round weights to the nearest entries of the table: codes and scales."""
        scales = _largest(groups).to(groups.dtype)
        entries = torch.tensor(self.entries, device=groups.device)
        borders = (entries[1:] + entries[:-1]) / 2
        codes = torch.bucketize(groups.float() / _divisors(scales), borders)
        return Rounded(codes.to(torch.uint8), scales, None)


def _largest(groups: Tensor) -> Tensor:
    """Magnitude of each group, (groups, 1), float32."""
    return groups.float().abs().amax(dim=1, keepdim=True)


def _divisors(scales: Tensor) -> Tensor:
    """Scales as float32, but for those of zeros and of what is too small for any scale."""
    wide = scales.float()
    return torch.where(wide == 0, torch.inf, wide)


NF4 = TableCodes(
    (
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    )
)
"""Quantiles of the normal distribution, as bitsandbytes has them."""

CODEBOOKS: dict[tuple[str, bool], Codebook] = {
    **{(f"int{bits}", True): IntegerCodes(bits, has_zeros=False) for bits in (2, 4, 8)},
    **{(f"int{bits}", False): IntegerCodes(bits, has_zeros=True) for bits in (2, 4, 8)},
    ("nf4", True): NF4,
}
"""Name of codes, and whether they are symmetric."""
