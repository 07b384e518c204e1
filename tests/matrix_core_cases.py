"""Products and convolutions for AMD's matrix cores, in all dtypes that these multiply."""

from __future__ import annotations

from kernel_bodies import mm
from kernels import Case, Input
from mma_cases import MMA_CASES
from wgmma_cases import LAYOUTS, TF32_CASES, WGMMA_CASES, operands, product_case


def integers(layout: str, m: int, n: int, k: int) -> Case:
    """A product of 8-bit integers, exact in 32 bits."""
    shapes = operands(layout, m, n, k)
    body = mm(layout, out_dtype="int32")
    inputs = tuple(Input(shape, "int8") for shape in shapes)
    return Case(f"{layout}_{m}x{n}x{k}_int8", "matrix_cores", body, inputs)


# Rows, columns, depth: ragged, with strides of 16 bytes and of one element.
EXTENTS = ((72, 40, 112), (37, 41, 53))
PRODUCTS = tuple(
    integers(layout, *extents) if dtype == "int8" else product_case(layout, *extents, dtype=dtype)
    for layout in LAYOUTS
    for extents in EXTENTS
    for dtype in ("float16", "bfloat16", "float32", "int8")
)
OTHERS = (
    *MMA_CASES,
    *(case for case in WGMMA_CASES if "int8" in case.inputs[0].dtype),
    *TF32_CASES,
)
MATRIX_CORE_CASES = {case.name: case for case in (*OTHERS, *PRODUCTS)}
