"""What an exported program holds, and copies of one with another graph."""

from __future__ import annotations

import copy
from typing import Any

from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind

WEIGHTS = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})
"""Kinds of inputs whose values a program holds."""


def weight_of(program: ExportedProgram, name: str) -> Any:
    """What a program holds by a name: a tensor, for all inputs of the kinds in :data:`WEIGHTS`."""
    return program.state_dict[name] if name in program.state_dict else program.constants[name]


def with_graph(
    program: ExportedProgram, graph: fx.Graph, signature: ExportGraphSignature
) -> ExportedProgram:
    """The program with another graph, whose inputs and outputs ``signature`` names."""
    return ExportedProgram(
        program.graph_module,
        graph,
        signature,
        program.state_dict,
        program.range_constraints,
        program.module_call_graph,
        program.example_inputs,
        program.constants,
        verifiers=program.verifiers,
    )


def rename_outputs(signature: ExportGraphSignature, graph: fx.Graph) -> None:
    """Let a signature name what a graph returns."""
    outputs = graph.output_node().args[0]
    for spec, output in zip(signature.output_specs, outputs, strict=True):
        if isinstance(output, fx.Node):
            spec.arg.name = output.name


def copied_graph(program: ExportedProgram) -> fx.Graph:
    """A copy of a program's graph, to be changed, whose nodes have the same names."""
    graph = copy.deepcopy(program.graph)
    for node, before in zip(graph.nodes, program.graph.nodes, strict=True):
        node.name = before.name  # also one that Python has taken, such as "input"
    return graph
