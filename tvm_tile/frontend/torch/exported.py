"""What an exported program holds, and copies of one with another graph."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputSpec, TensorArgument

WEIGHTS = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})
"""Kinds of inputs whose values a program holds."""


def weight_of(program: ExportedProgram, name: str) -> Any:
    """What a program holds by a name: a tensor, for all inputs of the kinds in :data:`WEIGHTS`."""
    return program.state_dict[name] if name in program.state_dict else program.constants[name]


def with_graph(
    program: ExportedProgram,
    graph: fx.Graph,
    constants: Mapping[fx.Node, tuple[str, torch.Tensor]] | None = None,
    module: fx.GraphModule | None = None,
    changes: Sequence[OutputSpec] = (),
) -> ExportedProgram:
    """The program with another graph, which takes the same inputs and weights or fewer.

    Args:
        program: stays as it is.
        graph: with the outputs of the program's, by whatever names.
        constants: placeholder -> the name and the value of a further constant. They are in front
            of the others, in this order.
        module: the functions that the graph's operators are given; the program's where ``None``.
        changes: new values of state and inputs, which the graph returns in front of its outputs.
    """
    further = constants or {}
    signature = copy.deepcopy(program.graph_signature)
    taken = {node.name for node in graph.find_nodes(op="placeholder")}
    specs = [
        InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(place.name), name)
        for place, (name, _) in further.items()
    ]
    left = [spec for spec in signature.input_specs if spec.arg.name in taken]
    gone = {s.target for s in signature.input_specs} - {s.target for s in left}
    signature.input_specs = [*specs, *left]
    signature.output_specs = [*changes, *signature.output_specs]
    outputs = graph.output_node().args[0]
    for spec, output in zip(signature.output_specs, outputs, strict=True):
        if isinstance(output, fx.Node):
            spec.arg.name = output.name
    return ExportedProgram(
        module or program.graph_module,
        graph,
        signature,
        {name: tensor for name, tensor in program.state_dict.items() if name not in gone},
        program.range_constraints,
        program.module_call_graph,
        program.example_inputs,
        {**program.constants, **dict(further.values())},
        verifiers=program.verifiers,
    )


def copied_graph(program: ExportedProgram) -> fx.Graph:
    """A copy of a program's graph, to be changed, whose nodes have the same names."""
    graph = copy.deepcopy(program.graph)
    for node, before in zip(graph.nodes, program.graph.nodes, strict=True):
        node.name = before.name  # also one that Python has taken, such as "input"
    return graph


def given_functions(module: fx.GraphModule, node: fx.Node) -> Iterator[tuple[str, fx.GraphModule]]:
    """The functions that an operator is given, by the attributes that hold them."""
    for other in node.all_input_nodes:
        inner = getattr(module, str(other.target), None) if other.op == "get_attr" else None
        if isinstance(inner, fx.GraphModule):
            yield str(other.target), inner
