"""What one operator of a program becomes, and its places in the program."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate, map_arg
from torch.fx.traceback import NodeSource

_ATEN = torch.ops.aten


@dataclass(frozen=True, slots=True)
class BrokenDown:
    """What one operator becomes.

    Attributes:
        inputs: placeholders for the operator's tensors, in the order of its arguments.
        body: in order, without the inputs.
        outputs: of ``inputs`` and ``body``.
    """

    inputs: tuple[fx.Node, ...]
    body: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]

    @classmethod
    def of(cls, inputs: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> BrokenDown:
        """The operators of a graph that some outputs need, in order."""
        needed: set[fx.Node] = set()
        left = list(outputs)
        while left:
            node = left.pop()
            if node not in needed:
                needed.add(node)
                left += node.all_input_nodes
        body = tuple(sorted(node for node in needed if node.op == "call_function"))
        return cls(tuple(inputs), body, tuple(outputs))

    @classmethod
    def as_known(cls, node: fx.Node) -> BrokenDown | None:
        """What a convolution of images or a batch norm becomes; ``None`` for other operators.

        Models have them in many shapes, and to ask PyTorch takes 15 ms each.
        """
        if node.kwargs:
            return None
        if node.target is _ATEN.conv2d.default:
            return cls._of_convolution(node)
        return cls._of_norm(node) if node.target is _ATEN.batch_norm.default else None

    @classmethod
    def _of_convolution(cls, node: fx.Node) -> BrokenDown | None:
        left_out = [None, 1, 0, 1, 1][len(node.args) - 2 :]
        given: list[Any] = [*node.args, *left_out]
        x, weight, bias, *each, groups = given
        is_batch = len(x.meta["val"].shape) == len(weight.meta["val"].shape)
        if not is_batch or not x.meta["val"].is_floating_point():
            return None
        graph = fx.Graph()
        inputs = [graph.placeholder(f"x{place}") for place in range(len(tensors_of(node)))]
        windows = [[n, n] if isinstance(n, int) else list(n) for n in each]
        none = [None] if bias is None else []
        arguments = (*inputs, *none, *windows, False, [0, 0], groups)
        made = graph.call_function(_ATEN.convolution.default, arguments)
        made.meta["val"] = node.meta["val"]
        return cls(tuple(inputs), (made,), (made,))

    @classmethod
    def _of_norm(cls, node: fx.Node) -> BrokenDown | None:
        """What a batch norm by given statistics becomes, with a scale and a shift, all of one
        type."""
        *tensors, training, momentum, epsilon, _ = node.args
        if training or not all(isinstance(own, fx.Node) for own in tensors):
            return None
        like = node.meta["val"]
        if {own.meta["val"].dtype for own in tensors_of(node)} != {like.dtype}:
            return None
        graph = fx.Graph()
        inputs = tuple(graph.placeholder(f"x{place}") for place in range(len(tensors)))
        norm = _ATEN._native_batch_norm_legit_no_training.default
        every = graph.call_function(norm, (*inputs, momentum, epsilon))
        every.meta["val"] = (like, like.new_empty(0), like.new_empty(0))
        made = graph.call_function(operator.getitem, (every, 0))
        made.meta["val"] = like
        return cls(inputs, (every, made), (made,))

    def put(
        self,
        graph: fx.Graph,
        tensors: Sequence[fx.Node],
        mode: Any,
        likes: Sequence[torch.Tensor],
        source: NodeSource,
    ) -> tuple[fx.Node, ...]:
        """Write it at the end of a graph, whose tensors without data are of a mode.

        Args:
            graph: the graph that is written.
            tensors: what stands there for the inputs.
            mode: that of the graph's tensors without data.
            likes: tensors of the outputs' shapes, types and strides: views behind these count on
                the strides of PyTorch's own.
            source: the whole operator.
        """
        places = dict(zip(self.inputs, tensors, strict=True))
        for node in self.body:
            places[node] = graph.node_copy(node, places.__getitem__)
            places[node].meta["from_node"] = [source]
            with mode:
                places[node].meta["val"] = map_aggregate(node.meta["val"], empty_like)
        made = tuple(places[node] for node in self.outputs)
        for node, value in zip(made, likes, strict=True):
            if node not in tensors:
                node.meta["val"] = value
        return made


def kind_of(node: fx.Node) -> Any:
    """A key that is equal for nodes that become the same."""
    arguments = map_arg((node.args, node.kwargs), lambda tensor: _signature(tensor.meta["val"]))
    return node.target, repr(arguments)


def _signature(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return tuple(value.shape), value.stride(), value.dtype, value.device


def tensors_of(node: fx.Node) -> tuple[fx.Node, ...]:
    """A node's tensors, in the order of its arguments, each as often as it is one."""
    found: list[fx.Node] = []
    map_arg((node.args, node.kwargs), found.append)
    return tuple(found)


def empty_like(value: Any) -> Any:
    """A tensor of the same shape, strides and type, with any data or none; else the value."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
