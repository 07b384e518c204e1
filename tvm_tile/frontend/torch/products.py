"""Products of matrices, and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tvm import relax

from tvm_tile.frontend.torch.convert import Converters
from tvm_tile.frontend.torch.emit import Emit, Refusal, constant, dtype_of, shape_of

# (dimensions of the windows, transposed) -> operator, layout of the data, layout of the weights.
_CONVOLUTIONS = {
    (1, False): (relax.op.nn.conv1d, "NCW", "OIW"),
    (2, False): (relax.op.nn.conv2d, "NCHW", "OIHW"),
    (3, False): (relax.op.nn.conv3d, "NCDHW", "OIDHW"),
    (1, True): (relax.op.nn.conv1d_transpose, "NCW", "IOW"),
    (2, True): (relax.op.nn.conv2d_transpose, "NCHW", "IOHW"),
    (3, True): (relax.op.nn.conv3d_transpose, "NCDHW", "IODHW"),
}
_BATCH_AND_CHANNELS = 2


def _linear(
    emit: Emit, input: relax.Expr, weight: relax.Expr, bias: relax.Expr | None
) -> relax.Expr:
    if len(shape_of(weight)) == 1:
        product = emit(relax.op.matmul(input, weight))
    else:
        # Once: folding makes a constant of it, and an unrolled loop takes the same again.
        product = emit(relax.op.matmul(input, emit.once(relax.op.permute_dims, weight)))
    return product if bias is None else relax.op.add(product, bias)


def _mm(emit: Emit, x: relax.Expr, mat2: relax.Expr) -> relax.Expr:
    return relax.op.matmul(x, mat2)


def _matmul(emit: Emit, x: relax.Expr, other: relax.Expr) -> relax.Expr:
    return relax.op.matmul(x, other)


def _addmm(
    emit: Emit,
    x: relax.Expr,
    mat1: relax.Expr,
    mat2: relax.Expr,
    beta: float,
    alpha: float,
) -> relax.Expr:
    product = _scaled(emit, _mm(emit, mat1, mat2), alpha)
    if beta == 0:  # PyTorch then ignores even the input's NaN
        return product
    return relax.op.add(product, _scaled(emit, x, beta))


def _scaled(emit: Emit, value: relax.Expr, factor: float) -> relax.Expr:
    value = emit(value)
    if factor == 1:
        return value
    return emit(relax.op.multiply(value, constant(factor, dtype_of(value))))


def _baddbmm(
    emit: Emit,
    x: relax.Expr,
    batch1: relax.Expr,
    batch2: relax.Expr,
    beta: float,
    alpha: float,
) -> relax.Expr:
    return _addmm(emit, x, batch1, batch2, beta, alpha)


def _convolution(
    emit: Emit,
    input: relax.Expr,
    weight: relax.Expr,
    bias: relax.Expr | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> relax.Expr:
    windows = len(shape_of(input)) - _BATCH_AND_CHANNELS
    if (windows, transposed) not in _CONVOLUTIONS:
        raise Refusal(f"windows of {windows} dimensions")
    function, data_layout, kernel_layout = _CONVOLUTIONS[windows, transposed]
    settings = {"strides": stride, "padding": padding, "dilation": dilation}
    settings = {name: _for_each(values, windows) for name, values in settings.items()}
    if transposed:
        settings["output_padding"] = _for_each(output_padding, windows)
    result = function(
        input,
        weight,
        groups=groups,
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        **settings,
    )
    if bias is None:
        return result
    return relax.op.add(emit(result), emit.reshape(bias, (1, -1, *(1,) * windows)))


def _for_each(values: Sequence[int], windows: int) -> list[int]:
    """One value a dimension; PyTorch allows a single one for all."""
    return list(values) * (windows if len(values) == 1 else 1)


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    _ATEN.linear.default: _linear,
    _ATEN.mm.default: _mm,
    _ATEN.bmm.default: _mm,
    _ATEN.matmul.default: _matmul,
    _ATEN.addmm.default: _addmm,
    _ATEN.baddbmm.default: _baddbmm,
    _ATEN.convolution.default: _convolution,
}
