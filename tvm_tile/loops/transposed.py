"""Transposed convolutions, also of windows whose elements lie apart.

::

    spread[n, i, y] = X[n, i, (y - before) / stride] if that is a place of X else 0
    turned[o, i, k] = W[i, o, K - 1 - k]
    Y[n, o, y] = sum over i and k of spread[n, i, y + k * dilation] * turned[o, i, k]

TVM puts zeros between the weights instead of a dilation, and a zero times an infinite ``X`` is NaN.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, topi

_LAYOUTS = (("NCW", "IOW"), ("NCHW", "IOHW"), ("NCDHW", "IODHW"))


def transposed_convolution(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.nn.conv1d_transpose``, ``2d`` and ``3d``, in the layouts that TVM writes, too."""
    attrs = call.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
    if layouts not in _LAYOUTS or attrs.out_layout != attrs.data_layout:
        raise ValueError(f"a transposed convolution of {layouts} to {attrs.out_layout}")
    strides, dilation, padding, added = (
        [int(n) for n in numbers]
        for numbers in (attrs.strides, attrs.dilation, attrs.padding, attrs.output_padding)
    )
    groups, dtype = int(attrs.groups), str(call.ty.dtype)

    def loops(data: te.Tensor, kernel: te.Tensor) -> te.Tensor:
        inputs, outputs, *sizes = (int(extent) for extent in kernel.shape)
        each = inputs // groups
        reach = [(size - 1) * apart for size, apart in zip(sizes, dilation, strict=True)]
        before = [own - out for own, out in zip(reach, padding, strict=False)]
        after = [
            own - out + more
            for own, out, more in zip(reach, padding[len(sizes) :], added, strict=True)
        ]
        wide = topi.nn.dilate(data, [1, 1, *strides], name="data_dilate")
        spread = topi.nn.pad(wide, [0, 0, *before], [0, 0, *after], name="data_pad")
        turned = te.compute(
            (outputs, inputs, *sizes),
            lambda o, i, *k: kernel(i, o, *(n - 1 - own for n, own in zip(sizes, k, strict=True))),
            name="kernel_transform",
        )
        channel = te.reduce_axis((0, each), "dc")
        within = [te.reduce_axis((0, size), f"d{i}") for i, size in enumerate(sizes)]

        def element(n: Any, o: Any, *at: Any) -> Any:
            first = o // outputs * each if groups > 1 else 0
            own = o % outputs if groups > 1 else o
            places = [y + k * apart for y, k, apart in zip(at, within, dilation, strict=True)]
            left = spread(n, first + channel, *places).astype(dtype)
            right = turned(own, first + channel, *within).astype(dtype)
            return te.sum(left * right, axis=[channel, *within])

        return te.compute(list(call.ty.shape), element, name="conv_transpose")

    name = str(call.op.name).rpartition(".")[2]
    return builder.call_te(loops, *call.args, primfunc_name_hint=name)
