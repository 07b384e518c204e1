"""Weights of a class of their own become the plain tensors that they are made of."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tvm_tile.frontend.torch.exported import WEIGHTS, copied_graph, weight_of

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
    taken = _Taken(dict(program.constants), {}, [])
    for node in list(graph.nodes):
        if _is_part(node, wrapped):
            taken.take(node, wrapped, program)
    unread = [
        node.name
        for node in graph.find_nodes(op="placeholder")
        if node.name in wrapped and not node.users
    ]
    return _of(program, graph, taken, unread)


def _is_wrapper(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and is_traceable_wrapper_subclass(tensor)


def _is_part(node: fx.Node, wrapped: dict[str, str]) -> bool:
    """Whether a node is a plain tensor of a weight."""
    return str(node.target) == _INNER and node.args[0].name in wrapped


@dataclass(frozen=True, slots=True)
class _Taken:
    """What was taken out of weights.

    Attributes:
        constants: name -> tensor, of the whole program.
        places: name -> the placeholder of a part.
        specs: of the new placeholders, in their order.
    """

    constants: dict[str, Any]
    places: dict[str, fx.Node]
    specs: list[InputSpec]

    def take(self, node: fx.Node, wrapped: dict[str, str], program: ExportedProgram) -> None:
        """Let a placeholder of its own be in the place of a part of a weight."""
        weight, attribute = node.args
        assert isinstance(weight, fx.Node)
        target = f"{wrapped[weight.name]}.{attribute}"
        if target not in self.places:
            tensor = getattr(weight_of(program, wrapped[weight.name]), str(attribute))
            with node.graph.inserting_before(next(iter(node.graph.nodes))):
                place = node.graph.placeholder(f"{weight.name}_{attribute}")
            place.meta = dict(node.meta)
            self.places[target], self.constants[target] = place, tensor.detach()
            argument = TensorArgument(name=place.name)
            self.specs.insert(0, InputSpec(InputKind.CONSTANT_TENSOR, argument, target))
        node.replace_all_uses_with(self.places[target])
        node.graph.erase_node(node)


def _of(
    program: ExportedProgram, graph: fx.Graph, taken: _Taken, unread: list[str]
) -> ExportedProgram:
    """A program with another graph, without the weights that nothing reads any more."""
    for node in graph.find_nodes(op="placeholder"):
        if node.name in unread:
            graph.erase_node(node)
    signature = copy.deepcopy(program.graph_signature)
    own = [spec for spec in signature.input_specs if spec.arg.name not in unread]
    signature.input_specs = [*taken.specs, *own]
    gone = {s.target for s in program.graph_signature.input_specs if s.arg.name in unread}
    return ExportedProgram(
        program.graph_module,
        graph,
        signature,
        {name: tensor for name, tensor in program.state_dict.items() if name not in gone},
        program.range_constraints,
        program.module_call_graph,
        program.example_inputs,
        taken.constants,
        verifiers=program.verifiers,
    )
