"""Operators of usual networks, of which tiles are measured: what the model of time is fitted to.

Each is a small model in Relax, which the compiler's own stages fuse, so that kernels are measured
as models have them. They are large and small, of every rule, of one image or sentence and of many;
neighbours in the list are alike, so that every other one can be held out of a fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.relax import op

from tvm_tile.device import Device
from tvm_tile.stages.fusing import fuse

Shape = tuple[int, ...]
HALF, SINGLE = "float16", "float32"


@dataclass(frozen=True, slots=True)
class Case:
    """A small model to measure tiles of.

    Attributes:
        name: name for people.
        dtype: type of its inputs' elements.
        shapes: shapes of its inputs; those behind the first are weights in most.
        body: operators, given the inputs.
    """

    name: str
    dtype: str
    shapes: tuple[Shape, ...]
    body: Callable[..., relax.Expr]

    def functions(self, device: Device) -> tuple[tirx.PrimFunc, ...]:
        """The case's fused, unscheduled functions, operands as they are given."""
        builder = relax.BlockBuilder()
        inputs = [
            relax.Var(f"x{place}", relax.TensorType(shape, self.dtype))
            for place, shape in enumerate(self.shapes)
        ]
        with builder.function("main", inputs):
            with builder.dataflow():
                result = builder.emit_output(builder.normalize(self.body(*inputs)))
            builder.emit_func_output(result)
        fused = fuse(builder.get(), device, as_stored=True).mod
        return tuple(f for f in fused.functions.values() if isinstance(f, tirx.PrimFunc))


def cases() -> Iterator[Case]:
    """All cases, like ones side by side."""
    yield from _products()
    yield from _convolutions()
    yield from _windows()
    yield from _rows()
    yield from _moves()
    yield from _attentions()
    yield from _several_products()


def _products() -> Iterator[Case]:
    """Products of matrices, with and without what follows them in models."""
    for m, n, k in (
        (64, 64, 64), (100, 100, 100), (128, 128, 128), (197, 192, 768), (128, 768, 768),
        (256, 256, 2048), (49, 768, 3072), (128, 3072, 768), (512, 512, 512), (384, 1024, 1024),
        (1024, 1024, 64), (4096, 64, 4096), (3136, 384, 96), (65536, 96, 96), (1024, 1024, 1024),
        (256, 4096, 4096), (2048, 2048, 2048), (4096, 4096, 64), (256, 256, 65536),
        (4096, 11008, 4096), (64, 4096, 1024), (16, 4096, 4096), (32, 1024, 4096),
        (16, 1024, 1024), (8, 4096, 4096), (4, 4096, 4096), (2, 1024, 4096), (1, 8192, 8192),
        (1, 4096, 4096), (1, 1000, 2048), (1, 512, 512), (1, 4096, 512),
    ):  # fmt: skip
        yield Case(f"product {m}x{n}x{k}", HALF, ((m, k), (k, n)), op.matmul)
    for m, n, k in ((197, 1536, 384), (128, 3072, 768), (4096, 1280, 320), (8, 3072, 768)):
        shapes: tuple[Shape, ...] = ((m, k), (k, n), (n,))
        yield Case(f"linear, gelu {m}x{n}x{k}", HALF, shapes, linear_gelu)
        with_residual = (*shapes, (m, n))
        yield Case(f"linear, residual {m}x{n}x{k}", HALF, with_residual, linear_residual)
    for m, n, k in (
        (64, 64, 64), (128, 128, 128), (256, 256, 256), (128, 768, 768), (512, 512, 512),
        (197, 3072, 768), (128, 768, 3072), (1024, 1024, 1024), (2048, 2048, 64), (64, 1000, 2048),
        (4096, 1024, 512), (2048, 2048, 2048), (16, 1024, 1024), (4, 1024, 1024), (2, 4096, 4096),
        (1, 4096, 4096), (1, 1000, 2048), (1, 512, 512),
    ):  # fmt: skip
        yield Case(f"product {m}x{n}x{k}", SINGLE, ((m, k), (k, n)), op.matmul)
    for batch, m, n, k in ((12, 128, 128, 64), (12, 128, 64, 128), (64, 1024, 64, 1024)):
        for dtype in (HALF, SINGLE):
            shapes = ((batch, m, k), (batch, k, n))
            yield Case(f"product {batch}x{m}x{n}x{k}", dtype, shapes, op.matmul)


def linear_gelu(x: Any, w: Any, b: Any) -> relax.Expr:
    """A product, a bias and gelu."""
    return op.nn.gelu(op.add(op.matmul(x, w), b))


