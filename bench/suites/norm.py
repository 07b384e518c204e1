"""Softmax, layer norm and RMS norm over the last axis of (rows, length)."""

from __future__ import annotations

from bench.suites.facts import sizes
from bench.workload import Case, Workload

SOURCE = (
    "BERT-base (768), Swin-T's first stage (3136 x 96), LLaMA-2-70B (8192), GPT-2's vocabulary "
    "(50257), attention scores (128 long), and large and single rows"
)
DTYPES = ("float32", "float16")
ROWS_AND_LENGTHS: dict[str, tuple[tuple[int, int], ...]] = {
    "softmax": (
        *((65536, 1024), (4096, 4096), (131072, 128), (1, 4096)),
        *((1536, 128), (8, 50257)),
    ),
    "layer_norm": (
        *((65536, 1024), (4096, 4096), (131072, 128), (1, 4096)),
        *((128, 768), (8192, 768), (3136, 96)),
    ),
    "rms_norm": (
        *((65536, 1024), (4096, 4096), (131072, 128), (1, 4096)),
        *((4096, 8192), (1, 8192)),
    ),
}


def workloads() -> tuple[Workload, ...]:
    """All norms, dtype by dtype."""
    return tuple(
        Workload("norm", f"{norm}_{rows}x{length}", norm, dtype, None, _sizes(rows, length))
        for dtype in DTYPES
        for norm, shapes in ROWS_AND_LENGTHS.items()
        for rows, length in shapes
    )


def case(workload: Workload) -> Case:
    """The norm; of any sizes.

    Operations an element: softmax 5 (maximum, difference, exponential, sum, quotient), layer
    norm 7 (sum, difference, square, sum, scaling, weight, bias), RMS norm 4 (square, sum,
    scaling, weight).
    """
    from bench.suites import norm_modules
    from bench.suites.operators import operator_case
    from bench.suites.tolerance import tolerance

    rows, length = workload.size("rows"), workload.size("length")
    x, row = (rows, length), (length,)
    module, shapes, operations = {
        "softmax": (norm_modules.Softmax, (x,), 5),
        "layer_norm": (norm_modules.LayerNorm, (x, row, row), 7),
        "rms_norm": (norm_modules.RmsNorm, (x, row), 4),
    }[workload.family]
    limit = tolerance(workload.dtype, length)
    flops = operations * rows * length
    return operator_case(module(), shapes, x, workload.dtype, flops, limit)


def _sizes(rows: int, length: int) -> tuple[tuple[str, int | str], ...]:
    return sizes({"rows": rows, "length": length})
