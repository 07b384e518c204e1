"""What an exported program changes besides what it returns: its buffers and its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from tvm_tile.frontend.torch.emit import dtype_name
from tvm_tile.frontend.torch.exported import weight_of
from tvm_tile.frontend.torch.writes import Writes, writes_in_place
from tvm_tile.graph.signature import Signature, State, dense_bytes

_OF_INPUTS = OutputKind.USER_INPUT_MUTATION
_OF_STATE = frozenset({OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION})
MUTATIONS = _OF_STATE | {_OF_INPUTS}


@dataclass(frozen=True, slots=True)
class Change:
    """A tensor that a call gives a new value.

    Attributes:
        name: of the input, or of the buffer or parameter in the module.
        place: the placeholder of the tensor.
        value: the node of its new value.
    """

    name: str
    place: fx.Node
    value: fx.Node


@dataclass(frozen=True, slots=True)
class Changes:
    """The tensors that a call changes.

    Attributes:
        inputs: the caller's, in the order of the program's inputs.
        state: buffers and parameters, likewise.
        writes: the nodes that write to memory of such a tensor.
    """

    inputs: tuple[Change, ...]
    state: tuple[Change, ...]
    writes: Writes

    @property
    def values(self) -> list[fx.Node]:
        """The nodes of the new values, of the inputs first."""
        return [change.value for change in (*self.inputs, *self.state)]


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
    inputs: list[Change] = []
    state: list[Change] = []
    for spec in signature.input_specs:
        is_input = spec.kind == InputKind.USER_INPUT
        name = str(spec.arg.name if is_input else spec.target)
        value = new.get((is_input, name))
        if value is not None:
            change = Change(name, placeholders[spec.arg.name], value)
            (inputs if is_input else state).append(change)
    tensors = [(change.place, change.value) for change in (*inputs, *state)]
    return Changes(tuple(inputs), tuple(state), writes_in_place(program.graph, tensors))


def states_of(program: ExportedProgram, changes: Changes) -> tuple[State, ...]:
    """What the model keeps, with the values that it has in the program.

    Raises:
        Refusal: an element type that TVM lacks.
    """
    states = []
    for change in changes.state:
        tensor = weight_of(program, change.name)
        signature = Signature(change.name, tuple(tensor.shape), dtype_name(tensor.dtype))
        states.append(State(signature, _bytes(tensor), change.value in changes.writes))
    return tuple(states)


def _bytes(tensor: torch.Tensor) -> bytes:
    dense = tensor.detach().cpu().resolve_neg().contiguous().reshape(-1)
    return dense_bytes(dense.view(torch.uint8).numpy())
