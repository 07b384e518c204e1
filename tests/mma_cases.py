"""Half-precision products and convolutions for warp instructions, and what only these take."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from kernel_bodies import bias_relu, mm
from kernels import Case, Input
from tvm.relax import op
from wgmma_cases import LAYOUTS, WGMMA_CASES, conv_case, operands, product, product_case

# Rows, columns, depth whose strides are of 2, 4 and 8 bytes.
_ODD = ((197, 64, 197), (50, 50, 50), (37, 41, 53), (100, 300, 500), (129, 30, 3))


def _products() -> list[Case]:
    return [
        product_case(layout, m, n, k, dtype)
        for layout in LAYOUTS
        for m, n, k in _ODD
        for dtype in ("float16", "bfloat16")[: 1 + (m < 100)]
    ]


def _narrow_sums(a: Any, b: Any) -> Any:
    """A product that is added up in half precision, as an importer may leave it, is used twice."""
    total = mm("NN")(a, b)
    return op.subtract(op.multiply(total, total), total)


def _batched() -> list[Case]:
    # Attention over 197 places, and over 50.
    return [
        Case(
            f"batch_{layout}_{m}x{n}x{k}",
            "mma",
            product(layout),
            tuple(Input((2, 3, *shape), "float16") for shape in operands(layout, m, n, k)),
        )
        for layout, m, n, k in (
            ("NN", 197, 64, 197),
            ("NT", 197, 197, 63),
            ("NN", 50, 32, 50),
            ("TN", 50, 50, 33),
            ("TT", 30, 23, 11),
        )
    ]


def _convolutions() -> list[Case]:
    bias = Input((17,), "float16")
    odd = conv_case("conv_3x3_of_6", (2, 9, 11, 6), (17, 3, 3, 6), padding=1)
    return [
        odd,
        Case(
            "conv_3x3_of_6_bias_relu",
            "mma",
            bias_relu(odd.body, shape=(1, 1, 1, 17)),
            (*odd.inputs, bias),
        ),
        conv_case("conv_7x7_of_3", (2, 21, 30, 3), (16, 7, 7, 3), strides=2, padding=3),
        conv_case("conv_3x3_of_4", (1, 21, 30, 4), (24, 3, 3, 4), padding=1),
        conv_case("conv_long_stride", (2, 41, 41, 16), (24, 3, 3, 16), strides=9, padding=1),
        conv_case("conv_grouped_odd", (2, 9, 9, 18), (15, 3, 3, 6), strides=2, groups=3),
        conv_case("conv_5x5_dilated_odd", (1, 13, 12, 30), (15, 5, 5, 30), padding=4, dilation=2),
    ]


# Convolutions of whole units of few channels: ragged, odd, in groups, dilated, of even windows.
IMAGES = tuple(
    replace(entry, rules="mma")
    for entry in (
        conv_case("image_7x7", (2, 21, 30, 8), (16, 7, 7, 8), strides=2, padding=3),
        conv_case("image_3x3", (1, 21, 30, 8), (24, 3, 3, 8), padding=1),
        conv_case("image_of_16", (2, 21, 33, 16), (17, 3, 3, 16), strides=2, padding=1),
        conv_case("image_of_24", (2, 9, 19, 24), (15, 3, 3, 24), strides=2),
        conv_case("image_dilated", (1, 13, 12, 32), (48, 3, 3, 32), padding=4, dilation=2),
        conv_case("image_2x2", (1, 13, 12, 40), (130, 2, 2, 40), padding=(0, 1, 1, 0)),
        conv_case("image_grouped", (1, 13, 12, 32), (32, 3, 3, 16), padding=1, groups=2),
    )
)


def _by_expert(x: Any, w: Any, ids: Any, *, turned: bool = False) -> Any:
    """Each row times the matrix that its number tells, as an expert of a token."""
    own = op.take(w, ids, axis=0, mode="clip")
    matrices = own if turned else op.permute_dims(own, [0, 2, 1])
    return op.squeeze(op.matmul(op.expand_dims(x, 1), matrices, out_dtype="float32"), [1])


def _of_experts(x: Any, w: Any, ids: Any, scale: Any, bias: Any) -> Any:
    """Three experts a token, with a bias each and a weight of the token's."""
    rows = op.reshape(op.broadcast_to(op.reshape(x, (11, 1, 40)), (11, 3, 40)), (33, 40))
    own = op.astype(op.take(bias, ids, axis=0, mode="clip"), "float32")
    total = op.add(_by_expert(rows, w, ids), own)
    return op.astype(op.multiply(total, op.reshape(scale, (33, 1))), "float16")


def _gated(total: Any, columns: int) -> Any:
    """What half of the columns lets through of the other half."""
    ends = (0, columns // 2, columns)
    gate, up = (op.strided_slice(total, [1], [a], [b]) for a, b in pairwise(ends))
    return op.astype(op.multiply(op.nn.silu(gate), up), "float16")


def _gated_product(x: Any, w: Any, *, columns: int) -> Any:
    return _gated(mm("NT", out_dtype="float32")(x, w), columns)


def _gated_experts(x: Any, w: Any, ids: Any) -> Any:
    return _gated(_by_expert(x, w, ids), 144)


def _groups(name: str, rows: int, table: tuple[int, int, int], *, turned: bool = False) -> Case:
    """Rows times the matrices of a table, of each of which the last axis is the sum's."""
    depth = table[1] if turned else table[2]
    inputs = Input((rows, depth), "float16"), Input(table, "float16"), Input((rows,), "int64")
    return Case(f"groups_{name}", "mma", partial(_by_expert, turned=turned), inputs)


# Numbers of matrices are drawn from 0 to 3: more than are in the table, all of it, fewer.
GROUPS = (
    _groups("of_6", 77, (6, 64, 96)),
    _groups("of_2", 40, (2, 50, 41)),
    _groups("turned", 150, (5, 64, 136), turned=True),
    _groups("few_rows", 3, (4, 24, 64)),
    Case(
        "groups_of_experts",
        "mma",
        _of_experts,
        (
            *(Input((11, 40), "float16"), Input((5, 72, 40), "float16"), Input((33,), "int64")),
            *(Input((33,), "float32"), Input((5, 72), "float16")),
        ),
    ),
    Case(
        "groups_gated",
        "mma",
        _gated_experts,
        (Input((90, 64), "float16"), Input((5, 144, 64), "float16"), Input((90,), "int64")),
    ),
)
GATED = tuple(
    Case(
        f"gated_{m}x{n}x{k}",
        "mma",
        partial(_gated_product, columns=n),
        (Input((m, k), "float16"), Input((n, k), "float16")),
    )
    for m, n, k in ((72, 144, 200), (200, 528, 64), (33, 42, 72))
)
# Strides, or windows, that bulk copies do not take.
ONLY_MMA = tuple(
    replace(entry, rules="mma")
    for entry in (
        *_products(),
        Case("narrow_sums", "mma", _narrow_sums, tuple(Input((9, 9), "float16") for _ in "ab")),
        *_batched(),
        *_convolutions(),
    )
)
MMA_CASES = (
    *(
        replace(entry, rules="mma")
        for entry in WGMMA_CASES
        if entry.inputs[0].dtype in ("float16", "bfloat16")
    ),
    *ONLY_MMA,
    *IMAGES,
)
