"""Random operands of a product, and what they mean: in PyTorch, by the formats' definitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from bench.low_bit.formats import LowBit
from bench.low_bit.products import Product
from tvm_tile.graph.tensor_format import E2M1, E4M3, Code, Entries, Floats, Integers

_BYTE = 8  # bits
_AT_ONCE = 1 << 26  # elements of the matrix that are decoded to float64 at a time
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_SIGN, _WORST_E4M3, _LARGEST_E4M3 = 0x80, 0x7F, 0x77
_E8M0_BIAS = 127


@dataclass(frozen=True, slots=True)
class _Shared:
    """What boxes of a row share: its scales, and zero points if there are any."""

    scale: Any
    zero: Any


@dataclass(frozen=True)
class Operands:
    """A product's operands on a device, weights as codes.

    Attributes:
        low: how they are kept.
        product: their sizes.
        x: the vectors, (vectors, depth).
        packed: codes, uint8, (rows, bytes), the lowest bits of a byte first; where these are not
            decoded, (rows, depth) of the vectors' type.
        table: of a table's entries, float16; else ``None``.
        scale: (rows, groups), float16 or powers of two as uint8; ``None`` with vectors of bytes.
        zero: (rows, groups), uint8, or ``None``.
        own: scales of vectors of bytes, float32, (vectors, 1); else ``None``.
        of_rows: of the matrix' rows then, float32, (1, rows); else ``None``.
    """

    low: LowBit
    product: Product
    x: Any
    packed: Any
    table: Any
    scale: Any
    zero: Any
    own: Any
    of_rows: Any

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What :func:`bench.low_bit.modules.coded_module` takes."""
        given = (self.x, self.own, self.packed, self.table, self.zero, self.scale, self.of_rows)
        return tuple(one for one in given if one is not None)

    @property
    def patterns(self) -> Any:
        """The bits of all codes, uint8, (rows, depth)."""
        return self._patterns(slice(None))

    @cached_property
    def halves(self) -> tuple[Any, Any]:
        """Vectors and matrix in float16, scales included: what a product of halves takes."""
        matrix = torch.empty(self.product.rows, self.product.depth, dtype=torch.float16,
                             device=self.x.device)  # fmt: skip
        for place, values in self._values():
            if self.of_rows is not None:
                values *= self.of_rows[0, place].double().unsqueeze(1)
            matrix[place] = values.half()
        x = self.x if self.own is None else (self.x.double() * self.own).half()
        return x, matrix

    def wanted(self) -> Any:
        """The product of what the operands mean, in float64."""
        x = self.x.double()
        shape = self.product.vectors, self.product.rows
        found = torch.empty(shape, dtype=torch.float64, device=x.device)
        for place, values in self._values():
            found[:, place] = x @ values.T
        return found if self.own is None else self.scaled(found)

    def scaled(self, sums: Any) -> Any:
        """Sums of products of bytes, with the scales of vectors and rows, in float64."""
        return sums.double() * self.own.double() * self.of_rows.double()

    def _values(self) -> Iterator[tuple[slice, Any]]:
        """What the codes mean, some rows at a time, float64."""
        step = max(1, _AT_ONCE // self.product.depth)
        numbers = _numbers(self.low.code, self.table).to(self.x.device)
        for first in range(0, self.product.rows, step):
            place = slice(first, min(first + step, self.product.rows))
            values = numbers[self._patterns(place).int()]
            if self.scale is not None:
                values = self._in_groups(values, self._shared(place))
            yield place, values

    def _shared(self, place: slice) -> _Shared:
        scale, zero = self.scale[place], self.zero
        if scale.dtype == torch.uint8:
            scale = torch.exp2(scale.double() - _E8M0_BIAS)
        return _Shared(scale.double(), None if zero is None else zero[place].double())

    def _in_groups(self, values: Any, shared: _Shared) -> Any:
        rows, depth = values.shape
        grouped = values.reshape(rows, shared.scale.shape[1], -1)
        if shared.zero is not None:
            grouped -= shared.zero.unsqueeze(-1)
        grouped *= shared.scale.unsqueeze(-1)
        return grouped.reshape(rows, depth)

    def _patterns(self, place: slice) -> Any:
        packed, bits = self.packed[place].view(torch.uint8), self.low.code.bits
        parts = [packed >> start & ((1 << bits) - 1) for start in range(0, _BYTE, bits)]
        return torch.stack(parts, -1).reshape(packed.shape[0], -1)


def operands_of(low: LowBit, product: Product, where: str, seed: int) -> Operands:
    """Random ones on a device of PyTorch's: all codes but those of no number."""
    random = torch.Generator(device=where).manual_seed(seed)
    vectors, rows, depth = product.vectors, product.rows, product.depth

    def integers(low: int, high: int, *shape: int) -> Any:
        made = torch.empty(shape, dtype=torch.uint8, device=where)
        return made.random_(low, high, generator=random)

    def of_bytes(code: Code, *shape: int) -> Any:
        found = integers(0, 256, *shape)
        if code == E4M3:
            found[(found & _WORST_E4M3) == _WORST_E4M3] = _LARGEST_E4M3
        return found

    def floats(*shape: int) -> Any:
        return torch.rand(shape, device=where, generator=random)

    packed = of_bytes(low.code, rows, depth * low.code.bits // _BYTE)
    if not low.is_weight_only:
        dtype = getattr(torch, low.vectors)
        x = of_bytes(E4M3 if dtype.is_floating_point else Integers(_BYTE, True), vectors, depth)
        kept = packed if low.is_decoded else packed.view(dtype)
        own, of_rows = (floats(vectors, 1) + 0.5) / 128, (floats(1, rows) + 0.5) / 512
        return Operands(low, product, x.view(dtype), kept, None, None, None, own, of_rows)
    x = torch.randn(vectors, depth, device=where, generator=random).half()
    boxes = rows, depth // (low.group or depth)
    if isinstance(low.scale, Floats):
        scale = integers(_E8M0_BIAS - 8, _E8M0_BIAS - 3, *boxes)
    else:  # of 7 bits, which bfloat16 has, too: so PyTorch's products with codes have the very same
        scale = integers(64, 128, *boxes).half() / 4096
    zero = integers(0, 1 << low.code.bits, *boxes) if low.has_zeros else None
    table = _table(where) if isinstance(low.code, Entries) else None
    return Operands(low, product, x, packed, table, scale, zero, None, None)


def _table(where: str) -> Any:
    from tvm_tile.torch.codebooks import NF4

    return torch.tensor(NF4.entries, dtype=torch.float16, device=where)


def _numbers(code: Code, table: Any) -> Any:
    """The number of each pattern, float64."""
    if isinstance(code, Entries):
        return table.double()
    if isinstance(code, Integers):
        every = torch.arange(1 << code.bits, dtype=torch.float64)
        half = 1 << (code.bits - 1)
        return torch.where(every < half, every, every - 2 * half) if code.is_signed else every
    if code == E2M1:
        return torch.tensor([*_E2M1, *(-number for number in _E2M1)], dtype=torch.float64)
    if code == E4M3:
        return torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn).double()
    raise ValueError(f"no numbers are known of {code}")
