"""Random inputs of a case, and what its outputs must be."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from bench.workload import Case, Input

if TYPE_CHECKING:
    from bench.workload import Look


def draw(case: Case, device: str, seed: int) -> tuple[Any, ...]:
    """Fresh inputs on ``device``; the same for the same seed."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    return tuple(_draw(item, device, generator) for item in case.inputs)


def _draw(item: Input, device: str, generator: Any) -> Any:
    import torch

    dtype = getattr(torch, item.dtype)
    if item.value is not None:
        return torch.full(item.shape, item.value, dtype=dtype, device=device)
    if item.below:
        return torch.randint(item.below, item.shape, generator=generator, device=device).to(dtype)
    return torch.randn(item.shape, generator=generator, device=device, dtype=dtype)


def untouched(case: Case) -> tuple[Any, ...]:
    """CPU tensors of the inputs' shapes for tracing; their memory is never read or written."""
    import torch

    return tuple(
        torch.zeros(item.shape, dtype=getattr(torch, item.dtype))
        if item.below or item.value is not None
        else torch.empty(item.shape, dtype=getattr(torch, item.dtype))
        for item in case.inputs
    )


def reference(case: Case, inputs: tuple[Any, ...]) -> tuple[list[Any], Look | None]:
    """What a case's runs are compared with, from the same inputs and on their device.

    Returns:
        The outputs that are compared, computed in ``case.reference``, and what looks at runs
        besides, if the case has that.
    """
    import torch

    from bench.protocol import tensors

    dtype = getattr(torch, case.reference)
    # Moved, then widened: there is less to move.
    module = copy.deepcopy(case.module).to(inputs[0].device).to(dtype)
    # One call does not repay trying cuDNN's algorithms, which in float64 are slow.
    with torch.no_grad(), torch.backends.cudnn.flags(benchmark=False, allow_tf32=False):
        widened = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
        outputs = tensors(module(*widened))[: case.compared]
        return outputs, case.examine and case.examine(module, inputs)


class Placed:
    """Modules on a device, with parameters that are there once, whoever asks for them.

    Nobody may write to these; buffers each copy has of its own.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        # Parameters are kept with those on the device: no other gets a former one's id.
        self._parameters: dict[int, tuple[Any, Any]] = {}

    def __call__(self, module: Any) -> Any:
        """A copy of the module in evaluation mode, its parameters shared."""
        memo = {id(one): self._parameter(one) for one in module.parameters()}
        return copy.deepcopy(module, memo).to(self._device).eval()

    def _parameter(self, given: Any) -> Any:
        import torch

        if id(given) not in self._parameters:
            there = torch.nn.Parameter(given.detach().to(self._device), given.requires_grad)
            self._parameters[id(given)] = given, there
        return self._parameters[id(given)][1]
