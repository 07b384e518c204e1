"""Weights of a class of their own become the plain tensors that they are made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tvm_tile.frontend.torch.exported import WEIGHTS, copied_graph, weight_of, with_graph

_INNER = "export.access_subclass_inner_tensor.default"


def with_inner_tensors(program: ExportedProgram) -> ExportedProgram:
    """The same program, in which such a weight is several.

    So libraries of quantization keep weights, torchao among them; PyTorch cannot break a program
    down that reads their parts::

        weight: a tensor of codes and scales;  codes = access_subclass_inner_tensor(weight, "qdata")
        =>   weight.qdata: its codes

    What else reads such a weight is left to PyTorch.
    """
    wrapped = {
        spec.arg.name: spec.target
        for spec in program.graph_signature.input_specs
        if spec.kind in WEIGHTS and _is_wrapper(weight_of(program, spec.target))
    }
    if not any(_is_part(node, wrapped) for node in program.graph.nodes):
        return program
    graph = copied_graph(program)
    first = next(iter(graph.nodes))
    places: dict[str, fx.Node] = {}
    constants: dict[fx.Node, tuple[str, torch.Tensor]] = {}
    for node in [node for node in graph.nodes if _is_part(node, wrapped)]:
        weight, attribute = node.args
        name = wrapped[weight.name]
        target = f"{name}.{attribute}"
        if target not in places:
            with graph.inserting_before(first):
                place = graph.placeholder(f"{weight.name}_{attribute}")
            place.meta = dict(node.meta)
            places[target] = place
            constants[place] = target, getattr(weight_of(program, name), attribute).detach()
        node.replace_all_uses_with(places[target])
        graph.erase_node(node)
    for node in graph.find_nodes(op="placeholder"):
        if node.name in wrapped and not node.users:
            graph.erase_node(node)
    return with_graph(program, graph, constants)


def _is_wrapper(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and is_traceable_wrapper_subclass(tensor)


def _is_part(node: fx.Node, wrapped: dict[str, str]) -> bool:
    """Whether a node is a plain tensor of a weight."""
    return str(node.target) == _INNER and node.args[0].name in wrapped
