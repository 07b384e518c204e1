"""What a PyTorch user calls the nodes of an exported program: paths of modules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tvm_tile.frontend.torch.exported import given_functions

_LIBRARY = "torch.nn.modules."
# Of modules that Dynamo traced: L['self'].layers._modules['0']
_ROOT = re.compile(r"^L\['self'\]\.?|^L__self___?")
_ITEM = re.compile(r"\.?(?:_modules)?\[['\"]?(\w+)['\"]?\]")


@dataclass(frozen=True, slots=True)
class NodeNames:
    """Names of the nodes of a program or of a region of it, such as the body of a loop, and of what
    these are broken down to.

    A module of PyTorch's own is called by its path, ``layer1.0.conv2``, and so is one whose
    ``forward`` is one operator. An operator in another module's ``forward`` is called by the path
    and what it does: ``layer1.0.add``. Of regions torch.export does not tell the modules: there an
    operator is of the module whose parameters it reads; any other is called by the region's
    operator: ``decoder.while_loop.relu``.

    Attributes:
        known: node, by its own name and the number of nodes that it was broken down from -> its
            name for people.
        regions: attribute of a region's graph -> the names in it.
    """

    known: Mapping[tuple[str, int], str]
    regions: Mapping[str, NodeNames]

    @classmethod
    def of(cls, program: ExportedProgram) -> NodeNames:
        """Take the names from a program as the user has it."""
        signature = program.graph_signature
        kept = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        owners = {
            node: _ITEM.sub(r".\1", kept[node.name]).rpartition(".")[0]
            for node in program.graph.find_nodes(op="placeholder")
            if node.name in kept
        }
        return _names_in(program.graph_module, "", owners)

    def __call__(self, node: fx.Node) -> str:
        """The name of a node of the program, or of what it was broken down to."""
        names = [node.name, *sources(node)]
        found = (self.known.get((name, len(names) - n)) for n, name in enumerate(names, 1))
        return next(filter(None, found), None) or _named(*module_of(node), _operator(node))

    def region(self, attribute: str) -> NodeNames:
        """The names in a region, by the attribute that its graph is."""
        return self.regions.get(attribute, NodeNames({}, {}))


def _names_in(module: fx.GraphModule, region: str, owners: Mapping[fx.Node, str]) -> NodeNames:
    """Names of a graph's nodes.

    Args:
        module: whose graph it is.
        region: what computes the graph, such as a loop; nothing for the whole program's.
        owners: placeholder of a parameter -> the path of the module that it is of.
    """
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    owned = _with_views(owners, nodes)
    modules = {node: module_of(node) for node in nodes}
    for node in nodes:
        readers = (owned[other] for other in node.all_input_nodes if other in owned)
        is_region = any(given_functions(module, node))
        if not (any(modules[node]) or is_region) and (path := next(readers, "")):
            modules[node] = path, ""
    counts = Counter(path for path, _ in modules.values())
    parents = {parent for path in counts for parent in _parents(path)}
    single = {path for path, count in counts.items() if count == 1} - parents
    known, regions = {}, {}
    for node in nodes:
        path, kind = modules[node]
        operator = "" if path and path in single else _operator(node)
        name = _named(path or region, kind, operator)
        known[node.name, len(sources(node))] = name
        for attribute, inner in given_functions(module, node):
            regions[attribute] = _names_in(inner, name, _handed_in(node, inner, owned))
    return NodeNames(known, regions)


def _with_views(owners: Mapping[fx.Node, str], nodes: Iterable[fx.Node]) -> dict[fx.Node, str]:
    """Owners of parameters, and of what is made of those of one module alone."""
    owned = dict(owners)
    for node in nodes:
        paths = {owned.get(other, "") for other in node.all_input_nodes}
        if len(paths) == 1 and (path := paths.pop()):
            owned[node] = path
    return owned


def _handed_in(
    node: fx.Node, inner: fx.GraphModule, owned: Mapping[fx.Node, str]
) -> dict[fx.Node, str]:
    """Owners of a region's parameters: it takes what its operator is given behind the graphs."""
    operands = pytree.tree_leaves(node.args)
    graphs = [n for n, each in enumerate(operands) if getattr(each, "op", "") == "get_attr"]
    operands = operands[max(graphs, default=-1) + 1 :]
    places = inner.graph.find_nodes(op="placeholder")
    if len(places) != len(operands):
        return {}
    return {
        place: owned[given] for place, given in zip(places, operands, strict=True) if given in owned
    }


def _parents(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition(".")[0]
        yield path


def sources(node: fx.Node) -> list[str]:
    """The names of the nodes that one was broken down from, the last one first."""
    sources, names = node.meta.get("from_node"), []
    while sources:
        names.append(str(sources[-1].name))
        sources = sources[-1].from_node
    return names


def _operator(node: fx.Node) -> str:
    name = getattr(node.target, "_opname", None) or getattr(node.target, "__name__", node.name)
    return str(name).strip("_")


def _named(path: str, kind: str, operator: str) -> str:
    """A name from a module's path and class, and what an operator in it does; of a module of
    PyTorch's own without this."""
    if path and kind.startswith(_LIBRARY):
        return path
    return ".".join(filter(None, (path, operator)))


def module_of(node: fx.Node) -> tuple[str, str]:
    """The path and the class of the innermost module that a node is of; of none, nothing."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return "", ""
    path, kind = list(stack.values())[-1]
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    return _ITEM.sub(r".\1", _ROOT.sub("", path)).strip("."), name
