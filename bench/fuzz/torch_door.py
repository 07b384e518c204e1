"""Graphs of PyTorch: run as they are, and exported."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from bench.fuzz.graph import Graph, Tensor

Tensors = Mapping[str, torch.Tensor]
# Of operators: what they say of two equal values is no question of rounding.
_EXACT = ("eq", "ne", "__get__", "__set__")


def dtype_of(tensor: Tensor, graph_dtype: str) -> torch.dtype:
    return getattr(torch, graph_dtype if tensor.dtype == "float" else tensor.dtype)


def draw(graph: Graph, seed: int) -> dict[str, torch.Tensor]:
    """Fresh values of inputs, in the layouts that they ask for; weights are always the same."""
    return {
        tensor.name: _drawn(tensor, graph.dtype, 77 if tensor.is_weight else seed, at)
        for at, tensor in enumerate(graph.tensors)
    }


def _drawn(tensor: Tensor, graph_dtype: str, seed: int, at: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 1009 + at)
    order = tensor.order or tuple(range(len(tensor.shape)))
    shape = [tensor.shape[axis] for axis in order]
    if tensor.dtype == "float":
        values = torch.randn(shape, generator=generator) * tensor.scale
    elif tensor.below or tensor.dtype == "bool":
        values = torch.randint(max(1, tensor.below), shape, generator=generator)
    else:
        values = whole_range(shape, getattr(torch, tensor.dtype), generator)
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return values.to(dtype_of(tensor, graph_dtype)).permute(inverse)


def whole_range(
    shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Integers from all of a type, its ends and those next to zero often among them."""
    info = torch.iinfo(dtype)
    ends = [info.min, info.min + 1, info.max - 1, info.max, 0, 1, -1 if info.min else 2, 100]
    drawn = torch.randint(info.min, info.max, shape, generator=generator, dtype=dtype)
    at = torch.randint(len(ends), shape, generator=generator)
    is_end = torch.rand(shape, generator=generator) < 0.2
    return torch.where(is_end, torch.tensor(ends, dtype=dtype)[at], drawn)


def source(graph: Graph) -> str:
    """The graph as a module's code."""
    arguments = ", ".join(["self", *(tensor.name for tensor in graph.inputs)])
    weights = ", ".join(["self", *(tensor.name for tensor in graph.weights)])
    lines = ["class Model(torch.nn.Module):", f"    def __init__({weights}):"]
    lines.append("        super().__init__()")
    for tensor in graph.weights:
        lines.append(f"        self.register_buffer('{tensor.name}', {tensor.name})")
    lines.append(f"    def forward({arguments}):")
    lines += [f"        {tensor.name} = self.{tensor.name}" for tensor in graph.weights]
    lines += [f"        {line}" for line in graph.lines()]
    comma = "," if len(graph.outputs) == 1 else ""
    return "\n".join([*lines, f"        return {', '.join(graph.outputs)}{comma}"])


def module(graph: Graph, tensors: Tensors, float_dtype: torch.dtype) -> torch.nn.Module:
    """The graph as a module whose floats have this type."""
    names: dict[str, Any] = {"torch": torch, "F": F, "FLOAT": float_dtype}
    exec(source(graph), names)
    weights = (tensors[tensor.name] for tensor in graph.weights)
    made = names["Model"](*(as_float(weight, float_dtype) for weight in weights))
    return made.eval()


def as_float(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def inputs_of(graph: Graph, tensors: Tensors) -> tuple[torch.Tensor, ...]:
    return tuple(tensors[tensor.name] for tensor in graph.inputs)


def run(graph: Graph, tensors: Tensors, float_dtype: torch.dtype) -> list[torch.Tensor]:
    """The graph's outputs in another floating-point type.

    Attention is the sum that it is defined by: PyTorch's fused kernel for CPUs makes zeros of rows
    all of whose scores are NaN.
    """
    given = (as_float(tensor, float_dtype) for tensor in inputs_of(graph, tensors))
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        return list(module(graph, tensors, float_dtype)(*given))


class _Rounding(TorchFunctionMode):
    """Makes the floating-point operands of each operator that is called off by a rounding.

    Two uses of one value are off by different ones, as where a compiler computes the value twice,
    or keeps more of its digits in one place: so ``x * x - x * x`` is small, but not 0.
    """

    def __init__(self, amplitude: float, seed: int) -> None:
        super().__init__()
        self.amplitude = amplitude
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        is_exact = getattr(function, "__name__", "") in _EXACT
        args = args if is_exact else tuple(map(self._rounded, args))
        return function(*args, **(kwargs or {}))

    def _rounded(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(self._rounded, value))
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float64:
            return value
        noise = torch.randn(value.shape, generator=self.generator, dtype=value.dtype)
        return value * (1 + self.amplitude * noise)


def run_rounded(graph: Graph, tensors: Tensors, amplitude: float, seed: int) -> list[torch.Tensor]:
    """The graph's outputs in float64, where each operator's operands are off by ``amplitude``."""
    given = (as_float(tensor, torch.float64) for tensor in inputs_of(graph, tensors))
    made = module(graph, tensors, torch.float64)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), _Rounding(amplitude, seed):
        return list(made(*given))


def exported(graph: Graph, tensors: Tensors) -> torch.export.ExportedProgram:
    """What ``torch.export`` makes of the graph in its own type."""
    dtype = getattr(torch, graph.dtype)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        return torch.export.export(module(graph, tensors, dtype), inputs_of(graph, tensors))


def call(text: str, values: Mapping[str, torch.Tensor]) -> Sequence[torch.Tensor]:
    """One line of a graph, run at once on samples: its results."""
    names: dict[str, Any] = {"torch": torch, "F": F, "FLOAT": torch.float64, **values}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = eval(text, names)
    return (result,) if isinstance(result, torch.Tensor) else tuple(result)
