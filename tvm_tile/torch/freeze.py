"""Weights that programs are compiled with, for users who say that these stay as they are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import fx

from tvm_tile.runtime import CompiledModel
from tvm_tile.torch.calls import PartCall
from tvm_tile.torch.cut import GraphPart

LOG = logging.getLogger(__name__)

_address = torch.Tensor.data_ptr
_version = attrgetter("_version")


class FrozenCall:
    """A part as a function of tensors, of which some are compiled in.

    At each call these are compared with what they were: their addresses, and the counts that
    PyTorch keeps of how often each was written to (``_version``). Where others come, as when two
    models share their code, or where one was written to, a program that reads weights takes over.
    What is written through ``.data`` is not counted, nor are statistics that norms in training mode
    update, which PyTorch's schemas do not call writes: the user's word is all that stands for that.

    Args:
        part: the part of a graph that is called.
        values: values of its inputs that are compiled in, which are kept alive, so that no other
            tensor can come to lie there.
        frozen: the part without these inputs.
        thawed: function that makes the part that takes all of them.
    """

    def __init__(
        self,
        part: GraphPart,
        values: Mapping[fx.Node, torch.Tensor],
        frozen: PartCall,
        thawed: Callable[[], PartCall],
    ) -> None:
        self.part = part
        self._fixed = tuple(i for i, node in enumerate(part.inputs) if node in values)
        self._others = tuple(i for i, node in enumerate(part.inputs) if node not in values)
        self._kept = [values[part.inputs[i]] for i in self._fixed]
        self._addresses = list(map(_address, self._kept))
        self._versions = list(map(_version, self._kept))
        self._frozen: PartCall | None = frozen
        self._make = thawed
        self._thawed: PartCall | None = None

    @property
    def model(self) -> CompiledModel:
        """The program that a call would run, were nothing changed since the last."""
        call = self._frozen or self._thawed
        assert call is not None
        return call.model

    def __call__(self, *tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        """The part's outputs, with the strides that PyTorch's own would have.

        Weights are compared once the program is on its way: it writes to nothing of the caller's,
        so that its results can be thrown away, and the GPU need not wait for the comparison.
        """
        if self._frozen is not None:
            results = self._frozen(*[tensors[i] for i in self._others])
            given = [tensors[i] for i in self._fixed]
            if list(map(_address, given)) == self._addresses:
                if list(map(_version, given)) == self._versions:
                    return results
                LOG.warning(
                    "weights that were said to stay have been written to: from now on they are "
                    "read at each call"
                )
                self._frozen = None
                self._kept.clear()
        if self._thawed is None:
            self._thawed = self._make()
        return self._thawed(*tensors)


def freezable(
    graph: fx.Graph, weights: Sequence[int], inputs: Sequence[Any]
) -> dict[fx.Node, torch.Tensor]:
    """The values of a graph's weights that may be compiled in.

    Args:
        graph: graph as AOTAutograd made it.
        weights: positions of the parameters and buffers among its inputs.
        inputs: the tensors that Dynamo's graph was captured with, parameters first.

    Returns:
        Placeholder -> tensor; empty where AOTAutograd has made other inputs of them. Left out are
        what the graph writes to, and tensors of inference mode: nobody counts who writes to these.
    """
    places = list(graph.find_nodes(op="placeholder"))
    if len(places) != len(inputs):
        return {}
    pairs = [(places[at], inputs[at]) for at in weights if not _is_written(at)]
    return {node: tensor for node, tensor in pairs if _is_value_of(tensor, node.meta["val"])}


def _is_written(position: int) -> bool:
    """Whether the graph writes to an input, as far as is known."""
    context = torch._guards.TracingContext.try_get()
    found = None if context is None else context.fw_metadata
    return found is None or found.input_info[position].mutates_data


def _is_value_of(tensor: Any, described: Any) -> bool:
    """Whether a tensor is a plain one of this description, writes to which are counted."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and isinstance(described, torch.Tensor)
        and not tensor.is_inference()
        and tensor.layout is torch.strided
        and (tensor.shape, tensor.stride()) == (described.shape, described.stride())
        and (tensor.dtype, tensor.device) == (described.dtype, described.device)
    )
