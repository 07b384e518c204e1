"""Products and convolutions for AMD's matrix cores, in all dtypes that these multiply."""

from __future__ import annotations

from kernel_bodies import mm
from kernels import Case, Input
from mma_cases import MMA_CASES
from wgmma_cases import LAYOUTS, TF32_CASES, WGMMA_CASES, operands, product_case

from tvm_tile.device import Device
from tvm_tile.device.rocm import MI250X, MI300X, RX7900XTX, RX9070XT


def integers(layout: str, m: int, n: int, k: int) -> Case:
    """A product of 8-bit integers, exact in 32 bits."""
    shapes = operands(layout, m, n, k)
    body = mm(layout, out_dtype="int32")
    inputs = tuple(Input(shape, "int8") for shape in shapes)
    return Case(f"{layout}_{m}x{n}x{k}_int8", "matrix_cores", body, inputs)


def product_of(dtype: str, layout: str, m: int, n: int, k: int) -> Case:
    """A product of any type that matrix cores multiply."""
    if dtype == "int8":
        return integers(layout, m, n, k)
    return product_case(layout, m, n, k, dtype=dtype)


def device_for(case: Case, number: int) -> Device:
    """One that multiplies a case's type: of each kind in turn."""
    is_float32 = case.inputs[0].dtype == "float32"
    devices = (MI300X, MI250X) if is_float32 else (MI300X, RX7900XTX, RX9070XT)
    return devices[number % len(devices)]


# Rows, columns, depth: ragged, with strides of 16 bytes and of one element.
EXTENTS = ((72, 40, 112), (37, 41, 53))
PRODUCTS = tuple(
    product_of(dtype, layout, *extents)
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
