"""Operators of usual networks for many images, sentences or long rows at a time.

They are cases of :mod:`tvm_tile.calibrate.cases`, with what follows them in the networks.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from tvm_tile.calibrate.cases import (
    HALF,
    SINGLE,
    Case,
    Shape,
    attention,
    bottleneck,
    linear_gelu,
    linear_residual,
)


def large_cases() -> Iterator[Case]:
    """All cases of this kind, like ones side by side."""
    yield from _convolutions()
    yield from _first_convolutions()
    yield from _windows()
    yield from _products()
    yield from _drawn_products()
    yield from _chains()
    yield from _rows()
    yield from _moves()


def _convolutions() -> Iterator[Case]:
    """ResNet-50's convolutions with what follows them, and windows, channels last."""
    biased, added = _convolution_bias, _convolution_residual
    for batch, size, channels, filters, kernel, stride, dtype, body in (
        (64, 224, 3, 64, 7, 2, HALF, biased), (16, 224, 3, 64, 7, 2, SINGLE, biased),
        (64, 56, 64, 64, 3, 1, HALF, biased), (64, 28, 128, 128, 3, 1, HALF, biased),
        (64, 14, 256, 256, 3, 1, HALF, biased), (64, 7, 512, 512, 3, 1, HALF, biased),
        (64, 56, 128, 128, 3, 2, HALF, biased), (64, 28, 128, 128, 3, 1, HALF, added),
        (16, 56, 64, 64, 3, 1, SINGLE, biased), (64, 7, 512, 512, 3, 1, SINGLE, biased),
        (64, 56, 64, 256, 1, 1, HALF, added), (64, 56, 256, 64, 1, 1, HALF, biased),
        (64, 28, 512, 128, 1, 1, HALF, biased), (64, 14, 1024, 256, 1, 1, HALF, biased),
        (64, 14, 256, 1024, 1, 1, HALF, added), (64, 7, 2048, 512, 1, 1, HALF, biased),
        (64, 7, 512, 2048, 1, 1, HALF, added), (16, 14, 1024, 256, 1, 1, SINGLE, biased),
    ):  # fmt: skip
        shapes: tuple[Shape, ...] = (
            (batch, size, size, channels), (filters, kernel, kernel, channels), (filters,),
        )  # fmt: skip
        follows = "bias"
        if body is added:
            shapes, follows = (*shapes, (batch, size, size, filters)), "residual"
        name = f"convolution, {follows} {batch} {channels} {size} {filters} {kernel}/{stride}"
        yield Case(name, dtype, shapes, partial(body, stride))


def _first_convolutions() -> Iterator[Case]:
    """Convolutions with channels first: MobileNetV2's and ResNet-50's, one image's, small ones."""
    for batch, size, channels, filters, kernel, stride, dtype in (
        (64, 224, 3, 32, 3, 2, SINGLE), (64, 112, 32, 16, 1, 1, SINGLE),
        (64, 56, 24, 144, 1, 1, SINGLE), (64, 14, 96, 576, 1, 1, SINGLE),
        (64, 14, 576, 96, 1, 1, SINGLE), (64, 7, 160, 960, 1, 1, SINGLE),
        (64, 7, 960, 160, 1, 1, SINGLE), (64, 7, 320, 1280, 1, 1, SINGLE),
        (64, 14, 256, 256, 3, 1, SINGLE), (64, 28, 128, 128, 3, 1, SINGLE),
        (64, 14, 1024, 256, 1, 1, SINGLE), (64, 28, 128, 512, 1, 1, SINGLE),
        (1, 7, 512, 512, 3, 1, SINGLE), (1, 7, 512, 2048, 1, 1, SINGLE),
        (1, 14, 256, 1024, 1, 1, SINGLE), (16, 32, 64, 64, 3, 1, SINGLE),
        (64, 28, 58, 58, 1, 1, HALF), (64, 14, 116, 116, 1, 1, HALF),
        (64, 7, 232, 232, 1, 1, HALF), (8, 256, 16, 3, 3, 1, HALF), (8, 256, 16, 3, 3, 1, SINGLE),
        (64, 224, 3, 64, 7, 2, HALF), (64, 224, 3, 32, 3, 2, HALF), (64, 256, 3, 16, 3, 1, HALF),
        (64, 256, 16, 16, 3, 1, HALF), (64, 56, 48, 48, 3, 1, HALF), (16, 128, 32, 32, 3, 1, HALF),
        (1, 256, 16, 16, 3, 1, HALF), (1, 224, 3, 64, 7, 2, HALF),
    ):  # fmt: skip
        shapes: tuple[Shape, ...] = (
            (batch, channels, size, size), (filters, channels, kernel, kernel), (1, filters, 1, 1),
        )  # fmt: skip
        name = f"convolution first {batch} {channels} {size} {filters} {kernel}/{stride}"
        yield Case(name, dtype, shapes, partial(_convolution_first, stride))


