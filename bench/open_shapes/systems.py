"""What is compared: each way to run a model at an extent that is known at the call only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.open_shapes.models import OpenModel
from bench.systems.torch_eager import bound, captured

Run = Callable[[], Any]
PLAIN, REDUCED, TUNED = "default", "reduce-overhead", "max-autotune-no-cudagraphs"
# Graphs of one module: for one token, and for any number; of each mode.
_MOST_GRAPHS = 64


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to run a model.

    Attributes:
        system: as in records.
        variant: as in records.
        start: given an extent and an input of it, a function that enqueues one run.
        compiled: how many kernels or graphs were compiled until now.
    """

    system: str
    variant: str
    start: Callable[[int, Any], Run]
    compiled: Callable[[], int]


def padded(model: OpenModel, to: int, compiled: Any, extent: int, value: Any) -> Run:
    """A run of a model of extent ``to``, the input copied into a longer one, the mask made.

    What lies behind the input is zero; only the part that belongs to it is returned.

    Args:
        model: which it is.
        to: an extent, no less than that of ``value``.
        compiled: takes inputs of this extent.
        extent: of ``value``.
        value: the input.
    """
    import torch

    if to == extent and model.masked is None:
        return partial(compiled, value)
    shape = list(value.shape)
    shape[model.axis] = to
    longer = value.new_zeros(shape)
    place = longer.narrow(model.axis, 0, extent)
    numbers = torch.arange(to, device=value.device).view(model.mask_input(to).shape)
    mask = torch.empty_like(numbers, dtype=torch.bool)

    def run() -> Any:
        place.copy_(value)
        if model.masked is None:
            found = compiled(longer)
        else:
            torch.lt(numbers, extent, out=mask)
            found = compiled(longer, mask)
        return found.narrow(model.axis, 0, extent)

    return run


class Dynamic:
    """``torch.compile(dynamic=True)`` in several ways; the report takes the best of each point.

    Each mode as it comes; and, on a GPU, its calls captured in a CUDA graph for each extent, which
    leaves neither guards nor launches on the host. ``reduce-overhead`` captures such graphs itself,
    and copies inputs into them: ``default``, captured, is the same without these copies.

    Args:
        module: where it runs, in evaluation mode.
        modes: of ``torch.compile``.
    """

    def __init__(self, module: Any, modes: Sequence[str]) -> None:
        import torch
        import torch._dynamo.config

        torch._dynamo.config.recompile_limit = _MOST_GRAPHS
        torch._dynamo.reset()
        self.functions: Mapping[str, Callable[..., Any]] = {
            mode: torch.compile(module, mode=mode, dynamic=True, fullgraph=True) for mode in modes
        }

    def contenders(self, *, on_gpu: bool) -> list[Contender]:
        """Each way."""
        ways = [
            Contender("dynamic", mode, partial(_called, function), graphs)
            for mode, function in self.functions.items()
        ]
        capturing = self.functions.items() if on_gpu else ()
        return ways + [
            Contender("dynamic", f"{mode}, captured", partial(_captured, function), graphs)
            for mode, function in capturing
            if mode != REDUCED
        ]


def _called(function: Callable[..., Any], _: int, value: Any) -> Run:
    return bound(function, [value])


def _captured(function: Callable[..., Any], _: int, value: Any) -> Run:
    return captured(bound(function, [value]))


def graphs() -> int:
    """How many graphs torch.compile has compiled."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])
