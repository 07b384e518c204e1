"""Products and convolutions that warpgroup instructions should take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from kernel_bodies import bias_relu, conv, gelu, mm
from kernels import Case, Input
from tvm import relax
from tvm.relax import op

Body = Callable[..., Any]
LAYOUTS = ("NN", "NT", "TN", "TT")
# Rows, columns, depth: tiny, prime (as far as 16-byte strides allow), ragged, several tiles.
EXTENTS = (
    (64, 64, 64),
    (8, 8, 8),
    (128, 256, 512),
    (72, 136, 200),
    (1000, 24, 40),
    (16, 1024, 96),
    (264, 520, 1032),
    (2048, 2048, 64),
)


def wide(body: Body) -> Body:
    """Added up in float32 and rounded once, as the importers leave it."""

    def rounded(*inputs: Any) -> Any:
        return op.astype(body(*inputs), str(inputs[0].ty.dtype))

    return rounded


def product(layout: str) -> Body:
    return wide(mm(layout, out_dtype="float32"))


def _case(name: str, body: Body, *shapes: tuple[int, ...], dtype: str = "float16") -> Case:
    return Case(name, "wgmma", body, tuple(Input(shape, dtype) for shape in shapes))


def operands(layout: str, m: int, n: int, k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    left = (m, k) if layout[0] == "N" else (k, m)
    return left, (k, n) if layout[1] == "N" else (n, k)


def product_case(layout: str, m: int, n: int, k: int, dtype: str = "float16") -> Case:
    """One product of matrices."""
    name = f"{layout}_{m}x{n}x{k}_{dtype}"
    return _case(name, product(layout), *operands(layout, m, n, k), dtype=dtype)


def conv_case(name: str, *shapes: tuple[int, ...], **options: Any) -> Case:
    """One convolution, channels last."""
    nhwc = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_dtype": "float32"}
    return _case(name, wide(conv(**nhwc, **options)), *shapes)


def _plain() -> list[Case]:
    return [
        product_case(layout, m, n, k, dtype)
        for layout in LAYOUTS
        for m, n, k in EXTENTS
        for dtype in ("float16", "bfloat16")[: 1 + (m < 200)]
    ]


def _odd_rows() -> list[Case]:
    """Extents that no stride is made of may be anything."""
    return [
        _case(f"NT_{m}x{n}x{k}", product("NT"), (m, k), (n, k))
        for m, n, k in ((1, 1, 8), (1, 1000, 512), (7, 13, 24), (127, 131, 264), (257, 1, 128))
    ]


def _fused() -> list[Case]:
    nt = product("NT")

    def scaled(x: Any, w: Any) -> Any:
        total = op.multiply(mm("NT", out_dtype="float32")(x, w), relax.const(np.float32(0.125)))
        return op.astype(total, "float16")

    def residual(x: Any, w: Any, b: Any, r: Any) -> Any:
        return op.nn.relu(op.add(op.add(nt(x, w), b), r))

    def activated(x: Any, w: Any, b: Any) -> Any:
        total = op.add(mm("NT", out_dtype="float32")(x, w), op.astype(b, "float32"))
        return op.astype(gelu(total), "float16")

    def masked(x: Any, w: Any, keep: Any) -> Any:
        return op.where(keep, nt(x, w), relax.const(np.float16(-1e4)))

    m, n, k = 200, 264, 136
    halves = (Input((m, k), "float16"), Input((n, k), "float16"))
    return [
        Case("masked", "wgmma", masked, (*halves, Input((m, n), "bool"))),
        _case("bias_relu", bias_relu(nt, shape=(1, n)), (m, k), (n, k), (n,)),
        _case("row_bias_relu", bias_relu(nt, shape=(m, 1)), (m, k), (n, k), (m,)),
        _case("bias_residual_relu", residual, (m, k), (n, k), (n,), (m, n)),
        _case("bias_gelu", activated, (m, k), (n, k), (n,)),
        _case("scaled", scaled, (m, k), (n, k)),
        _case("float32_output", mm("NT", out_dtype="float32"), (m, k), (n, k)),
    ]


def _batched() -> list[Case]:
    return [
        *(
            _case(
                f"batch_{layout}",
                product(layout),
                *((3, *s) for s in operands(layout, 72, 40, 104)),
            )
            for layout in LAYOUTS
        ),
        _case("heads", product("NT"), (2, 3, 50, 64), (2, 3, 50, 64)),
        _case("shared_weight", product("NN"), (3, 5, 64), (64, 48)),
        _case("broadcast", product("NN"), (4, 1, 24, 64), (1, 3, 64, 40)),
    ]


def _convolutions() -> list[Case]:
    nhwc = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_dtype": "float32"}
    biased = bias_relu(wide(conv(**nhwc, padding=1)), shape=(1, 1, 1, 48))
    return [
        conv_case("conv_1x1", (2, 7, 9, 64), (40, 1, 1, 64)),
        conv_case("conv_1x1_stride", (2, 9, 11, 64), (40, 1, 1, 64), strides=2),
        conv_case("conv_3x3", (2, 14, 14, 64), (72, 3, 3, 64), padding=1),
        conv_case("conv_3x3_ragged", (3, 13, 17, 24), (20, 3, 3, 24), padding=1),
        conv_case("conv_3x3_stride", (2, 15, 14, 72), (64, 3, 3, 72), padding=1, strides=2),
        # A row of the window beside the channels: one depth.
        conv_case("conv_7x7_of_8", (2, 21, 30, 8), (16, 7, 7, 8), strides=2),
        conv_case("conv_5x5_of_8", (1, 20, 19, 8), (24, 5, 5, 8)),
        conv_case("conv_3x3_of_16", (3, 9, 17, 16), (40, 3, 3, 16)),
        conv_case("conv_patches", (2, 48, 64, 8), (24, 16, 16, 8), strides=16),
        conv_case("conv_5x5_dilated", (1, 12, 12, 32), (16, 5, 5, 32), padding=4, dilation=2),
        conv_case("conv_grouped", (2, 9, 9, 96), (72, 3, 3, 24), padding=1, groups=4),
        conv_case("conv_line_stride", (1, 1, 1023, 64), (40, 1, 1, 64), strides=2),
        _case("conv_bias_relu", biased, (2, 8, 8, 32), (48, 3, 3, 32), (48,)),
    ]


def _shallow() -> list[Case]:
    """So many tiles of so little depth that several blocks share a multiprocessor."""
    nhwc = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_dtype": "float32"}

    def silu(body: Body) -> Body:
        def activated(x: Any, w: Any, b: Any) -> Any:
            total = op.astype(op.add(body(x, w), b), "float32")
            return op.astype(op.nn.silu(total), "float16")

        return activated

    def shuffled(x: Any, w: Any) -> Any:
        """Four neighbouring channels become two by two pixels, channels first."""
        total = wide(conv(**nhwc))(x, w)
        pixels = op.reshape(total, (3, 120, 120, 6, 2, 2))
        return op.reshape(op.permute_dims(pixels, [0, 3, 1, 4, 2, 5]), (3, 6, 240, 240))

    stem = silu(wide(conv(**nhwc, padding=1, strides=2)))
    return [
        _case("shallow_silu", silu(product("NT")), (42_300, 24), (40, 24), (40,)),
        _case("shallow_odd", product("NT"), (42_300, 40), (27, 40)),
        _case("shallow_heads", product("NT"), (800, 49, 32), (800, 49, 32)),
        _case("shallow_shuffle", shuffled, (3, 120, 120, 32), (24, 1, 1, 32)),
        _case("shallow_stem", stem, (4, 208, 210, 8), (16, 3, 3, 8), (16,)),
    ]


def _bytes() -> list[Case]:
    """8-bit floats, whose depth must be contiguous in both operands."""
    body = mm("NT", out_dtype="float32")
    e4m3, e5m2 = "float8_e4m3fn", "float8_e5m2"
    return [
        Case("e4m3_by_e5m2", "wgmma", body, (Input((72, 144), e4m3), Input((40, 144), e5m2))),
        *(
            _case(f"fp8_{m}x{n}x{k}", body, (m, k), (n, k), dtype=e4m3)
            for m, n, k in ((64, 64, 128), (200, 136, 400), (1, 50, 1024), (257, 264, 112))
        ),
        *(
            _case(f"e5m2_{m}x{n}x{k}", body, (m, k), (n, k), dtype=e5m2)
            for m, n, k in ((64, 64, 128), (200, 136, 400), (64, 72, 512))
        ),
    ]


def _integers() -> list[Case]:
    """8-bit integers, whose sums are exact, and what follows them in quantized networks."""
    nt = mm("NT", out_dtype="int32")
    nhwc = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_dtype": "int32"}

    def residual(x: Any, w: Any, b: Any, r: Any) -> Any:
        total = op.add(op.add(nt(x, w), b), op.astype(r, "int32"))
        return op.astype(
            op.clip(op.right_shift(total, relax.const(np.int32(9))), -128, 127), "int8"
        )

    m, n, k = 200, 264, 144
    bytes_ = (Input((m, k), "int8"), Input((n, k), "int8"))
    image = ((2, 14, 14, 64), (72, 3, 3, 64))
    return [
        *(
            _case(f"{dtype}_{m}x{n}x{k}", nt, (m, k), (n, k), dtype=dtype)
            for m, n, k in ((64, 64, 128), (200, 136, 400), (257, 250, 112), (64, 72, 4096))
            for dtype in ("int8", "uint8")
        ),
        Case("uint8_by_int8", "wgmma", nt, (Input((m, k), "uint8"), Input((n, k), "int8"))),
        _case("int8_batch", nt, (3, 72, 112), (3, 40, 112), dtype="int8"),
        _case("int8_requantized", requantized(nt), (m, k), (n, k), dtype="int8"),
        Case(
            "int8_residual",
            "wgmma",
            residual,
            (*bytes_, Input((n,), "int32"), Input((m, n), "int8")),
        ),
        _case("int8_conv", conv(**nhwc, padding=1), *image, dtype="int8"),
        _case("int8_conv_requantized", requantized(conv(**nhwc, padding=1)), *image, dtype="int8"),
        # A row of the window beside the channels: one depth.
        _case(
            "int8_conv_7x7_of_16",
            conv(**nhwc, strides=2),
            (2, 21, 30, 16),
            (24, 7, 7, 16),
            dtype="int8",
        ),
    ]


def requantized(body: Body) -> Body:
    """Sums scaled and rounded to 8 bits."""

    def scaled(x: Any, w: Any) -> Any:
        total = op.multiply(op.astype(body(x, w), "float32"), relax.const(np.float32(0.00037)))
        return op.astype(op.clip(op.round(total), -128, 127), "int8")

    return scaled


def _rounded() -> list[Case]:
    """float32 of which the instructions read tf32, again with the depth contiguous."""
    nhwc = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    nt, m, n, k = mm("NT"), 200, 264, 140
    return [
        *(
            _case(f"tf32_{m}x{n}x{k}", nt, (m, k), (n, k), dtype="float32")
            for m, n, k in ((64, 64, 32), (200, 136, 404), (257, 250, 1000), (64, 72, 4096))
        ),
        _case("tf32_bias_relu", bias_relu(nt, shape=(1, n)), (m, k), (n, k), (n,), dtype="float32"),
        _case(
            "tf32_conv", conv(**nhwc, padding=1), (2, 14, 14, 36), (72, 3, 3, 36), dtype="float32"
        ),
    ]


SHALLOW_CASES = tuple(_shallow())
TF32_CASES = tuple(_rounded())  # for devices that may: see with_tf32
WGMMA_CASES = (
    *_bytes(),
    *_integers(),
    *_plain(),
    *_odd_rows(),
    *_fused(),
    *_batched(),
    *_convolutions(),
    *SHALLOW_CASES,
)
