"""Products of matrices, and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tvm import relax

from tvm_tile.frontend.torch.convert import Converters
from tvm_tile.frontend.torch.emit import Emit, Refusal, shape_of

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


def _addmm(
    emit: Emit,
    x: relax.Expr,
    mat1: relax.Expr,
    mat2: relax.Expr,
    beta: float,
    alpha: float,
) -> relax.Expr:
    return _sum(emit, x, _mm(emit, mat1, mat2), beta, alpha)


def _sum(emit: Emit, x: relax.Expr, product: relax.Expr, beta: float, alpha: float) -> relax.Expr:
    """``beta * x + alpha * product``; PyTorch ignores even NaN where ``beta`` is 0."""
    scaled, added = emit.scaled((emit(product), alpha), (x, beta))
    if beta == 0:
        return relax.op.broadcast_to(emit.cast(scaled, emit.dtype), emit.shape)
    return emit.cast(emit(relax.op.add(scaled, added)), emit.dtype)


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
    stride, padding, dilation, output_padding = (
        _for_each(values, windows) for values in (stride, padding, dilation, output_padding)
    )
    settings = {"strides": stride, "dilation": dilation, "groups": groups}
    added = [0] * windows
    if transposed and any(more >= s for more, s in zip(output_padding, stride, strict=True)):
        # More than TVM allows: what is not cut off at the end, or put there.
        left = [p - more for p, more in zip(padding, output_padding, strict=True)]
        padding += [max(at_end, 0) for at_end in left]
        added = [max(-at_end, 0) for at_end in left]
    elif transposed:
        settings["output_padding"] = output_padding
    layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout}
    result = emit(function(input, weight, padding=padding, **settings, **layouts))
    if any(added):
        widths = [0, 0, 0, 0, *(width for more in added for width in (0, more))]
        result = emit(relax.op.nn.pad(result, widths))
    if bias is None:
        return result
    return relax.op.add(result, emit.reshape(bias, (1, shape_of(bias)[0], *(1,) * windows)))


def _for_each(values: Sequence[int], windows: int) -> list[int]:
    """One value a dimension; PyTorch allows a single one for all."""
    return list(values) * (windows if len(values) == 1 else 1)


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    _ATEN.linear.default: _linear,
    _ATEN.mm.default: _mm,
    _ATEN.bmm.default: _mm,
    _ATEN.matmul.default: lambda emit, x, other: relax.op.matmul(x, other),
    _ATEN.addmm.default: _addmm,
    _ATEN.baddbmm.default: lambda emit, x, batch1, batch2, **factors: _addmm(
        emit, x, batch1, batch2, **factors
    ),
    _ATEN.convolution.default: _convolution,
}
