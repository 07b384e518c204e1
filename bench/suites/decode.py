"""One step of language models: published shapes, random weights, a cache that is filled so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from bench.suites.facts import read_facts
from bench.workload import Case, Findings, Input, Workload

if TYPE_CHECKING:
    import torch

    from bench.gpu import Stage
    from bench.suites.networks.decode_step import DecodeStep

FACTS = read_facts("decode_models")
SOURCE = str(FACTS["source"])
# Rows of the cache behind those that are filled: transformers' caches have room, too.
ROOM = 64
GREEDY_STEPS = 32
SAME_CALLS = 1000
# What comparing calls may take; there may then be fewer.
_SAME_S = 10.0
# Random weights' logits have standard deviation 1, about, and 2 to 32 layers of roundings.
_TOLERANCES = {"float32": 1e-3, "float16": 3e-2, "bfloat16": 1e-1}


def workloads() -> tuple[Workload, ...]:
    """Every model, named with how many tokens are in its cache, with 1, 4 and 16 sequences."""
    return tuple(
        Workload(
            "decode",
            f"{model['name']}@{context}",
            model["name"],
            dtype,
            batch,
            (("context", context),),
        )
        for model in FACTS["models"]
        for context in model["contexts"]
        for dtype in FACTS["dtypes"]
        for batch in FACTS["batches"]
    )


def published(name: str) -> dict[str, Any]:
    """A model's facts: the ``kind`` of its configuration, and ``sizes`` of this."""
    (model,) = (model for model in FACTS["models"] if model["name"] == name)
    found: dict[str, Any] = model
    return found


def case(workload: Workload) -> Case:
    """The step with random weights, drawn on the GPU if there is one.

    Sizes of the workload are instead of the model's.
    """
    model = published(workload.family)
    own = dict(workload.sizes)
    sizes = {name: own.get(name, size) for name, size in model["sizes"].items()}
    return step_case(workload, model["kind"], sizes)


def step_case(workload: Workload, kind: str, sizes: Mapping[str, Any]) -> Case:
    """A workload of a model of any sizes; see :func:`bench.suites.networks.decode_step`."""
    import torch

    from bench.suites.networks.decode_step import decode_step

    context, batch = workload.size("context"), workload.batch or 1
    dtype = getattr(torch, workload.dtype)
    place = "cuda" if torch.cuda.is_available() else "cpu"
    step = decode_step(kind, sizes, batch, context + ROOM, dtype, place).to("cpu")
    flops, traffic = cost(step, batch, context, sizes)
    return Case(
        step,
        (
            Input((batch, 1), "int64", below=int(sizes["vocab_size"])),
            Input((1,), "int64", value=context),
        ),
        flops,
        traffic,
        "float32",
        _TOLERANCES[workload.dtype],
        is_operator=False,
        compared=1,
        examine=_greedy,
    )


def cost(
    step: DecodeStep, batch: int, context: int, sizes: Mapping[str, Any]
) -> tuple[float, float]:
    """Operations of its products with weights, and least traffic of a step.

    Each weight is read once, but for tables of which rows are looked up, and of experts as many as
    tokens can choose; of the cache so many rows as are filled; logits are written.
    """
    from torch import nn

    chosen = sizes.get("num_experts_per_tok")
    taken = min(1.0, batch * chosen / sizes["num_local_experts"]) if chosen else 1.0
    products = {id(m.weight) for m in step.modules() if not isinstance(m, nn.Embedding) and _has(m)}
    read = multiplied = 0.0
    for weight in step.parameters():
        if weight.ndim == 3:  # of experts
            read += taken * weight.nbytes
            multiplied += weight.numel() * (chosen or 1) / len(weight)
        elif id(weight) in products or weight.ndim < 2:
            read += weight.nbytes
            multiplied += weight.numel()
    filled = 0.0
    for cached in step.cached():
        is_growing = cached.shape[2] == context + ROOM
        rows = context + 1 if is_growing else cached.shape[2]
        filled += cached.nbytes * rows / cached.shape[2]
    logits = batch * sizes["vocab_size"] * next(step.cached()).element_size()
    return 2.0 * batch * multiplied, read + filled + logits


def _has(module: Any) -> bool:
    return getattr(module, "weight", None) is not None


def _greedy(
    reference: torch.nn.Module, inputs: tuple[Any, ...]
) -> Callable[[Callable[[], Any], Stage], Findings]:
    """Steps of the reference by its own tokens, and what looks at another's steps by these."""
    import torch

    tokens, position = inputs
    first, context = tokens.clone(), int(position)
    taken = [first]
    with torch.no_grad():
        for number in range(GREEDY_STEPS):
            at = torch.full_like(position, context + number)
            taken.append(reference(taken[-1], at)[1])

    def begin() -> None:
        tokens.copy_(first)
        position.fill_(context)

    def look(run: Callable[[], Any], stage: Stage) -> Findings:
        with torch.inference_mode():
            equal = torch.zeros((), dtype=torch.int64, device=tokens.device)
            for given, wanted in pairwise(taken):
                tokens.copy_(given)
                equal += (run()[1] == wanted).sum()
                position.add_(1)
            begin()
            chained = _chained_seconds(run, stage, tokens, position)
            begin()
            calls, differing = _same_calls(run, stage)
        return Findings(
            steps=GREEDY_STEPS * len(first),
            same_tokens=int(equal),
            calls=calls,
            differing_calls=differing,
            chained_ms=chained * 1e3,
        )

    return look


def _chained_seconds(run: Callable[[], Any], stage: Stage, tokens: Any, position: Any) -> float:
    """Seconds of a step where each takes the tokens of the one before, all on the device."""
    stage.synchronize()
    start = time.perf_counter()
    for _ in range(GREEDY_STEPS):
        tokens.copy_(run()[1])
        position.add_(1)
    stage.synchronize()
    return (time.perf_counter() - start) / GREEDY_STEPS


def _same_calls(run: Callable[[], Any], stage: Stage) -> tuple[int, int]:
    """Calls of one step, and how many gave other bits than the first."""
    import torch

    expected = run()[0].clone().view(torch.uint8)
    differing = torch.zeros((), dtype=torch.int64, device=expected.device)
    stage.synchronize()
    start, calls = time.perf_counter(), 0
    while calls < SAME_CALLS and time.perf_counter() - start < _SAME_S:
        for _ in range(10):
            differing += (run()[0].view(torch.uint8) != expected).any()
        calls += 10
        stage.synchronize()
    return calls, int(differing)