def _convolution_first(stride: int, x: Any, w: Any, b: Any) -> relax.Expr:
    padding = (int(w.ty.shape[2]) - 1) // 2
    return op.nn.relu(op.add(op.nn.conv2d(x, w, strides=stride, padding=padding), b))


def _windows() -> Iterator[Case]:
    """Depthwise convolutions and pooling."""
    windows = {"padding": 1, "data_layout": "NHWC", "kernel_layout": "HWOI"}
    shapes: tuple[Shape, ...]
    for size, channels in ((112, 32), (14, 480)):
        shapes = ((64, size, size, channels), (3, 3, channels, 1))
        body = partial(op.nn.conv2d, groups=channels, **windows)
        yield Case(f"depthwise 64 {channels} {size} 3/1", HALF, shapes, body)
    for channels, size, stride in ((144, 56, 1), (58, 28, 1), (116, 14, 1), (192, 28, 2)):
        for dtype in (HALF, SINGLE):
            shapes = ((64, channels, size, size), (channels, 1, 3, 3))
            body = partial(op.nn.conv2d, strides=stride, padding=1, groups=channels)
            yield Case(f"depthwise first 64 {channels} {size} 3/{stride}", dtype, shapes, body)
    pool = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1), "layout": "NHWC"}
    for dtype in (HALF, SINGLE):
        shapes = ((64, 112, 112, 64),)
        yield Case("pool 64 64 112 3/2", dtype, shapes, partial(op.nn.max_pool2d, **pool))
    yield Case("global pool 64 2048 7", HALF, ((64, 7, 7, 2048),), lambda x: op.mean(x, [1, 2]))


def _convolution_bias(stride: int, x: Any, w: Any, b: Any) -> relax.Expr:
    return op.nn.relu(op.add(_convolution_last(stride, x, w), b))


def _convolution_residual(stride: int, x: Any, w: Any, b: Any, r: Any) -> relax.Expr:
    return op.nn.relu(op.add(op.add(_convolution_last(stride, x, w), b), r))


