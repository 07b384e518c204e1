"""Matrix products: Ladder's of large language models, squares, skewed, small and batched ones.

All are ``x[M, K] @ w[N, K].T``, the product of a linear layer, as BitBLAS measures them.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.suites.facts import read_facts, sizes
from bench.workload import Case, Workload

SOURCE = (
    "M0-M12 and V0-V12: Wang et al., Ladder (OSDI 2024), and BitBLAS, "
    "github.com/microsoft/BitBLAS; the others are layers of published networks "
    "(product_shapes.json names each) and squares"
)
DTYPES = ("float16", "bfloat16", "float32")
SQUARES = (1024, 2048, 4096, 8192, 16384)


def workloads() -> tuple[Workload, ...]:
    """Every product in every dtype, dtype by dtype; the large ones, which take longest, last."""
    found = [
        Workload("gemm", name, family, dtype, None, sizes(extents))
        for dtype in DTYPES
        for name, family, extents in _products()
    ]
    return tuple(sorted(found, key=lambda workload: workload.family == "large"))


def case(workload: Workload) -> Case:
    """The product; of any sizes."""
    from bench.suites.operators import product_with_transposed

    return product_with_transposed(workload)


def _products() -> Iterator[tuple[str, str, dict[str, int]]]:
    for p in read_facts("ladder_shapes")["products"]:
        family = "matvec" if p["M"] == 1 else "large"
        yield p["id"], family, {"B": 1} | {key: p[key] for key in "MNK"}
    for extent in SQUARES:
        yield f"square_{extent}", "square", {"B": 1} | dict.fromkeys("MNK", extent)
    for p in read_facts("product_shapes")["products"]:
        yield p["id"], p["family"], {key: p[key] for key in "BMNK"}
