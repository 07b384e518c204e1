"""Layers of a mixture of experts, with their router: the experts of models of 2023 to 2025.

Routing is drawn: weights of the router are random. ``skewed`` sends half of the tokens to one
expert. Weights are numbers or, of 4 bits, constants of codes: ``int4`` in groups of 128 with a
scale of bfloat16, or ``mxfp4``. The router is computed in float32, as DeepSeek-V3's is: where
halves decide, roundings would send tokens to other experts than the reference's.
"""

from __future__ import annotations

import itertools

from bench.suites.facts import sizes
from bench.workload import BYTES, Case, Input, Workload

SOURCE = (
    "Qwen3-30B-A3B (2048 x 768, 8 of 128), Mixtral 8x7B (4096 x 14336, 2 of 8), an eighth of "
    "DeepSeek-V3's experts (7168 x 2048, 32 of 256, of which a token meets one)"
)
# Hidden and inner sizes, experts, experts of a token, numbers of tokens.
_LAYERS: dict[str, tuple[int, int, int, int, tuple[int, ...]]] = {
    "qwen3_30b_a3b": (2048, 768, 128, 8, (1, 16, 256, 4096)),
    "mixtral_8x7b": (4096, 14336, 8, 2, (1, 16, 256)),
    "deepseek_v3_eighth": (7168, 2048, 32, 1, (1, 16, 256)),
}
_EVEN, _SKEWED = "even", "skewed"
_CODED = ("int4", "mxfp4")  # families of weights of 4 bits, whose routing is even
_CODED_TOKENS = (1, 16, 256)
_SKEWED_TOKENS = 256
_ROUNDED_THRICE = 2  # times the tolerance of a product, whose sums are rounded once


def workloads() -> tuple[Workload, ...]:
    """All layers, with few and with many tokens."""
    found = []
    for name, (hidden, inner, experts, chosen, counts) in _LAYERS.items():
        own = {"H": hidden, "I": inner, "E": experts, "K": chosen}
        for tokens in counts:
            families = (_EVEN, _SKEWED) if tokens == _SKEWED_TOKENS else (_EVEN,)
            for family in families:
                tail = "" if family == _EVEN else f"_{family}"
                facts = sizes(own | {"T": tokens})
                title = f"{name}_{tokens}{tail}"
                found.append(Workload("experts", title, family, "bfloat16", None, facts))
        for family, tokens in itertools.product(_CODED, set(counts) & set(_CODED_TOKENS)):
            facts, title = sizes(own | {"T": tokens}), f"{name}_{tokens}_{family}"
            found.append(Workload("experts", title, family, "bfloat16", None, facts))
    return tuple(found)


def met(tokens: int, experts: int, chosen: int) -> float:
    """Experts that some token meets, on the average."""
    return experts * (1 - (1 - chosen / experts) ** tokens)


def case(workload: Workload) -> Case:
    """The layer; its bytes are those of the experts that tokens meet on the average."""
    from bench.suites.expert_modules import CODED_WEIGHTS, CodedExpertLayer, ExpertLayer
    from bench.suites.tolerance import tolerance

    tokens, hidden, inner, experts, chosen = (workload.size(key) for key in "THIEK")
    dtype = workload.dtype
    shapes = {
        "x": (tokens, hidden),
        "router": (experts, hidden),
        "first": (experts, 2 * inner, hidden),
        "second": (experts, hidden, inner),
    }
    inputs = tuple(Input(shape, dtype) for shape in shapes.values())
    weights, kind = met(tokens, experts, chosen) * 3 * hidden * inner, workload.family
    weights *= CODED_WEIGHTS[kind].bytes if kind in _CODED else BYTES[dtype]
    moved = weights + inputs[1].bytes + 2 * inputs[0].bytes
    flops = 2 * tokens * hidden * (3 * inner * chosen + experts)
    if kind in _CODED:
        inputs = inputs[:2]
        module = CodedExpertLayer(chosen, kind, (experts, inner, hidden))
    else:
        module = ExpertLayer(chosen, is_skewed=kind == _SKEWED)
    limit = _ROUNDED_THRICE * tolerance(dtype)
    return Case(module.eval(), inputs, float(flops), float(moved), "float32", limit)
