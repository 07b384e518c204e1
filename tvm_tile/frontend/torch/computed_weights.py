"""What a program computes of weights alone, by operators that have no converter, is a weight."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx.node import map_arg

from tvm_tile.frontend.torch.effects import MUTATIONS
from tvm_tile.frontend.torch.exported import WEIGHTS, copied_graph, weight_of, with_graph
from tvm_tile.frontend.torch.node_names import sources
from tvm_tile.frontend.torch.operators import CONVERTERS
from tvm_tile.frontend.torch.operators.higher_order import HIGHER_ORDER


def with_computed_weights(
    program: ExportedProgram, broken_down: ExportedProgram
) -> ExportedProgram:
    """The program with such values as weights, computed by PyTorch; itself where it has none.

    A parametrization computes a layer's weight anew in each call, of parameters that stay::

        w = matrix_exp(p - p.T);  y = linear(x, w)   =>   y = linear(x, w), w a weight

    Args:
        program: as the user has it.
        broken_down: the same, of operators that have converters as far as there are any.
    """
    unknown = {
        name
        for node in broken_down.graph.nodes
        if node.op == "call_function" and not _is_known(node)
        for name in sources(node)
    }
    fixed = computed_of_weights(program)
    behind: set[fx.Node] = set()
    for node in fixed:
        if node.name in unknown or not behind.isdisjoint(node.all_input_nodes):
            behind.add(node)
    ends = [node.name for node in behind if _is_taken(node, fixed)]
    return _with_weights(program, fixed, ends) if ends else program


def _is_known(node: fx.Node) -> bool:
    return node.target in CONVERTERS or node.target in HIGHER_ORDER or _is_item(node)


def _is_item(node: fx.Node) -> bool:
    return node.target is operator.getitem


def _is_taken(node: fx.Node, fixed: Collection[fx.Node]) -> bool:
    """Whether a tensor is read by what computes of the inputs, too, or is returned."""
    is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
    return is_tensor and any(user not in fixed for user in node.users)


def computed_of_weights(program: ExportedProgram) -> dict[fx.Node, None]:
    """The operators that compute of weights alone, so the same in every call, in order."""
    signature = program.graph_signature
    changed = {spec.target for spec in signature.output_specs if spec.kind in MUTATIONS}
    kept = {
        spec.arg.name
        for spec in signature.input_specs
        if spec.kind in WEIGHTS and spec.target not in changed
    }
    found: dict[fx.Node, None] = {}
    for node in program.graph.nodes:
        if node.op == "call_function" and _is_function(node):
            inputs = node.all_input_nodes
            if all(one in found or one.name in kept for one in inputs):
                found[node] = None
    return found


def _is_function(node: fx.Node) -> bool:
    """Whether an operator's results are those of its operands, and it does nothing else."""
    if _is_item(node):
        return True
    if not isinstance(node.target, OpOverload) or node.target._schema.is_mutable:
        return False
    return torch.Tag.nondeterministic_seeded not in node.target.tags


def computed_values(program: ExportedProgram, fixed: Iterable[fx.Node]) -> dict[fx.Node, Any]:
    """Values of a program's weights, and of nodes that compute of these alone."""
    places = program.graph.find_nodes(op="placeholder")
    values: dict[fx.Node, Any] = {
        node: weight_of(program, str(spec.target))
        for spec, node in zip(program.graph_signature.input_specs, places, strict=True)
        if spec.kind in WEIGHTS
    }
    with torch.no_grad():
        for node in fixed:
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*args, **kwargs)
    return values


def _with_weights(
    program: ExportedProgram, fixed: Iterable[fx.Node], ends: Collection[str]
) -> ExportedProgram:
    """The program in which the values of some nodes are weights."""
    known = {node.name: value for node, value in computed_values(program, fixed).items()}
    graph = copied_graph(program)
    first = next(iter(graph.nodes))
    constants: dict[fx.Node, tuple[str, torch.Tensor]] = {}
    for node in [node for node in graph.nodes if node.name in ends]:
        with graph.inserting_before(first):
            place = graph.placeholder(f"_computed_{node.name}")
        place.meta = dict(node.meta)
        constants[place] = str(place.target), known[node.name].detach()
        node.replace_all_uses_with(place)
    graph.eliminate_dead_code()
    return with_graph(program, graph, constants)
