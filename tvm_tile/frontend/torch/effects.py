"""What an exported program changes besides what it returns: its buffers and its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.node import map_arg

from tvm_tile.frontend.torch.emit import dtype_name
from tvm_tile.frontend.torch.rows_in_place import WRITERS
from tvm_tile.graph.signature import Signature, State

_OF_INPUTS = OutputKind.USER_INPUT_MUTATION
_OF_STATE = frozenset({OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION})
MUTATIONS = _OF_STATE | {_OF_INPUTS}


@dataclass(frozen=True, slots=True)
class Changes:
    """Placeholders of tensors that a call changes, each with the node of its new value.

    Attributes:
        inputs: of the caller's tensors, in the order of the program's inputs.
        state: of buffers and parameters, likewise.
        names: of the latter, in the module.
        in_place: nodes that may write to their first operand: it is such a tensor, or what another
            of these nodes has made of it, and nobody else reads what it was before.
    """

    inputs: tuple[tuple[fx.Node, fx.Node], ...]
    state: tuple[tuple[fx.Node, fx.Node], ...]
    names: tuple[str, ...]
    in_place: frozenset[fx.Node]


def changes_of(program: ExportedProgram) -> Changes:
    """The tensors that a program changes, and how.

    Args:
        program: functional, as ``run_decompositions`` leaves it.
    """
    signature = program.graph_signature
    outputs = program.graph.output_node().args[0]
    new = {
        (spec.kind == _OF_INPUTS, spec.target): node
        for spec, node in zip(signature.output_specs, outputs, strict=True)
        if spec.kind in MUTATIONS
    }
    placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    inputs, state, names = [], [], []
    for spec in signature.input_specs:
        place = placeholders[spec.arg.name]
        is_input = spec.kind == InputKind.USER_INPUT
        value = new.get((is_input, spec.arg.name if is_input else spec.target))
        if value is None:
            continue
        if is_input:
            inputs.append((place, value))
        else:
            state.append((place, value))
            names.append(str(spec.target))
    writes = frozenset(node for pair in (*inputs, *state) for node in _in_place(*pair))
    return Changes(tuple(inputs), tuple(state), tuple(names), writes)


def _in_place(place: fx.Node, value: fx.Node) -> tuple[fx.Node, ...]:
    """The nodes from a tensor to its new value, where all of them may write to it; else none."""
    chain = []
    node = value
    while node is not place:
        if node.target not in WRITERS:
            return ()
        chain.append(node)
        node = node.args[0]
        reads: list[fx.Node] = []
        for user in node.users:
            map_arg((user.args, user.kwargs), reads.append)
        if reads.count(node) > 1:
            return ()
    return tuple(chain)


def states_of(program: ExportedProgram, changes: Changes) -> tuple[State, ...]:
    """What the model keeps, with the values that it has in the program.

    Raises:
        Refusal: an element type that TVM lacks.
    """
    states = []
    for name, (_, value) in zip(changes.names, changes.state, strict=True):
        tensor = _tensor(program, name)
        signature = Signature(name, tuple(tensor.shape), dtype_name(tensor.dtype))
        states.append(State(signature, _bytes(tensor), value in changes.in_place))
    return tuple(states)


def _tensor(program: ExportedProgram, name: str) -> torch.Tensor:
    held = program.state_dict.get(name)
    found = program.constants[name] if held is None else held
    assert isinstance(found, torch.Tensor)
    return found


def _bytes(tensor: torch.Tensor) -> bytes:
    """Its elements as they lie in memory, in row-major order; empty where all bytes are zero."""
    dense = tensor.detach().cpu().resolve_neg().contiguous().reshape(-1)
    raw = dense.view(torch.uint8)
    return raw.numpy().tobytes() if bool(raw.any()) else b""
