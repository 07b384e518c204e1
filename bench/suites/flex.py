"""Attention with masks that leave each query some keys, as PyTorch's FlexAttention says them.

PyTorch's own kernels for it come by ``torch.compile``; without that it computes all scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.suites.facts import sizes
from bench.workload import Case, Workload

if TYPE_CHECKING:
    import torch

SOURCE = (
    "packed documents, prefixes and sliding windows as in Dong et al., Flex Attention (2024); "
    "random blocks of 128, of which a share is kept"
)
_BLOCK = 128
# name, family, share of blocks that are kept in percent, then batch, heads, tokens, extent of a
# head. At 32,768 tokens there are as many heads as a reference in float64 has memory for.
SHAPES: tuple[tuple[str, str, int, tuple[int, int, int, int]], ...] = (
    ("documents_8192", "documents", 0, (1, 32, 8192, 128)),
    ("prefix_8192", "prefix", 0, (1, 32, 8192, 128)),
    ("window_8192", "window", 0, (1, 32, 8192, 128)),
    ("softcap_8192", "softcap", 0, (1, 32, 8192, 128)),
    ("blocks_10_8192", "blocks", 10, (1, 32, 8192, 128)),
    ("blocks_25_8192", "blocks", 25, (1, 32, 8192, 128)),
    ("blocks_50_8192", "blocks", 50, (1, 32, 8192, 128)),
    ("blocks_25_8192_64", "blocks", 25, (1, 32, 8192, 64)),
    ("blocks_10_32768", "blocks", 10, (1, 2, 32768, 128)),
    ("blocks_50_32768", "blocks", 50, (1, 2, 32768, 128)),
)


def workloads() -> tuple[Workload, ...]:
    """All shapes, in the order of ``SHAPES``."""
    return tuple(
        Workload(
            "flex",
            name,
            family,
            "float16",
            b,
            sizes({"B": b, "H": h, "S": s, "D": d, "share": share}),
        )
        for name, family, share, (b, h, s, d) in SHAPES
    )


def case(workload: Workload) -> Case:
    """FlexAttention with a mask in blocks; ``flops`` counts the pairs that are not masked."""
    from bench.suites.flex_modules import MaskedAttention
    from bench.suites.operators import operator_case
    from bench.suites.tolerance import tolerance

    b, h, s, d = shape = tuple(workload.size(key) for key in "BHSD")
    module: torch.nn.Module = MaskedAttention(workload.family, s, _BLOCK, workload.size("share"))
    flops = 4 * b * h * module.pairs() * d
    limit = tolerance(workload.dtype, s)
    return operator_case(module, (shape,) * 3, shape, workload.dtype, flops, limit)
