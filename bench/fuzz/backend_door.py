"""Graphs of PyTorch behind ``torch.compile``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from bench.fuzz import torch_door
from bench.fuzz.graph import Graph, Tensor
from tvm_tile.torch import tvm_tile


@dataclass(frozen=True, slots=True)
class Compiled:
    """A graph's module that our backend compiles when it is called.

    Attributes:
        inputs: what a call takes, by name.
        function: the module, compiled.
        place: where PyTorch's tensors are.
    """

    inputs: tuple[Tensor, ...]
    function: Any
    place: str

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = [tensor.to(self.place) for tensor in tensors]
        with torch.no_grad():
            return tuple(output.cpu() for output in self.function(*given))


def compiled(graph: Graph, options: Mapping[str, Any], tensors: torch_door.Tensors) -> Compiled:
    """The graph behind the backend; options are the backend's."""
    place = "cpu" if options["device"] == "emulated" else "cuda"
    module = torch_door.module(graph, tensors, getattr(torch, graph.dtype)).to(place)
    torch.compiler.reset()
    function = torch.compile(module, backend=tvm_tile, dynamic=False, options=dict(options))
    return Compiled(graph.inputs, function, place)
