"""Calls of compiled parts, with PyTorch's tensors in and out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from tvm_tile.errors import TileError
from tvm_tile.runtime import CompiledModel
from tvm_tile.torch.assemble import eager
from tvm_tile.torch.cut import GraphPart
from tvm_tile.torch.layout import is_row_major, memory_order, real_view
from tvm_tile.torch.program import program_of

LOG = logging.getLogger(__name__)

_Layout = tuple[tuple[int, ...], tuple[int, ...]]


class PartCall:
    """A part as a function of tensors.

    Where the program fails at a call, for example for want of its device, PyTorch runs the part's
    operators then and from then on.

    Args:
        part: the part of a graph that is called.
        model: model that its program was compiled to.
        constants: constants that its operators take besides its inputs.
    """

    def __init__(
        self, part: GraphPart, model: CompiledModel, constants: Mapping[fx.Node, torch.Tensor]
    ) -> None:
        self.part = part
        self.model = model
        self._constants = constants
        self._orders = tuple(memory_order(node.meta["val"]) for node in part.inputs)
        inputs, outputs = ([n.meta["val"] for n in nodes] for nodes in (part.inputs, part.outputs))
        self._is_plain = not any(self._orders) and not any(t.is_complex() for t in inputs)
        self._is_complex = tuple(t.is_complex() for t in outputs)
        self._layouts = tuple(_layout(node.meta["val"]) for node in part.outputs)
        self._eager: Callable[..., Sequence[torch.Tensor]] | None = None

    def __call__(self, *tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        """The part's outputs, with the strides that PyTorch's own would have."""
        if self._eager is not None:
            return self._eager(*tensors)
        given: Sequence[torch.Tensor] = tensors
        if not self._is_plain:
            pairs = zip(tensors, self._orders, strict=True)
            given = [real_view(t if order is None else t.permute(order)) for t, order in pairs]
        try:
            results = self.model.call_torch(given)
        except TileError as error:
            LOG.warning("a compiled part failed, PyTorch runs it from now on: %s", error)
            self._eager = eager(self.part, self._constants).forward
            return self._eager(*tensors)
        typed = zip(results, self._is_complex, strict=True)
        values = [torch.view_as_complex(t) if is_complex else t for t, is_complex in typed]
        laid_out = zip(values, self._layouts, strict=True)
        return [t if layout is None else _laid_out(t, *layout) for t, layout in laid_out]


def _layout(tensor: torch.Tensor) -> _Layout | None:
    """Extents and strides of an output; None where a new tensor of its shape has these."""
    return None if is_row_major(tensor) else (tuple(tensor.shape), tensor.stride())


def _laid_out(tensor: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """A part's output, in memory's order, as PyTorch would return it."""
    if tensor.numel() == _extent(shape, strides):
        return tensor.as_strided(shape, strides)
    made = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


def _extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """How many elements of memory a tensor reaches over."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))


def program_call(
    part: GraphPart,
    compiled: Callable[[Any, int], CompiledModel],
    constants: Mapping[fx.Node, torch.Tensor],
) -> PartCall:
    """Compile a part, given as a program and the number of its weights.

    Args:
        part: the part of a graph that is compiled.
        compiled: function that makes a model of the two, and raises what this function does.
        constants: constants that its operators take besides its inputs.
    """
    return PartCall(part, compiled(program_of(part, constants), part.weights), constants)