def linear_residual(x: Any, w: Any, b: Any, r: Any) -> relax.Expr:
    """A product, a bias and a tensor that is added."""
    return op.add(op.add(op.matmul(x, w), b), r)


def _convolutions() -> Iterator[Case]:
    """Convolutions of usual sizes, channels last in float16 and first in float32."""
    for channels, size, filters, kernel, stride in (
        (3, 224, 64, 7, 2), (64, 56, 64, 3, 1), (128, 28, 128, 3, 1), (256, 14, 256, 3, 1),
        (512, 7, 512, 3, 1), (64, 56, 256, 1, 1), (256, 56, 64, 1, 1), (1024, 14, 256, 1, 1),
        (2048, 7, 512, 1, 1), (128, 56, 128, 3, 2), (32, 112, 16, 1, 1), (320, 64, 320, 3, 1),
    ):  # fmt: skip
        pad = (kernel - 1) // 2
        for dtype, layout, weights in ((HALF, "NHWC", "OHWI"), (SINGLE, "NCHW", "OIHW")):
            is_last = layout == "NHWC"
            body = partial(
                op.nn.conv2d, strides=stride, padding=pad, data_layout=layout, kernel_layout=weights
            )
            data = (1, size, size, channels) if is_last else (1, channels, size, size)
            own = (filters, kernel, kernel, channels) if is_last else (
                filters, channels, kernel, kernel)  # fmt: skip
            name = f"convolution {channels} {size} {filters} {kernel}/{stride}"
            yield Case(name, dtype, (data, own), body)


