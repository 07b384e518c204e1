"""A part of a graph as an exported program of its own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.utils import _pytree as pytree

from tvm_tile.torch.cut import GraphPart
from tvm_tile.torch.layout import inverse, memory_order, real_view

_PERMUTE = torch.ops.aten.permute.default
_ALIAS = torch.ops.aten.alias.default
_AS_COMPLEX = torch.ops.aten.view_as_complex.default
_AS_REAL = torch.ops.aten.view_as_real.default
_STRIDED = torch.ops.aten.as_strided.default


def program_of(part: GraphPart, constants: Mapping[fx.Node, torch.Tensor]) -> ExportedProgram:
    """The program that takes a part's inputs and returns its outputs, in their order.

    Its operators have the names of the part's nodes. Tensors that are dense in another order than
    row-major are taken and returned in that order, and complex ones as real ones of one more
    dimension: see :mod:`tvm_tile.torch.layout`.

    Args:
        part: the part of a graph that is made a program.
        constants: constants that its operators take besides, which the program holds.
    """
    graph = fx.Graph()
    held = {graph.placeholder(f"weight_{n.name}"): value for n, value in constants.items()}
    inputs = [graph.placeholder(f"input_{node.name}") for node in part.inputs]
    places = {
        node: _as_seen(graph, given, node) for given, node in zip(inputs, part.inputs, strict=True)
    }
    for given, node in zip(held, constants, strict=True):
        given.meta["val"] = node.meta["val"]
        places[node] = given

    def place(node: fx.Node) -> fx.Node:
        """A node in the new graph; views are made when first needed."""
        if node not in places:
            if node.target is _STRIDED:  # of which only those that keep their elements come here
                copied = graph.call_function(_ALIAS, (place(node.all_input_nodes[0]),))
            else:
                copied = graph.node_copy(node, place)
            copied.meta = dict(node.meta)
            places[node] = copied
        return places[node]

    for maker in part.makers:
        place(maker)
    outputs = [_as_stored(graph, place(node)) for node in part.outputs]
    graph.output(tuple(outputs))
    return _exported(graph, inputs, outputs, held)


def _as_seen(graph: fx.Graph, given: fx.Node, node: fx.Node) -> fx.Node:
    """An input as the part's operators see it."""
    value = node.meta["val"]
    order = memory_order(value)
    stored = value if order is None else value.permute(order)
    given.meta["val"] = real_view(stored)
    if value.is_complex():
        given = graph.call_function(_AS_COMPLEX, (given,))
        given.meta["val"] = stored
    return given if order is None else _permuted(graph, given, inverse(order))


def _as_stored(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """An output as it lies in memory."""
    order = memory_order(node.meta["val"])
    stored = node if order is None else _permuted(graph, node, order)
    if not stored.meta["val"].is_complex():
        return stored
    made = graph.call_function(_AS_REAL, (stored,))
    made.meta["val"] = real_view(stored.meta["val"])
    return made


def _permuted(graph: fx.Graph, node: fx.Node, order: tuple[int, ...]) -> fx.Node:
    """A permutation of a node's axes, added to the graph."""
    made = graph.call_function(_PERMUTE, (node, list(order)))
    made.meta["val"] = node.meta["val"].permute(order)
    return made


def _exported(
    graph: fx.Graph,
    inputs: list[fx.Node],
    outputs: list[fx.Node],
    held: Mapping[fx.Node, torch.Tensor],
) -> ExportedProgram:
    """A graph as an exported program."""
    weights = [InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(n.name), n.name) for n in held]
    given = [InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None) for node in inputs]
    signature = ExportGraphSignature(
        [*weights, *given],
        [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in outputs],
    )
    in_spec = pytree.tree_structure((tuple(inputs), {}))
    out_spec = pytree.tree_structure(tuple(outputs))
    entry = ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec))
    root = fx.GraphModule({}, graph)
    values = {node.name: tensor.detach() for node, tensor in held.items()}
    return ExportedProgram(root, graph, signature, {}, {}, [entry], None, values)
