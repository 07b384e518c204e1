"""How weights and vectors are kept in the products that are measured."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tile.graph.tensor_format import (
    E2M1,
    E4M3,
    E8M0,
    Code,
    Entries,
    Floats,
    Integers,
    Shared,
    TensorFormat,
    bytes_of,
)

_HALF, _FLOAT = "float16", "float32"
_INT8, _FLOAT8 = "int8", "float8_e4m3fn"
_BYTE = 8  # bits


@dataclass(frozen=True, slots=True)
class LowBit:
    """How a product's weights and vectors are kept.

    Attributes:
        name: such as ``W4A16``: weights of 4 bits, vectors (activations) of 16.
        code: of the weights.
        group: elements of a row that share a scale; 0: all of them do.
        scale: what scales are kept as.
        has_zeros: whether groups have zero points.
        vectors: element type of the vectors. Of bytes (integers or floats), they are multiplied as
            they are; then vectors and rows of the matrix have a float32 scale each, which the
            products are multiplied with.
    """

    name: str
    code: Code
    group: int
    scale: str | Floats = _HALF
    has_zeros: bool = False
    vectors: str = _HALF

    @property
    def is_weight_only(self) -> bool:
        """Whether the vectors are halves."""
        return self.vectors == _HALF

    @property
    def is_decoded(self) -> bool:
        """Whether codes must become numbers of another type, which are then multiplied."""
        return self.is_weight_only or self.code.bits < _BYTE

    def format(self, depth: int) -> TensorFormat:
        """Of the matrix, as values of the vectors' type."""
        if not self.is_weight_only:
            return TensorFormat(self.code, "int32", self.vectors)
        box = (1, self.group or depth)
        entry = "int32" if isinstance(self.code, Integers) else _FLOAT
        zero = Shared(box, "uint8", _HALF) if self.has_zeros else None
        step = _HALF if self.scale == _HALF else _FLOAT
        entry = _HALF if isinstance(self.code, Entries) else entry
        return TensorFormat(self.code, entry, _HALF, zero, (Shared(box, self.scale, step),))

    def least_bytes(self, vectors: int, rows: int, depth: int) -> int:
        """That a product must read and write: codes, what they share, vectors, the result."""
        matrix = self.format(depth).bytes((rows, depth))
        beside = 0 if self.is_weight_only else (vectors + rows) * bytes_of(_FLOAT)
        element = bytes_of(_HALF) if self.is_weight_only else 1
        return matrix + beside + vectors * (depth * element + rows * bytes_of(_HALF))


_ALL = (
    LowBit("W4A16", Integers(4, is_signed=True), 128),
    LowBit("W4A16 zeros", Integers(4, is_signed=False), 128, has_zeros=True),
    LowBit("W8A16", Integers(8, is_signed=True), 0),
    LowBit("W2A16", Integers(2, is_signed=True), 128),
    LowBit("NF4", Entries(4), 64),
    LowBit("FP8", E4M3, 0),
    LowBit("MXFP4", E2M1, 32, E8M0),
    LowBit("W8A8", Integers(8, is_signed=True), 0, vectors=_INT8),
    LowBit("W4A8", Integers(4, is_signed=True), 0, vectors=_INT8),
    LowBit("W2A8", Integers(2, is_signed=True), 0, vectors=_INT8),
    LowBit("FP8 both", E4M3, 0, vectors=_FLOAT8),
)
FORMATS = {one.name: one for one in _ALL}
