"""What a PyTorch user calls the nodes of an exported program: paths of modules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import fx
from torch.export import ExportedProgram

_LIBRARY = "torch.nn.modules."
# Of modules that Dynamo traced: L['self'].layers._modules['0']
_ROOT = re.compile(r"^L\['self'\]\.?|^L__self___?")
_ITEM = re.compile(r"\.?(?:_modules)?\[['\"]?(\w+)['\"]?\]")


@dataclass(frozen=True, slots=True)
class NodeNames:
    """Names of a program's nodes, and of those that they are broken down to.

    A module of PyTorch's own is called by its path, ``layer1.0.conv2``, and so is one whose
    ``forward`` is one operator. An operator in another module's ``forward`` is called by the path
    and what it does: ``layer1.0.add``.

    Attributes:
        known: node of the program, by its own name and the number of nodes that it was broken down
            from -> its name for people.
    """

    known: Mapping[tuple[str, int], str]

    @classmethod
    def of(cls, program: ExportedProgram) -> NodeNames:
        """Those of a program as the user has it."""
        nodes = [node for node in program.graph.nodes if node.op == "call_function"]
        counts = Counter(_module(node)[0] for node in nodes)
        parents = {parent for path in counts for parent in _parents(path)}
        single = {path for path, count in counts.items() if count == 1} - parents
        return cls(
            {
                (node.name, len(_sources(node))): _name(node, _module(node)[0] in single)
                for node in nodes
            }
        )

    def __call__(self, node: fx.Node) -> str:
        """The name of a node of the program, or of what it was broken down to."""
        names = [node.name, *_sources(node)]
        found = (self.known.get((name, len(names) - n)) for n, name in enumerate(names, 1))
        return next(filter(None, found), None) or _name(node, is_only=False)


def _parents(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition(".")[0]
        yield path


def _sources(node: fx.Node) -> list[str]:
    """The names of the nodes that one was broken down from, the last one first."""
    sources, names = node.meta.get("from_node"), []
    while sources:
        names.append(str(sources[-1].name))
        sources = sources[-1].from_node
    return names


def _name(node: fx.Node, is_only: bool) -> str:
    path, kind = _module(node)
    operator = getattr(node.target, "_opname", None) or getattr(node.target, "__name__", node.name)
    if path and (is_only or kind.startswith(_LIBRARY)):
        return path
    return ".".join(filter(None, (path, str(operator).strip("_"))))


def _module(node: fx.Node) -> tuple[str, str]:
    """The path and the class of the innermost module that a node is of; of none, nothing."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return "", ""
    path, kind = list(stack.values())[-1]
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    return _ITEM.sub(r".\1", _ROOT.sub("", path)).strip("."), name
