"""Weights of a few bits in ONNX Runtime's operators, as the operators that they stand for."""

from __future__ import annotations

from tvm.relax import op

from tvm_tile.frontend.onnx.node import Node
from tvm_tile.frontend.ops.values import Value, constant, dtype_of, shape_of

_BYTE = 8  # bits


def convert_matmul_bits(node: Node) -> Value:
    """MatMulNBits: ``x @ weights.T``, where weights are those of :func:`convert_bits`."""
    x, codes, scales, zeros, order, bias = (node.input(place) for place in range(6))
    if order is not None:
        raise NotImplementedError("an order of the codes' groups (g_idx)")
    weights = _weights(node, codes, scales, zeros)
    product = node.emit(op.matmul(x, node.emit(op.permute_dims(op.astype(weights, dtype_of(x))))))
    return product if bias is None else op.add(product, bias)


def convert_bits(node: Node) -> Value:
    """DequantizeNBits, an operator of ours: the matrix that MatMulNBits multiplies with."""
    return _weights(node, *(node.input(place) for place in range(3)))


def _weights(node: Node, codes: Value, scales: Value, zeros: Value | None) -> Value:
    """``(codes - zero) * scale``, each scale for a block of a row of codes.

    The codes of a row are ``[blocks, bytes of a block]``, the first code in the lowest bits; so are
    zero points, if they are bytes, but only a row of them begins with a byte. Without any, zero is
    the middle of all codes. Numbers are of the scales' type.
    """
    rows, depth = int(node.attrs["N"]), int(node.attrs["K"])
    bits, side = int(node.attrs.get("bits", 4)), int(node.attrs["block_size"])
    if bits not in (1, 2, 4, 8):
        raise NotImplementedError(f"codes of {bits} bits")
    blocks, dtype = -(-depth // side), dtype_of(scales)
    packed = node.emit(op.reshape(codes, (rows, blocks * side * bits // _BYTE)))
    numbers = op.astype(_unpacked(node, packed, bits), dtype)
    numbers = node.emit(op.reshape(numbers, (rows, blocks, side)))
    if zeros is None:
        zero = constant(1 << (bits - 1), dtype)
    else:
        zero = op.reshape(_zeros(node, zeros, (rows, blocks), bits, dtype), (rows, blocks, 1))
    scale = op.reshape(scales, (rows, blocks, 1))
    weights = op.multiply(op.subtract(numbers, node.emit(zero)), scale)
    weights = node.emit(op.reshape(node.emit(weights), (rows, blocks * side)))
    if blocks * side != depth:
        weights = node.emit(op.strided_slice(weights, [1], [0], [depth]))
    return weights


def _unpacked(node: Node, packed: Value, bits: int) -> Value:
    """The codes in rows of bytes, as bytes."""
    if bits == _BYTE:
        return packed
    rows, width = shape_of(packed)
    shifts = constant(range(0, _BYTE, bits), "uint8")
    shifted = op.right_shift(op.expand_dims(packed, -1), shifts)
    codes = node.emit(op.bitwise_and(node.emit(shifted), constant((1 << bits) - 1, "uint8")))
    return node.emit(op.reshape(codes, (rows, width * _BYTE // bits)))


def _zeros(node: Node, zeros: Value, shape: tuple[int, int], bits: int, dtype: str) -> Value:
    """The zero point of each block: numbers of the scales' type, or packed codes."""
    if dtype_of(zeros) != "uint8":
        return op.reshape(zeros, shape)
    rows, blocks = shape
    packed = op.reshape(zeros, (rows, -(-blocks * bits // _BYTE)))
    codes = _unpacked(node, node.emit(packed), bits)
    return node.emit(op.astype(op.strided_slice(codes, [1], [0], [blocks]), dtype))
