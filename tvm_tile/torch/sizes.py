"""Graphs of open sizes: one program for each of the sizes that are called."""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch.aot_autograd import make_boxed_func
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.node import map_aggregate, map_arg

LOG = logging.getLogger(__name__)

# Programs stay in memory; whoever calls with more different sizes than this gets PyTorch's.
_MOST_SIZES = 32

BoxedCall = Callable[[list[Any]], Any]
"""A graph as a function of a list of its inputs, which it may empty."""


def has_open_sizes(graph: fx.Graph) -> bool:
    """Whether an argument of a graph is a number or has an extent that a call decides."""
    return bool(_open(graph))


def _open(graph: fx.Graph) -> tuple[int, ...]:
    """Positions of such arguments."""
    inputs = enumerate(graph.find_nodes(op="placeholder"))
    return tuple(i for i, node in inputs if not _is_settled(node.meta.get("val")))


class PerSize:
    """A graph of open sizes as a function of a list.

    Args:
        graph_module: the graph.
        compiled: function that makes a function of a graph without open sizes.
    """

    def __init__(
        self, graph_module: fx.GraphModule, compiled: Callable[[fx.GraphModule], BoxedCall]
    ) -> None:
        self._graph_module = graph_module
        self._compiled = compiled
        self._open = _open(graph_module.graph)
        self._calls: dict[Any, BoxedCall] = {}
        self._in_pytorch: BoxedCall = make_boxed_func(graph_module.forward)
        self._lock = threading.Lock()

    def __call__(self, args: list[Any]) -> Any:
        """Results of the graph for arguments of any sizes."""
        key = tuple([_key(args[i]) for i in self._open])
        call = self._calls.get(key)
        if call is None:
            with self._lock:
                call = self._calls.get(key) or self._calls.setdefault(key, self._made(args))
        return call(args)

    def _made(self, args: Sequence[Any]) -> BoxedCall:
        """The call for sizes that are new: compiled, or in PyTorch."""
        if len(self._calls) >= _MOST_SIZES:
            if len(self._calls) == _MOST_SIZES:
                LOG.warning("%d sizes are compiled: PyTorch runs all further ones", _MOST_SIZES)
            return self._in_pytorch
        try:
            settled = _settled(self._graph_module, args)
        except Exception as error:  # operators raise what they like of sizes that they cannot tell
            LOG.warning("PyTorch runs a graph whose sizes are not settled by its inputs: %s", error)
            return self._in_pytorch
        return self._compiled(settled)


def _key(arg: Any) -> Any:
    """Key of an argument: a tensor's shape and strides, or the number itself."""
    return (arg.shape, arg.stride()) if isinstance(arg, torch.Tensor) else arg


def _is_settled(value: Any) -> bool:
    """Whether a value's sizes are numbers."""
    if isinstance(value, torch.Tensor):
        return all(isinstance(extent, int) for extent in (*value.shape, *value.stride()))
    return not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float)


def _settled(graph_module: fx.GraphModule, args: Sequence[Any]) -> fx.GraphModule:
    """The graph for arguments of certain sizes.

    Each operator is run on tensors without data; numbers that it only computes with are then known,
    and stand in the graph where they were computed.
    """
    graph = fx.Graph()
    places: dict[fx.Node, Any] = {}
    values: dict[fx.Node, Any] = {}
    left = iter(args)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        for node in graph_module.graph.nodes:
            if node.op == "output":
                graph.output(map_arg(node.args[0], places.__getitem__))
                continue
            if node.op == "placeholder":
                value = next(left)
                if isinstance(value, torch.Tensor):
                    value = mode.from_tensor(value, static_shapes=True)
            elif node.op == "get_attr":
                value = operator.attrgetter(node.target)(graph_module)
            else:
                value = node.target(*_of(node.args, values), **_of(node.kwargs, values))
            values[node] = value
            is_number = isinstance(value, bool | int | float)
            if not is_number or node.op == "placeholder":
                copied = graph.node_copy(node, places.__getitem__)
                copied.meta = {**node.meta, "val": value}
            places[node] = value if is_number else copied
    return fx.GraphModule(graph_module, graph)


def _of(arguments: Any, values: dict[fx.Node, Any]) -> Any:
    """Arguments with nodes replaced by their values."""
    return map_aggregate(arguments, lambda a: values[a] if isinstance(a, fx.Node) else a)
