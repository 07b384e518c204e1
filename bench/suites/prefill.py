"""Prompts of language models, of lengths that nobody chose: published shapes, a few layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.suites.decode import published
from bench.suites.facts import read_facts
from bench.workload import Case, Input, Workload

if TYPE_CHECKING:
    from bench.suites.networks.decode_step import DecodeStep

FACTS = read_facts("prefill_prompts")
SOURCE = str(FACTS["source"])
_TOLERANCE = 1e-1  # of bfloat16's logits, which have standard deviation 1, about


def workloads() -> tuple[Workload, ...]:
    """Every model, named with how many tokens its prompt has."""
    return tuple(
        Workload("prefill", f"{name}@{tokens}", name, dtype, 1, (("tokens", tokens),))
        for name in FACTS["models"]
        for tokens in FACTS["tokens"]
        for dtype in FACTS["dtypes"]
    )


def case(workload: Workload) -> Case:
    """The model over a prompt, whose first position is an input, with room for no more tokens."""
    import torch

    from bench.suites.networks.decode_step import Prompt, decode_step

    model, tokens = published(workload.family), workload.size("tokens")
    sizes = model["sizes"] | FACTS["sizes"]
    place = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, workload.dtype)
    step = decode_step(model["kind"], sizes, 1, tokens, dtype, place)
    return Case(
        Prompt(step, tokens).to("cpu"),
        (
            Input((1, tokens), "int64", below=sizes["vocab_size"]),
            Input((1,), "int64", value=0),
        ),
        *_cost(step, tokens, sizes),
        "float32",
        _TOLERANCE,
        is_operator=False,
        compared=1,
    )


def _cost(step: DecodeStep, tokens: int, sizes: dict[str, Any]) -> tuple[float, float]:
    """Operations of products with weights, but for words that are not asked for, and of attention
    with the keys before each token; and the least traffic: weights once, the cache written."""
    from torch import nn

    matrices = [module.weight for module in step.modules() if isinstance(module, nn.Linear)]
    head = sizes["vocab_size"] * sizes["hidden_size"]
    multiplied = sum(weight.numel() for weight in matrices) - head
    width = sizes["num_attention_heads"] * sizes["head_dim"]
    pairs = sizes["num_hidden_layers"] * width * tokens * (tokens + 1)
    flops = 2.0 * tokens * multiplied + 2.0 * head + 2.0 * pairs
    return flops, float(sum(w.nbytes for w in matrices) + sum(c.nbytes for c in step.cached()))
