"""What of a program is refused: which of its nodes, why, and where in the user's code they are."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from tvm_tile.frontend.torch.convert import results
from tvm_tile.frontend.torch.converters import CONVERTERS
from tvm_tile.frontend.torch.decompose import breaks_down
from tvm_tile.frontend.torch.emit import Refusal, dtype_name
from tvm_tile.frontend.torch.weights import unsupported

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
            names = (node.name for nodes in self.nodes.values() for node in nodes)
            raise unsupported("; ".join(parts), tuple(names))


def require_known_numbers(program: ExportedProgram) -> None:
    """Refuse complex and random numbers before any work is done for the other operators.

    PyTorch takes long to break large programs down, and fails at some complex operators. Where
    there are such numbers, operators that no converter is known of are named, too.

    Args:
        program: as the user has it.

    Raises:
        UnsupportedOperatorError: it computes such numbers.
    """
    modules = [m for m in program.graph_module.modules() if isinstance(m, fx.GraphModule)]
    nodes = [n for m in modules for n in m.graph.nodes if n.op == "call_function" and n.users]
    if not any(map(_is_strange, nodes)):
        return
    refused = Refused()
    for node in nodes:
        if _is_strange(node) or _is_unknown(node):
            try:
                refused.add(node, why_unknown(node))
            except Refusal as refusal:
                refused.add(node, str(refusal))
    refused.require_none()


def _is_unknown(node: fx.Node) -> bool:
    """Whether an operator of PyTorch's has no converter, and is broken down no further."""
    is_operator = isinstance(node.target, OpOverload)
    return is_operator and node.target not in CONVERTERS and not breaks_down(node)


def _is_strange(node: fx.Node) -> bool:
    """Whether a node is of complex numbers, or draws random ones and is broken down no further."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.is_complex():
        return True
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags and not breaks_down(node)


def why_unknown(node: fx.Node) -> str:
    """Why there is no converter of a node's operator, as far as that is more than a gap."""
    tags = getattr(node.target, "tags", ())
    if torch.Tag.nondeterministic_seeded in tags:
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
