"""Operators of a program that nobody can import, and how users are told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from tvm_tile.frontend.torch.convert import given_arguments, results
from tvm_tile.frontend.torch.converters import CONVERTERS
from tvm_tile.frontend.torch.decompose import decompositions
from tvm_tile.frontend.torch.emit import Refusal, dtype_name
from tvm_tile.frontend.torch.weights import unsupported
from tvm_tile.frontend.torch.writes import needed

_NAMED_NODES = 4
_RANDOM = "random numbers"
# What PyTorch's schemas call the switches of operators that draw random numbers in training.
_TRAINING = frozenset({"train", "training"})
_PROBABILITIES = frozenset({"p", "dropout", "dropout_p"})


def require_known(program: ExportedProgram) -> None:
    """Refuse what no breaking down can make known, which takes a while; others are refused later.

    Raises:
        UnsupportedOperatorError: operators that cannot be imported, all of them by name.
    """
    table = decompositions()
    refused: dict[str, list[fx.Node]] = {}
    for node in _operators(program):
        if draws(node):
            refused.setdefault(reason(node, _RANDOM), []).append(node)
        elif _is_unknown(node.target, table):
            try:
                why = why_unknown(node)
            except Refusal as refusal:
                why = str(refusal)
            refused.setdefault(reason(node, why), []).append(node)
    require_none(refused)


def require_none(refused: Mapping[str, list[fx.Node]]) -> None:
    """Raise an error that names everything that was refused, by the reason, if anything was."""
    if refused:
        parts = (f"{why} ({_places(nodes)})" for why, nodes in refused.items())
        names = (node.name for nodes in refused.values() for node in nodes)
        raise unsupported("; ".join(parts), tuple(names))


def reason(node: fx.Node, why: str) -> str:
    """Why a node is refused, with its operator; equal for nodes that are named together."""
    return f"{_operator(node)}: {why}"


def draws(node: fx.Node) -> bool:
    """Whether an operator draws random numbers, as dropout does in training."""
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    given = given_arguments(node)
    schema = node.target._schema.arguments
    values = {
        argument.name: given.get(argument.name, argument.default_value) for argument in schema
    }
    is_off = any(values[name] is False for name in _TRAINING & values.keys())
    return not is_off and all(values[name] != 0 for name in _PROBABILITIES & values.keys())


def _operators(program: ExportedProgram) -> Iterator[fx.Node]:
    """The calls of operators that some output needs, in functions within the program, too."""
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            for node in needed(module.graph, {}):
                if isinstance(node.target, OpOverload) and not node.target._schema.is_mutable:
                    yield node


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
    if torch.Tag.nondeterministic_seeded in tags:
        return _RANDOM
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
