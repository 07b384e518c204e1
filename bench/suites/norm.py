"""Operators on the rows of (rows, length): norms, scans, and what is largest in a row.

Softmax, layer norm and RMS norm are measured. Scans, arg-reductions, topk, group and instance norms
are not measured yet: there was no GPU when they were added.
"""

from __future__ import annotations

from bench.suites.facts import sizes
from bench.workload import Case, Workload

GROUPS, CHANNELS_OF_GROUP = 32, 8  # of group norms: rows are groups of samples
CHANNELS = 64  # of instance norms: rows are channels of samples
TOP = 16
SOURCE = (
    "BERT-base (768), Swin-T's first stage (3136 x 96), LLaMA-2-70B (8192), GPT-2's vocabulary "
    "(50257), attention scores (128 long), and large and single rows; Stable Diffusion's group "
    "norms (32 groups, 64 x 64 and 32 x 32), style transfer's instance norms, vocabularies and "
    "routers for topk"
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
    "cumsum": ((65536, 1024), (4096, 4096), (131072, 128), (8, 50257), (1, 16777216)),
    "cumsum_of_columns": ((4096, 4096), (1024, 65536), (100000, 64)),
    "argmax": ((65536, 1024), (4096, 4096), (8, 50257), (1, 128256)),
    "topk": ((65536, 64), (4096, 1024), (1024, 4096), (1, 4096)),
    "group_norm": ((64, 40960), (512, 40960), (64, 16384)),
    "instance_norm": ((512, 16384), (1024, 4096)),
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

    Operations an element: softmax 5 (maximum, difference, exponential, sum, quotient), layer,
    group and instance norm 7 (sum, difference, square, sum, scaling, weight, bias), RMS norm 4
    (square, sum, scaling, weight); scans, arg-reductions and topk 1.
    """
    from bench.suites import norm_modules
    from bench.suites.operators import operator_case
    from bench.suites.tolerance import tolerance

    rows, length = workload.size("rows"), workload.size("length")
    x, row = (rows, length), (length,)
    group = (rows // GROUPS, GROUPS * CHANNELS_OF_GROUP, length // CHANNELS_OF_GROUP)
    plane = (rows // CHANNELS, CHANNELS, length)
    module, shapes, output, operations = {
        "softmax": (norm_modules.Softmax(), (x,), x, 5),
        "layer_norm": (norm_modules.LayerNorm(), (x, row, row), x, 7),
        "rms_norm": (norm_modules.RmsNorm(), (x, row), x, 4),
        "cumsum": (norm_modules.CumulativeSum(), (x,), x, 1),
        "cumsum_of_columns": (norm_modules.CumulativeSumOfColumns(), (x,), x, 1),
        "argmax": (norm_modules.LargestOfRow(), (x,), (rows, 1), 1),
        "topk": (norm_modules.TopValues(TOP), (x,), (rows, TOP), 1),
        "group_norm": (norm_modules.GroupNorm(GROUPS), (group, group[1:2], group[1:2]), group, 7),
        "instance_norm": (norm_modules.InstanceNorm(), (plane, plane[1:2], plane[1:2]), plane, 7),
    }[workload.family]
    limit = tolerance(workload.dtype, length)
    flops = operations * rows * length
    return operator_case(module, shapes, output, workload.dtype, flops, limit)


def _sizes(rows: int, length: int) -> tuple[tuple[str, int | str], ...]:
    return sizes({"rows": rows, "length": length})
