"""Tensors that are written out in a body or a branch become weights of the program."""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from tvm_tile.frontend.torch.exported import copied_graph, given_functions, with_graph

_OPS = torch.ops.higher_order
# Which argument of an operator holds the operands that all of its functions take last.
_OPERANDS = {
    _OPS.cond: 3,
    _OPS.while_loop: 3,
    _OPS.scan: 3,
    _OPS.map_impl: 2,
    _OPS.associative_scan: 3,
}


def with_region_constants(program: ExportedProgram) -> ExportedProgram:
    """The same program, whose functions are handed the tensors that they hold.

    PyTorch lifts tensors that are written out in a model's code, but not those in a function that
    an operator is given, and then cannot break the program down::

        cond(p, then, otherwise, (x,));  then(x) = x * _tensor_constant0
        =>   cond(p, then, otherwise, (x, c));  then(x, c) = x * c;  otherwise(x, c)
    """
    held = _held(program.graph_module)
    if not held:
        return program
    graph = copied_graph(program)
    first = next(iter(graph.nodes))
    places: dict[int, fx.Node] = {}
    for number, one in enumerate(held.values()):
        with graph.inserting_before(first):
            place = graph.placeholder(f"_region_constant{number}")
        place.meta["val"] = one.value
        places[id(one.tensor)] = place
    pairs = zip(places.values(), held.values(), strict=True)
    constants = {place: (str(place.target), one.tensor) for place, one in pairs}
    return with_graph(program, graph, constants, _handed(program.graph_module, graph, places))


@dataclass(frozen=True, slots=True)
class _Held:
    """A tensor that a function holds, and one without data that is like it."""

    tensor: torch.Tensor
    value: Any


def _held(module: fx.GraphModule) -> dict[int, _Held]:
    """The tensors that a graph holds, and the functions that its operators are given."""
    found: dict[int, _Held] = {}
    for node in module.graph.find_nodes(op="get_attr"):
        value = operator.attrgetter(node.target)(module)
        if isinstance(value, torch.Tensor):
            found.setdefault(id(value), _Held(value, node.meta["val"]))
        elif isinstance(value, fx.GraphModule):
            found |= _held(value)
    return found


def _handed(
    module: fx.GraphModule, graph: fx.Graph, places: Mapping[int, fx.Node]
) -> fx.GraphModule:
    """A graph, changed in place, that reads tensors where they are handed in, and hands them on.

    Args:
        module: whose graph it is a copy of.
        graph: takes these tensors already.
        places: identity of a tensor -> what stands for it.
    """
    functions: dict[str, fx.GraphModule] = {}
    for node in list(graph.nodes):
        given = dict(given_functions(module, node))
        needed = {key: one for inner in given.values() for key, one in _held(inner).items()}
        held = operator.attrgetter(node.target)(module) if node.op == "get_attr" else None
        if id(held) in places:
            node.replace_all_uses_with(places[id(held)])
            graph.erase_node(node)
        elif needed:
            _append(node, tuple(places[key] for key in needed))
            functions |= {name: _taking(inner, needed) for name, inner in given.items()}
    return fx.GraphModule({**dict(module.named_children()), **functions}, graph)


def _append(node: fx.Node, operands: tuple[fx.Node, ...]) -> None:
    """Give an operator further operands, behind those that all of its functions take."""
    place = _OPERANDS.get(node.target)
    args = list(node.args)
    if place is None:  # invoke_subgraph, whose operands are arguments of its own
        node.args = (*args, *operands)
    else:
        args[place] = (*args[place], *operands)
        node.args = tuple(args)


def _taking(module: fx.GraphModule, needed: Mapping[int, _Held]) -> fx.GraphModule:
    """A function that takes these tensors behind what it takes."""
    graph = copy.deepcopy(module.graph)
    last = graph.find_nodes(op="placeholder")[-1:]
    places: dict[int, fx.Node] = {}
    with graph.inserting_after(*last) if last else graph.inserting_before():
        for number, (key, one) in reversed([*enumerate(needed.items())]):
            places[key] = graph.placeholder(f"_region_constant{number}")
            places[key].meta["val"] = one.value
    return _handed(module, graph, places)
