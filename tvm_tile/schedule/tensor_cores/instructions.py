"""Names of PTX instructions, by the dtypes that TVM knows."""

from __future__ import annotations

PTX_NAMES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "tf32",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int8": "s8",
    "uint8": "u8",
}


def load_matrices(*, turned: bool = False) -> str:
    """PTX that loads four matrices of eight by eight 16-bit elements, transposed if ``turned``."""
    return f"ldmatrix.sync.aligned.m8n8.x4{'.trans' if turned else ''}.shared.b16"


def multiply_add(dtype: str, depth: int) -> str:
    """PTX of a warp's product of 16 rows by 8 columns by a depth, added to float32 sums."""
    name = PTX_NAMES[dtype]
    return f"mma.sync.aligned.m16n8k{depth}.row.col.f32.{name}.{name}.f32"