def _windows() -> Iterator[Case]:
    """Depthwise convolutions and pooling."""
    for channels, size, kernel, stride in (
        (32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (240, 28, 5, 1), (480, 14, 3, 1),
        (672, 14, 5, 2), (1152, 7, 5, 1), (384, 56, 7, 1),
    ):  # fmt: skip
        pad = (kernel - 1) // 2
        for dtype in (HALF, SINGLE):
            body = partial(op.nn.conv2d, strides=stride, padding=pad, groups=channels)
            shapes: tuple[Shape, ...] = (
                (1, channels, size, size), (channels, 1, kernel, kernel),
            )  # fmt: skip
            yield Case(f"depthwise {channels} {size} {kernel}/{stride}", dtype, shapes, body)
    for channels, size, kernel, stride in ((64, 112, 3, 2), (192, 35, 3, 1), (480, 14, 3, 1)):
        pool = {"pool_size": (kernel, kernel), "strides": (stride, stride), "padding": (1, 1)}
        for dtype, body in ((HALF, op.nn.max_pool2d), (SINGLE, op.nn.avg_pool2d)):
            shapes = ((1, channels, size, size),)
            name = f"pool {channels} {size} {kernel}/{stride}"
            yield Case(name, dtype, shapes, partial(body, **pool))


def _rows() -> Iterator[Case]:
    """Sums, normalizations and softmax."""
    for shape in ((64, 64), (1, 1000), (256, 1024), (1024, 4096), (2048, 49), (8, 50257)):
        for dtype in (HALF, SINGLE):
            yield Case(f"sum of rows {shape}", dtype, (shape,), lambda x: op.sum(x, -1))
            yield Case(f"softmax {shape}", dtype, (shape,), lambda x: op.nn.softmax(x, -1))
    for shape in ((64, 512), (1024, 256), (196, 768), (8192, 64)):
        for dtype in (HALF, SINGLE):
            yield Case(f"sum of columns {shape}", dtype, (shape,), lambda x: op.sum(x, 0))
    for rows, length in ((1, 4096), (197, 384), (128, 768), (3136, 96), (4096, 1024), (512, 4096)):
        for dtype in (HALF, SINGLE):
            shapes = ((rows, length), (length,), (length,))
            normed = partial(op.nn.layer_norm, axes=-1)
            yield Case(f"layer norm {rows}x{length}", dtype, shapes, normed)
    yield Case("global pool", HALF, ((1, 1280, 7, 7),), lambda x: op.mean(x, [2, 3]))
    yield Case("global pool", SINGLE, ((64, 512, 7, 7),), lambda x: op.mean(x, [2, 3]))


def _moves() -> Iterator[Case]:
    """Element-wise operators and copies in another order."""
    shape: Shape
    for shape in (
        (1, 1000), (64, 64), (128, 768), (1, 64, 56, 56), (1024, 4096), (64, 256, 56, 56),
    ):  # fmt: skip
        for dtype in (HALF, SINGLE):
            yield Case(f"relu {shape}", dtype, (shape,), op.nn.relu)
            yield Case(f"gelu of sum {shape}", dtype, (shape, shape), _gelu_of_sum)
    for shape, order in (
        ((197, 12, 64), (1, 0, 2)), ((1, 64, 56, 56), (0, 2, 3, 1)),
        ((1, 56, 56, 64), (0, 3, 1, 2)), ((1024, 1024), (1, 0)), ((4096, 768), (1, 0)),
        ((8, 8, 7, 8, 7, 96), (0, 1, 3, 2, 4, 5)),
    ):  # fmt: skip
        for dtype in (HALF, SINGLE):
            body = partial(op.permute_dims, axes=order)
            yield Case(f"permuted {shape} {order}", dtype, (shape,), body)


def _gelu_of_sum(x: Any, y: Any) -> relax.Expr:
    return op.nn.gelu(op.add(x, y))


def _attentions() -> Iterator[Case]:
    """Two products with a softmax in between, of many queries and of one."""
    for heads, queries, keys, depth in (
        (12, 128, 128, 64), (6, 197, 197, 64), (16, 1024, 1024, 64), (32, 2048, 2048, 128),
        (64, 49, 49, 32), (8, 4096, 77, 40), (32, 1, 1024, 64), (12, 1, 256, 64),
        (8, 4, 4096, 128), (128, 1, 512, 64), (8, 8, 1024, 64),
    ):  # fmt: skip
        for dtype in (HALF, SINGLE):
            shapes = ((heads, queries, depth), (heads, keys, depth), (heads, keys, depth))
            name = f"attention {heads}x{queries}x{keys}x{depth}"
            yield Case(name, dtype, shapes, attention)


def attention(q: Any, k: Any, v: Any) -> relax.Expr:
    """Attention of heads, each a row of the first axis."""
    scores = op.matmul(q, op.permute_dims(k, (0, 2, 1)))
    return op.matmul(op.nn.softmax(scores, -1), v)


def _several_products() -> Iterator[Case]:
    """Products behind one another, around windows, and recurrent cells."""
    for rows, depth, hidden, columns in (
        (4096, 64, 64, 64), (3136, 96, 384, 96), (65536, 32, 64, 16), (200704, 96, 384, 96),
    ):  # fmt: skip
        shapes: tuple[Shape, ...] = ((rows, depth), (depth, hidden), (hidden, columns))
        name = f"feed-forward {rows}x{depth}x{hidden}x{columns}"
        yield Case(name, HALF, shapes, _feed_forward)
    for channels, hidden, size in ((24, 144, 56), (40, 240, 28), (96, 576, 14)):
        shapes = (
            (1, size, size, channels), (hidden, 1, 1, channels), (3, 3, hidden, 1),
            (channels, 1, 1, hidden),
        )  # fmt: skip
        yield Case(f"inverted bottleneck {channels} {size}", HALF, shapes, bottleneck)
    for vectors, units in ((1, 256), (1, 512), (4, 256), (1, 1024), (1, 128), (2, 512)):
        shapes = ((vectors, units), (vectors, units), (vectors, units))
        yield Case(f"LSTM cell {vectors}x{units}", SINGLE, shapes, _cell)


def _feed_forward(x: Any, w: Any, v: Any) -> relax.Expr:
    return op.matmul(op.nn.gelu(op.matmul(x, w)), v)


def bottleneck(x: Any, first: Any, window: Any, last: Any) -> relax.Expr:
    """A 1x1 convolution, a depthwise one and a 1x1 one, channels last."""
    own = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    hidden = op.nn.relu(op.nn.conv2d(x, first, **own))
    groups = int(window.ty.shape[2])
    hidden = op.nn.conv2d(
        hidden, window, padding=1, groups=groups, data_layout="NHWC", kernel_layout="HWOI"
    )
    return op.nn.conv2d(op.nn.relu(hidden), last, **own)


def _cell(x: Any, hidden: Any, cell: Any) -> relax.Expr:
    units = int(cell.ty.shape[1])
    drawn = np.random.default_rng(0)
    w, u, b = (
        relax.const(drawn.standard_normal(shape, np.float32) / units)
        for shape in ((units, 4 * units), (units, 4 * units), (4 * units,))
    )
    gates = op.add(op.add(op.matmul(x, w), op.matmul(hidden, u)), b)
    taken = [op.strided_slice(gates, [1], [n * units], [(n + 1) * units]) for n in range(4)]
    inner, forget, outer = (op.sigmoid(taken[n]) for n in (0, 1, 3))
    kept = op.add(op.multiply(forget, cell), op.multiply(inner, op.tanh(taken[2])))
    return op.multiply(outer, op.tanh(kept))