def _convolution_last(stride: int, x: Any, w: Any) -> relax.Expr:
    own = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    return op.nn.conv2d(x, w, strides=stride, padding=(int(w.ty.shape[1]) - 1) // 2, **own)


def _products() -> Iterator[Case]:
    """Linear layers and attention of transformers, classifiers, and decoders' weights."""
    shapes: tuple[Shape, ...]
    for m, n, k, dtype, body in (
        (8192, 768, 768, HALF, _linear_bias), (8192, 768, 768, HALF, linear_residual),
        (8192, 3072, 768, HALF, linear_gelu), (12608, 1536, 384, HALF, linear_gelu),
        (8192, 768, 3072, HALF, linear_residual), (12608, 384, 1536, HALF, linear_residual),
        (2048, 768, 768, SINGLE, _linear_bias), (2048, 3072, 768, SINGLE, linear_gelu),
        (512, 1024, 4096, HALF, _linear_bias), (64, 1000, 2048, HALF, _linear_bias),
    ):  # fmt: skip
        shapes = ((m, k), (k, n), (n,))
        follows = body.__name__.removeprefix("linear_")
        shapes = (*shapes, (m, n)) if body is linear_residual else shapes
        yield Case(f"linear, {follows} {m}x{n}x{k}", dtype, shapes, body)
    for m, n, k in (
        (1, 14336, 4096), (8, 14336, 4096), (1, 4096, 14336), (4, 4096, 14336), (1, 8192, 2048),
        (2, 8192, 2048), (1, 151936, 1024), (8, 151936, 1024),
    ):  # fmt: skip
        yield Case(f"product {m}x{n}x{k}", HALF, ((m, k), (k, n)), op.matmul)
    for m, n, k in (
        (1, 151936, 1024), (1, 128256, 2048), (1, 28672, 4096), (1, 16384, 2048), (1, 2048, 8192),
        (1, 3072, 2048), (1, 2048, 2048), (1, 6144, 1024), (1, 1024, 3072), (1, 4096, 4096),
        (4, 3072, 2048), (4, 2048, 8192),
    ):  # fmt: skip
        yield Case(f"product {m}x{n}x{k}, weights by rows", HALF, ((m, k), (n, k)), _by_rows)
    for heads, rows, depth, dtype in (
        (768, 128, 64, HALF), (384, 197, 64, HALF), (192, 128, 64, SINGLE),
    ):  # fmt: skip
        shapes = ((heads, rows, depth),) * 3
        yield Case(f"attention {heads}x{rows}x{rows}x{depth}", dtype, shapes, attention)


def _drawn_products() -> Iterator[Case]:
    """Products of any extents, most of them no multiple of anything, their logarithms drawn."""
    rng = random.Random(_SEED)
    for dtype, count in ((HALF, 24), (SINGLE, 12)):
        for _ in range(count):
            m, n, k = (round(math.exp(rng.uniform(0, math.log(_LARGEST)))) for _ in range(3))
            if rng.random() < 0.5:
                yield Case(f"product {m}x{n}x{k}", dtype, ((m, k), (k, n)), op.matmul)
            else:
                shapes = ((m, k), (n, k))
                yield Case(f"product {m}x{n}x{k}, weights by rows", dtype, shapes, _by_rows)


_SEED, _LARGEST = 20261101, 16384


def _by_rows(x: Any, w: Any) -> relax.Expr:
    return op.matmul(x, op.permute_dims(w))


def _linear_bias(x: Any, w: Any, b: Any) -> relax.Expr:
    return op.add(op.matmul(x, w), b)


def _chains() -> Iterator[Case]:
    """Products behind one another and around windows, and products of many small windows."""
    shapes: tuple[Shape, ...]
    for rows, depth, hidden, dtype in (
        (12544, 144, 288, HALF), (16384, 192, 384, HALF), (50176, 192, 768, HALF),
        (3136, 768, 3072, HALF),
    ):  # fmt: skip
        shapes = ((rows, depth), (depth, hidden), (hidden,), (hidden, depth), (rows, depth))
        yield Case(f"feed-forward, residual {rows}x{depth}x{hidden}", dtype, shapes, _feed_forward)
    for channels, hidden, size in ((24, 144, 56), (64, 384, 14), (96, 576, 14), (160, 960, 7),
                                   (64, 256, 32), (16, 64, 128)):  # fmt: skip
        shapes = (
            (64, size, size, channels), (hidden, 1, 1, channels), (3, 3, hidden, 1),
            (channels, 1, 1, hidden),
        )  # fmt: skip
        yield Case(f"inverted bottleneck 64 {channels} {size}", HALF, shapes, bottleneck)
    for heads, windows in ((3, 1024), (12, 256)):
        shapes = ((windows, heads, 49, 32), (windows, heads, 32, 49), (1, heads, 49, 49))
        yield Case(f"scores of windows {windows} {heads}", HALF, shapes, _scores)


def _feed_forward(x: Any, w: Any, b: Any, v: Any, r: Any) -> relax.Expr:
    return op.add(op.matmul(op.nn.silu(op.add(op.matmul(x, w), b)), v), r)


def _scores(q: Any, k: Any, bias: Any) -> relax.Expr:
    return op.add(op.matmul(q, k), bias)


def _rows() -> Iterator[Case]:
    """Normalizations and softmax of many rows."""
    for rows, length, dtype in (
        (8192, 768, HALF), (8192, 768, SINGLE), (200704, 96, HALF), (50176, 192, SINGLE),
    ):  # fmt: skip
        shapes: tuple[Shape, ...] = ((rows, length), (length,), (length,))
        normed = partial(op.nn.layer_norm, axes=-1)
        yield Case(f"layer norm {rows}x{length}", dtype, shapes, normed)
    for dtype in (HALF, SINGLE):
        shapes = ((98304, 128),)
        yield Case("softmax (98304, 128)", dtype, shapes, lambda x: op.nn.softmax(x, -1))


def _moves() -> Iterator[Case]:
    """Element-wise operators of large tensors, and these in another order."""
    shape: Shape
    for name, shape, dtype, body in (
        ("relu", (64, 56, 56, 256), HALF, op.nn.relu), ("gelu", (8192, 3072), HALF, op.nn.gelu),
        ("gelu", (8192, 3072), SINGLE, op.nn.gelu),
    ):  # fmt: skip
        yield Case(f"{name} {shape}", dtype, (shape,), body)
    for shape, dtype in (((8192, 768), HALF), ((64, 56, 56, 256), HALF)):
        yield Case(f"sum of two {shape}", dtype, (shape, shape), op.add)
    for shape, order in (
        ((64, 56, 56, 64), (0, 3, 1, 2)), ((64, 64, 56, 56), (0, 2, 3, 1)),
        ((64, 197, 12, 64), (0, 2, 1, 3)),
    ):  # fmt: skip
        body = partial(op.permute_dims, axes=order)
        yield Case(f"permuted {shape} {order}", HALF, (shape,), body)
    for parts, dtype in ((2, HALF), (16, SINGLE)):
        shapes = ((64, 128 // parts, 28, 28),) * parts
        yield Case(f"joined {parts} of {shapes[0]}", dtype, shapes, _joined)
    for shape in ((64, 56, 56, 96), (64, 14, 14, 384)):
        yield Case(f"rolled {shape}", HALF, (shape,), _rolled)


def _joined(*parts: Any) -> relax.Expr:
    return op.concat(parts, axis=1)


def _rolled(x: Any) -> relax.Expr:
    size = int(x.ty.shape[1])
    order = relax.const(np.roll(np.arange(size), -3), "int64")
    return op.take(op.take(x, order, axis=1), order, axis=2)
