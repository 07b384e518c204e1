"""A graph that calls compiled parts and leaves the rest to PyTorch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import fx
from torch.fx.graph import _BoxedCodeGen

from tvm_tile.torch.cut import GraphPart

Call = Callable[..., Sequence[torch.Tensor]]


def assemble(
    whole: fx.GraphModule, order: Sequence[GraphPart | fx.Node], calls: Mapping[GraphPart, Call]
) -> fx.GraphModule:
    """Write the graph, whose ``forward`` takes its inputs as one list and empties it: of what a
    forward pass has kept for the backward one, nothing stays longer than it is needed.

    Args:
        whole: the graph that was cut; what it holds is shared.
        order: parts and nodes that PyTorch runs, in order, as in :class:`tvm_tile.torch.cut.Cut`.
        calls: each part's program, which returns the part's outputs as PyTorch would lay them out.
    """
    graph = fx.Graph()
    places: dict[fx.Node, fx.Node] = {}
    names: dict[str, Call] = {}
    for node in whole.graph.find_nodes(op="placeholder"):
        places[node] = graph.node_copy(node)
    for one in order:
        if isinstance(one, fx.Node):
            _place(graph, one, places)
            continue
        name = f"part_{len(names)}"
        names[name] = calls[one]
        inputs = tuple(_place(graph, node, places) for node in one.inputs)
        results = graph.call_module(name, inputs)
        for position, node in enumerate(one.outputs):
            places[node] = graph.call_function(operator.getitem, (results, position))
    _place(graph, whole.graph.output_node(), places)
    held = {
        str(node.target): operator.attrgetter(str(node.target))(whole)
        for node in graph.find_nodes(op="get_attr")
    }
    graph.set_codegen(_BoxedCodeGen())
    return fx.GraphModule({**held, **names}, graph)


def eager(part: GraphPart, constants: Mapping[fx.Node, torch.Tensor]) -> fx.GraphModule:
    """A part's operators as PyTorch runs them, from its inputs to its outputs.

    Args:
        part: part of a graph.
        constants: constants that its operators take besides.
    """
    graph = fx.Graph()
    places = {node: graph.placeholder(node.name) for node in part.inputs}
    held = {f"constant_{node.name}": tensor for node, tensor in constants.items()}
    places |= {node: graph.get_attr(n) for n, node in zip(held, constants, strict=True)}
    for maker in part.makers:
        _place(graph, maker, places)
    graph.output(tuple(_place(graph, node, places) for node in part.outputs))
    return fx.GraphModule(held, graph)


def _place(graph: fx.Graph, node: fx.Node, places: dict[fx.Node, fx.Node]) -> fx.Node:
    """A node in a new graph; what it needs, such as views, is made when first needed."""
    if node not in places:
        places[node] = graph.node_copy(node, lambda other: _place(graph, other, places))
    return places[node]
