"""What of a program is refused: which of its nodes, why, and where in the user's code they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from tvm_tile.frontend.torch.computed_weights import computed_of_weights
from tvm_tile.frontend.torch.convert import results
from tvm_tile.frontend.torch.decompose import decompositions
from tvm_tile.frontend.torch.emit import Refusal, dtype_name
from tvm_tile.frontend.torch.node_names import sources
from tvm_tile.frontend.torch.operators import CONVERTERS
from tvm_tile.frontend.torch.weights import unsupported
from tvm_tile.frontend.torch.writes import needed

_NAMED_NODES = 4


@dataclass(frozen=True, slots=True)
class Refused:
    """Nodes that were refused.

    Attributes:
        nodes: the operator and why it was refused -> these nodes.
    """

    nodes: dict[str, list[fx.Node]] = field(default_factory=dict)

    def add(self, node: fx.Node, why: str) -> None:
        """Note a node."""
        self.nodes.setdefault(f"{_operator(node)}: {why}", []).append(node)

    def require_none(self) -> None:
        """Raise an error that names everything that was refused, if anything was."""
        if self.nodes:
            parts = (f"{why} ({_places(nodes)})" for why, nodes in self.nodes.items())
            refused = [node for nodes in self.nodes.values() for node in nodes]
            names = (name for node in refused for name in (node.name, *sources(node)))
            raise unsupported("; ".join(parts), tuple(names))


def require_known_operators(program: ExportedProgram) -> None:
    """Refuse operators that no breaking down can make known, which takes a while.

    Others are refused when they are converted, and what is computed of weights alone PyTorch can
    compute.

    Args:
        program: of plain tensors.

    Raises:
        UnsupportedOperatorError: operators that cannot be imported, all of them by name.
    """
    table, fixed = decompositions(), computed_of_weights(program)
    refused = Refused()
    for node in _operators(program):
        if node in fixed or not _is_unknown(node.target, table):
            continue
        try:
            refused.add(node, why_unknown(node))
        except Refusal as refusal:
            refused.add(node, str(refusal))
    refused.require_none()


def _operators(program: ExportedProgram) -> Iterator[fx.Node]:
    """The calls of operators that some output needs, in functions within the program, too."""
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            for node in needed(module.graph, {}):
                if isinstance(node.target, OpOverload) and not node.target._schema.is_mutable:
                    yield node


def draws_numbers(node: fx.Node) -> bool:
    """Whether a node may draw random numbers; some do so in training alone."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _is_unknown(operator: OpOverload, table: Mapping[Any, Any]) -> bool:
    """Whether an operator stays in a program as it is, and has no converter.

    Views may go, and numbers that data decide are told apart later: some are places.
    """
    is_view = any(argument.alias_info for argument in operator._schema.arguments)
    if is_view or torch.Tag.data_dependent_output in operator.tags:
        return False
    return operator not in CONVERTERS and operator not in table and not operator._can_decompose()


def why_unknown(node: fx.Node) -> str:
    """Why there is no converter of a node's operator, as far as that is more than a gap."""
    tags = getattr(node.target, "tags", ())
    if draws_numbers(node):
        return "random numbers"
    if torch.Tag.data_dependent_output in tags:
        return "a number that only the data decide"
    for result in results(node):
        dtype_name(result.dtype)
    # What PyTorch's schemas call so; its own decompositions do some of these.
    is_gradient = "backward" in str(node.target)
    return "a gradient, no converter" if is_gradient else "no converter"


def _operator(node: fx.Node) -> str:
    """The operator's name; of a function of functions with the names of these."""
    functions = [str(argument) for argument in node.args if isinstance(argument, OpOverload)]
    return " of ".join((str(node.target), *functions))


def _places(nodes: list[fx.Node]) -> str:
    """Names of nodes, and the line of the model's code that the first is from."""
    names = ", ".join(node.name for node in nodes[:_NAMED_NODES])
    more = ", ..." if len(nodes) > _NAMED_NODES else ""
    lines = [line.strip() for line in (nodes[0].stack_trace or "").splitlines() if line.strip()]
    code = f", from `{lines[-1]}`" if lines else ""
    return f"nodes {names}{more}{code}"
