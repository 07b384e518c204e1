"""Sums of products of quantised numbers, which are exact in int32."""

from __future__ import annotations

from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.convolutions import convolution
from tvm_tile.frontend.relay.operators.layouts import Layout
from tvm_tile.frontend.relay.operators.products import (
    batch_operands,
    dense,
    product,
    unpacked,
)
from tvm_tile.frontend.relay.operators.quantised import along_axis
from tvm_tile.frontend.relay.operators.transposed import transposed_convolution
from tvm_tile.frontend.relay.values import cast, dtype_of, is_integer


def _out_dtype(call: OperatorCall) -> str:
    return str(call.attributes.get("out_dtype") or "int32")


def _shifted(call: OperatorCall, index: int, zero: int, axis: int) -> Value:
    """An argument less its zero point, another argument; as it is where that is known to be 0."""
    x, known = call.arguments[index], call.known(zero)
    if not is_integer(dtype_of(x)):
        raise NotImplementedError(f"quantised numbers of {dtype_of(x)}")
    if known is not None and not known.any():
        return x
    shift = along_axis(call, cast(call, call.arguments[zero], "int32"), axis, x)
    return call.emit(op.subtract(cast(call, x, "int32"), shift))


def _channel(call: OperatorCall, name: str, letter: str) -> int:
    """The axis of channels of a layout; zero points of parts of it are none of Relay's."""
    return Layout.parse(str(call.attributes[name])).letters.index(letter)


def _convolution(call: OperatorCall) -> Value:
    x = _shifted(call, 0, 2, _channel(call, "data_layout", "C"))
    kernel = _shifted(call, 1, 3, _channel(call, "kernel_layout", "O"))
    return convolution(call, x, kernel, _out_dtype(call))


def _transposed_convolution(call: OperatorCall) -> Value:
    zero = call.known(3)
    if zero is None or zero.size != 1:
        raise NotImplementedError("zero points of a transposed convolution's kernels")
    x = _shifted(call, 0, 2, _channel(call, "data_layout", "C"))
    return transposed_convolution(call, x, _shifted(call, 1, 3, 0), _out_dtype(call))


def _dense(call: OperatorCall) -> Value:
    return dense(call, _shifted(call, 0, 2, -1), _shifted(call, 1, 3, 0), _out_dtype(call))


def _packed_dense(call: OperatorCall) -> Value:
    zero = call.known(3)
    if zero is None or zero.size != 1:
        raise NotImplementedError("zero points of packed weights")
    weight = unpacked(call, _shifted(call, 1, 3, 0))
    return dense(call, _shifted(call, 0, 2, -1), weight, _out_dtype(call))


def _batch_matmul(call: OperatorCall) -> Value:
    a, b = batch_operands(call, _shifted(call, 0, 2, -1), _shifted(call, 1, 3, -1))
    return product(call, a, b, _out_dtype(call))


CONVERTERS: dict[str, Converter] = {
    "qnn.batch_matmul": _batch_matmul,
    "qnn.contrib_dense_pack": _packed_dense,
    "qnn.conv2d": _convolution,
    "qnn.conv2d_transpose": _transposed_convolution,
    "qnn.dense": _dense,
}
