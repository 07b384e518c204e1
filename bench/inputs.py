"""Random inputs of a case, and what its outputs must be."""

from __future__ import annotations

import copy
from typing import Any

from bench.workload import Case, Input


def draw(case: Case, device: str, seed: int) -> tuple[Any, ...]:
    """Fresh inputs on ``device``; the same for the same seed."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    return tuple(_draw(item, device, generator) for item in case.inputs)


def _draw(item: Input, device: str, generator: Any) -> Any:
    import torch

    dtype = getattr(torch, item.dtype)
    if item.below:
        return torch.randint(item.below, item.shape, generator=generator, device=device).to(dtype)
    return torch.randn(item.shape, generator=generator, device=device, dtype=dtype)


def untouched(case: Case) -> tuple[Any, ...]:
    """CPU tensors of the inputs' shapes for tracing; their memory is never read or written."""
    import torch

    return tuple(
        torch.zeros(item.shape, dtype=getattr(torch, item.dtype))
        if item.below
        else torch.empty(item.shape, dtype=getattr(torch, item.dtype))
        for item in case.inputs
    )


def reference(case: Case, inputs: tuple[Any, ...]) -> list[Any]:
    """The case's outputs, computed in ``case.reference`` from the same inputs, on their device."""
    import torch

    from bench.protocol import tensors

    dtype = getattr(torch, case.reference)
    module = copy.deepcopy(case.module).to(device=inputs[0].device, dtype=dtype)
    # One call does not repay trying cuDNN's algorithms, which in float64 are slow.
    with torch.no_grad(), torch.backends.cudnn.flags(benchmark=False, allow_tf32=False):
        widened = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
        return tensors(module(*widened))
