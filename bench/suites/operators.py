"""Single operators as modules, and as cases of any size.

Nothing here holds parameters: every operand is an input.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn import functional as F

from bench.suites.tolerance import tolerance
from bench.workload import BYTES, Case, Input, Workload

Shape = tuple[int, ...]


class MatrixProduct(Module):
    """``x @ w``: (M, K), (K, N) to (M, N)."""

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        return torch.matmul(x, w)


class ProductWithTransposed(Module):
    """``x @ w.T``: (..., M, K), (..., N, K) to (..., M, N)."""

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        return torch.matmul(x, w.transpose(-2, -1))


class Convolution(Module):
    """(N, C, H, W), (F, C / groups, KH, KW) to (N, F, HO, WO)."""

    def __init__(self, stride: int, pad: int, groups: int = 1) -> None:
        super().__init__()
        self.stride, self.pad, self.groups = stride, pad, groups

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w, None, self.stride, self.pad, 1, self.groups)


class ChannelsLastConvolution(Convolution):
    """(N, H, W, C), (F, KH, KW, C) to (N, HO, WO, F), all of them contiguous.

    The permutations are views: torch sees its channels_last layout, and cuDNN takes its NHWC
    kernels.
    """

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        y = super().forward(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2))
        return y.permute(0, 2, 3, 1)


class AveragePooling(Module):
    """(N, C, H, W) to (N, C, HO, WO); every window is divided by its full size, as Roller does."""

    def __init__(self, window: tuple[int, int], stride: int, pad: int) -> None:
        super().__init__()
        self.window, self.stride, self.pad = window, stride, pad

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, self.window, self.stride, self.pad, count_include_pad=True)


class Relu(Module):
    """``max(x, 0)``."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


class RowSum(Module):
    """Sum over the last axis."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sum(x, -1)


def operator_case(
    module: Module,
    shapes: tuple[Shape, ...],
    output: Shape,
    dtype: str,
    flops: int,
    limit: float,
    unread: int = 0,
) -> Case:
    """A case whose operands are of one dtype, each read once, and whose output is written once.

    ``unread`` elements of the inputs need not be read at all.
    """
    inputs = tuple(Input(shape, dtype) for shape in shapes)
    traffic = sum(i.bytes for i in inputs) + Input(output, dtype).bytes - unread * BYTES[dtype]
    return Case(module.eval(), inputs, float(flops), float(traffic), "float64", limit)


def product(workload: Workload) -> Case:
    """``x[M, K] @ w[K, N]``."""
    m, n, k = (workload.size(key) for key in "MNK")
    limit = tolerance(workload.dtype, k)
    shapes = ((m, k), (k, n))
    return operator_case(MatrixProduct(), shapes, (m, n), workload.dtype, 2 * m * n * k, limit)


def product_with_transposed(workload: Workload) -> Case:
    """``x[B, M, K] @ w[B, N, K].T``; matrices where B is 1."""
    b, m, n, k = (workload.size(key) for key in "BMNK")
    batch = () if b == 1 else (b,)
    module, limit = ProductWithTransposed(), tolerance(workload.dtype, k)
    shapes = ((*batch, m, k), (*batch, n, k))
    return operator_case(module, shapes, (*batch, m, n), workload.dtype, 2 * b * m * n * k, limit)


def convolution(workload: Workload) -> Case:
    """``layout`` nchw or nhwc; an FMA for every output and every element of its window."""
    n, c, h, w, f, kh, kw = (workload.size(key) for key in ("N", "C", "H", "W", "F", "KH", "KW"))
    ho, wo = output_extents(workload)
    module, x, filters, y = {
        "nchw": (Convolution, (n, c, h, w), (f, c, kh, kw), (n, f, ho, wo)),
        "nhwc": (ChannelsLastConvolution, (n, h, w, c), (f, kh, kw, c), (n, ho, wo, f)),
    }[workload.size("layout")]
    flops = 2 * n * f * ho * wo * c * kh * kw
    limit = tolerance(workload.dtype, c * kh * kw, is_convolution=True)
    instance = module(workload.size("stride"), workload.size("pad"))
    unread = n * c * w * uncovered_rows(workload)
    return operator_case(instance, (x, filters), y, workload.dtype, flops, limit, unread)


def depthwise(workload: Workload) -> Case:
    """A filter of its own for each channel, NCHW."""
    n, c, h, w, kh, kw = (workload.size(key) for key in ("N", "C", "H", "W", "KH", "KW"))
    y = (n, c, *output_extents(workload))
    limit = tolerance(workload.dtype, kh * kw, is_convolution=True)
    module = Convolution(workload.size("stride"), workload.size("pad"), groups=c)
    shapes, flops = ((n, c, h, w), (c, 1, kh, kw)), 2 * prod(y) * kh * kw
    unread = n * c * w * uncovered_rows(workload)
    return operator_case(module, shapes, y, workload.dtype, flops, limit, unread)


def pooling(workload: Workload) -> Case:
    """An addition for every output and every element of its window."""
    n, c, h, w, kh, kw = (workload.size(key) for key in ("N", "C", "H", "W", "KH", "KW"))
    y = (n, c, *output_extents(workload))
    module = AveragePooling((kh, kw), workload.size("stride"), workload.size("pad"))
    limit, flops = tolerance(workload.dtype, kh * kw), prod(y) * kh * kw
    unread = n * c * w * uncovered_rows(workload)
    return operator_case(module, ((n, c, h, w),), y, workload.dtype, flops, limit, unread)


def relu(workload: Workload) -> Case:
    """One operation an element."""
    shape = tuple(workload.size(key) for key in "NCHW")
    limit = tolerance(workload.dtype)
    return operator_case(Relu(), (shape,), shape, workload.dtype, prod(shape), limit)


def row_sum(workload: Workload) -> Case:
    """An addition an element."""
    rows, length = workload.size("spatial"), workload.size("reduce")
    limit = tolerance(workload.dtype, length)
    shapes = ((rows, length),)
    return operator_case(RowSum(), shapes, (rows,), workload.dtype, rows * length, limit)


def output_extents(workload: Workload) -> tuple[int, int]:
    """HO and WO from the input's extents."""
    stride, pad = workload.size("stride"), workload.size("pad")
    ho, wo = (
        (workload.size(extent) + 2 * pad - workload.size(window)) // stride + 1
        for extent, window in (("H", "KH"), ("W", "KW"))
    )
    return ho, wo


def uncovered_rows(workload: Workload) -> int:
    """How many rows of the image no window covers, as with a 1 x 1 window and stride 2.

    Columns that no window covers do not count: they are in the same memory sectors as the others.
    """
    height, window = workload.size("H"), workload.size("KH")
    stride, pad = workload.size("stride"), workload.size("pad")
    tops = range(-pad, height + pad - window + 1, stride)
    covered = {row for top in tops for row in range(top, top + window)}
    return height - len(covered.intersection(range(height)))
