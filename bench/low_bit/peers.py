"""Others' products, on the same operands: PyTorch's, and gemlite's where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from bench.low_bit.formats import FORMATS
from bench.low_bit.operands import Operands
from bench.low_bit.record import CUBLAS, GEMLITE

Run = Callable[[], Any]

_BITS, _HALF_BYTE = 4, 0x88  # of int4pack's codes, which are less 8
_INNER_TILES = 8  # of its layout
_MANY = 128  # vectors; kernels for few take minutes beyond
_FEW = 17  # that PyTorch's product of integers wants at least
# Of results in float16, and in bfloat16.
_HALVES, _BFLOAT16 = 2e-3, 1e-2


@dataclass(frozen=True, slots=True)
class Peer:
    """A product of somebody else.

    Attributes:
        name: as records have it.
        formats: of weights, that it takes.
        tolerance: of its result.
        start: makes what it needs, and then enqueues one run.
        vectors: the least and the most that it is measured with.
        is_unscaled: whether it leaves the scales out, which is then done before results are
            compared, and not in its time.
    """

    name: str
    formats: tuple[str, ...]
    tolerance: float
    start: Callable[[Operands], Run]
    vectors: tuple[int, int] = (1, _MANY)
    is_unscaled: bool = False

    def takes(self, operands: Operands) -> bool:
        """Whether it is for such a product."""
        least, most = self.vectors
        own = operands.product.vectors
        return operands.low.name in self.formats and least <= own <= most


def _cublas(operands: Operands) -> Run:
    x, matrix = operands.halves
    return lambda: torch.matmul(x, matrix.T)


def _int4pack(operands: Operands) -> Run:
    """``(code - 8) * scale + offset`` in bfloat16, two codes a byte, the first in the high bits."""
    low, packed = operands.low, operands.packed
    scale = operands.scale.bfloat16()
    offset = torch.zeros_like(scale)
    if operands.zero is not None:
        offset = (8 - operands.zero.float()).bfloat16() * scale
    else:
        packed = packed ^ _HALF_BYTE
    swapped = (packed & 15) << _BITS | packed >> _BITS
    codes = torch._convert_weight_to_int4pack(swapped, _INNER_TILES)
    both = torch.stack((scale, offset), -1).transpose(0, 1).contiguous()
    x = operands.x.bfloat16()
    return lambda: torch._weight_int4pack_mm(x, codes, low.group, both)


def _int8pack(operands: Operands) -> Run:
    x, scale = operands.x.bfloat16(), operands.scale[:, 0].bfloat16().contiguous()
    codes = operands.packed.view(torch.int8)
    return lambda: torch._weight_int8pack_mm(x, codes, scale)


def _int_mm(operands: Operands) -> Run:
    return lambda: torch._int_mm(operands.x, operands.packed.T)


def _scaled_mm(operands: Operands) -> Run:
    return lambda: torch._scaled_mm(
        operands.x,
        operands.packed.T,
        scale_a=operands.own,
        scale_b=operands.of_rows,
        out_dtype=torch.bfloat16,
    )


def _gemlite(operands: Operands) -> Run:
    from gemlite import helper

    low, where = operands.low, str(operands.x.device)
    codes, scale = operands.packed, operands.scale
    given: dict[str, Any] = {"device": where, "dtype": torch.float16}
    if low.name == "MXFP4":
        powers = scale.view(torch.float8_e8m0fnu).float()
        layer = helper.A16W4_MXFP(**given).from_weights(operands.patterns, powers)
    elif low.code.bits == 8:
        kind = torch.int8 if low.name == "W8A16" else torch.float8_e4m3fn
        layer = helper.A16W8(**given).from_weights(codes.view(kind), scales=scale)
    else:
        half = 1 << (low.code.bits - 1)
        zero = operands.zero
        patterns = operands.patterns if zero is not None else operands.patterns ^ half
        zeros = torch.full_like(scale, half) if zero is None else zero.half()
        made = helper.A16Wn(**given)
        layer = made.from_weights(patterns, scale, zeros, low.code.bits, low.group)
    return lambda: layer(operands.x)


_FOURS = ("W4A16", "W4A16 zeros")
_MOST = 1 << 31
_ALL = (
    Peer(CUBLAS, tuple(FORMATS), _HALVES, _cublas, (1, _MOST)),
    Peer("int4pack", _FOURS, _BFLOAT16, _int4pack),
    Peer("int8pack", ("W8A16",), _BFLOAT16, _int8pack),
    Peer("int_mm", ("W8A8",), _HALVES, _int_mm, (_FEW, _MOST), is_unscaled=True),
    Peer("scaled_mm", ("FP8 both",), _BFLOAT16, _scaled_mm, (1, _MOST)),
    Peer(GEMLITE, (*_FOURS, "W8A16", "W2A16", "FP8", "MXFP4"), _HALVES, _gemlite),
)
PEERS = {peer.name: peer for peer in _ALL}
