"""Attention forward: ``softmax(q @ k.T * scale) @ v``, as the plain graph that a model holds.

Peers with a kernel for all of it take ``vendor_module``: the same function of the same inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.suites.facts import sizes
from bench.workload import Case, Workload

if TYPE_CHECKING:
    import torch

SOURCE = (
    "long sequences as in Dao, FlashAttention-2 (2023); BERT-base with 128 tokens; "
    "ViT-B/16 on 224 x 224 images; decoders with 4096 tokens (causal)"
)
# name, family, dtype, then batch, heads, tokens, extent of a head.
SHAPES: tuple[tuple[str, str, str, tuple[int, int, int, int]], ...] = (
    ("long_4096_64", "long", "float16", (4, 16, 4096, 64)),
    ("long_4096_128", "long", "float16", (4, 16, 4096, 128)),
    ("long_8192_128", "long", "float16", (1, 32, 8192, 128)),
    ("causal_4096_64", "causal", "float16", (4, 16, 4096, 64)),
    ("causal_4096_128", "causal", "float16", (4, 16, 4096, 128)),
    ("bert_base", "short", "float16", (1, 12, 128, 64)),
    ("bert_base", "short", "float16", (64, 12, 128, 64)),
    ("vit_b16", "short", "float16", (1, 12, 197, 64)),
    ("vit_b16", "short", "float16", (64, 12, 197, 64)),
    ("long_4096_128", "long", "bfloat16", (4, 16, 4096, 128)),
    ("bert_base", "short", "float32", (1, 12, 128, 64)),
    ("bert_base", "short", "float32", (64, 12, 128, 64)),
    ("vit_b16", "short", "float32", (1, 12, 197, 64)),
)


def workloads() -> tuple[Workload, ...]:
    """All shapes, in the order of ``SHAPES``."""
    return tuple(
        Workload("attention", name, family, dtype, b, sizes({"B": b, "H": h, "S": s, "D": d}))
        for name, family, dtype, (b, h, s, d) in SHAPES
    )


def case(workload: Workload) -> Case:
    """The plain graph; of any sizes.

    ``flops`` counts the two products only, and of a causal one only the pairs that are not
    masked, as is the custom.
    """
    from bench.suites.attention_modules import PlainAttention
    from bench.suites.operators import operator_case
    from bench.suites.tolerance import tolerance

    b, h, s, d = shape = tuple(workload.size(key) for key in "BHSD")
    is_causal = workload.family == "causal"
    pairs = s * (s + 1) // 2 if is_causal else s * s
    module = PlainAttention(is_causal)
    limit = tolerance(workload.dtype, s)
    return operator_case(module, (shape,) * 3, shape, workload.dtype, 4 * b * h * pairs * d, limit)


def vendor_module(workload: Workload) -> torch.nn.Module:
    """The same in one call, for which torch has FlashAttention's and cuDNN's kernels."""
    from bench.suites.attention_modules import FusedAttention

    return FusedAttention(workload.family == "causal").eval()
