"""Cut a graph of PyTorch's operators into parts that are compiled and operators that are not.

Operators whose results lie in memory of their own are *makers*: each belongs to one part, or is
run by PyTorch. A *view* belongs to nobody: whoever needs it makes it from what its maker returned,
PyTorch outside of the parts, so that memory is shared, and strides are, as without us::

    y = x @ w             part(x, w):                    y = part(x, w)
    v = y.t()      =>         y = x @ w                  v = y.t()
    z = v + 1                 return y, y.t() + 1        return v, z
    return v, z
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from tvm_tile.torch.stages import GraphStep, stages
from tvm_tile.torch.support import is_item, is_view, why_eager

_NO_INPUT = "a constant that nothing compiled needs"
_NOT_RUN = frozenset({"placeholder", "get_attr", "output"})


@dataclass(frozen=True, slots=True)
class GraphPart:
    """Makers that are compiled as one program.

    Attributes:
        makers: makers in program order.
        inputs: the tensors from outside that they, or views that they need, take, weights last.
        weights: number of ``inputs`` that are weights.
        outputs: the tensors that they make and others need.
    """

    makers: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    weights: int
    outputs: tuple[fx.Node, ...]

    @property
    def key(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """A key that equal parts of one graph share."""
        return tuple(n.name for n in self.makers), tuple(n.name for n in self.outputs)


@dataclass(frozen=True, slots=True)
class Cut:
    """A graph, and who runs which of its makers.

    Attributes:
        order: parts and nodes that PyTorch runs, in an order in which they may run.
        views: nodes that whoever needs them makes.
        eager: node that PyTorch runs -> why.
    """

    order: tuple[GraphPart | fx.Node, ...]
    views: frozenset[fx.Node]
    eager: Mapping[fx.Node, str]

    @property
    def parts(self) -> tuple[GraphPart, ...]:
        """Parts that are to be compiled."""
        return tuple(one for one in self.order if isinstance(one, GraphPart))


def cut(
    graph: fx.Graph,
    place: torch.device,
    refused: Mapping[fx.Node, str],
    weights: Collection[fx.Node] = (),
) -> Cut:
    """Cut a graph.

    Args:
        graph: without side effects; its nodes' ``val`` are tensors without data.
        place: torch device of all tensors of a compiled program.
        refused: nodes that must not be compiled, and why.
        weights: inputs whose memory is mostly that of the call before.
    """
    eager = dict(refused)
    for node in graph.nodes:
        if node.op not in _NOT_RUN and not is_item(node):
            why = why_eager(node, place)
            if why is not None:
                eager.setdefault(node, why)
    views: set[fx.Node] = set()
    for node in graph.nodes:
        if is_item(node):
            if node.args[0] in views:
                views.add(node)
        elif node not in eager and is_view(node):
            views.add(node)
    return _ordered(graph, Cut((), frozenset(views), eager), weights)


def _ordered(graph: fx.Graph, whole: Cut, weights: Collection[fx.Node]) -> Cut:
    """The cut with its parts and nodes in the order in which they run."""
    makers = [node for node in graph.nodes if _is_maker(node, whole)]
    order: list[GraphPart | fx.Node] = []
    found = stages(_steps(makers, whole))
    for stage in sorted(set(found)):
        own = tuple(m for m, at in zip(makers, found, strict=True) if at == stage)
        if stage % 2 == 0:
            order += own
        elif (part := _part(own, whole, weights)).outputs:
            order.append(part)
    constants = {
        m: _NO_INPUT
        for m, at in zip(makers, found, strict=True)
        if at % 2 == 0 and m not in whole.eager
    }
    return Cut(tuple(order), whole.views, {**whole.eager, **constants})


def _steps(makers: Sequence[fx.Node], whole: Cut) -> list[GraphStep]:
    """The makers as steps for the decision which run together."""
    at = {maker: position for position, maker in enumerate(makers)}
    steps: list[GraphStep] = []
    given: set[fx.Node] = set()  # makers that take an input, or what was made of one
    last: tuple[int, ...] = ()  # the last that drew random numbers: these keep their order
    for position, maker in enumerate(makers):
        sources = {_maker(node) for node in _tensors(maker, whole)}
        needs = tuple(sorted(at[source] for source in sources if source in at))
        if any(source not in at or source in given for source in sources):
            given.add(maker)
        if maker not in whole.eager:
            steps.append(GraphStep(needs, True, maker not in given))
            continue
        given.add(maker)
        if maker.is_impure():
            needs, last = (*needs, *last), (position,)
        steps.append(GraphStep(needs, False))
    return steps


def _part(makers: tuple[fx.Node, ...], whole: Cut, weights: Collection[fx.Node]) -> GraphPart:
    """The part of some makers, its inputs with weights last, and its outputs."""
    own = set(makers)
    taken = dict.fromkeys(node for maker in makers for node in _tensors(maker, whole))
    inputs = [node for node in taken if _maker(node) not in own]
    others = [node for node in inputs if node not in weights]
    # By one input at least the program's call must know which stream of PyTorch's it is on.
    last = [node for node in inputs if node in weights] if others else []
    outputs = tuple(
        node
        for maker in makers
        for node in _results(maker)
        if any(user not in own for user in _users(node, whole))
    )
    return GraphPart(makers, (*(others or inputs), *last), len(last), outputs)


def _tensors(node: fx.Node, whole: Cut) -> Iterator[fx.Node]:
    """The tensors of others, none of them a view, that a node needs."""
    for other in node.all_input_nodes:
        if other in whole.views:
            yield from _tensors(other, whole)
        else:
            yield other


def _users(node: fx.Node, whole: Cut) -> Iterator[fx.Node]:
    """Nodes that need a tensor, or a view of it: makers, and the graph's end."""
    for user in node.users:
        if user in whole.views:
            yield from _users(user, whole)
        else:
            yield user


def _results(maker: fx.Node) -> tuple[fx.Node, ...]:
    """Nodes of a maker's results."""
    items = tuple(user for user in maker.users if is_item(user))
    return items or (maker,)


def _maker(node: fx.Node) -> fx.Node:
    """The node that made a tensor that is no view."""
    if is_item(node):
        made = node.args[0]
        assert isinstance(made, fx.Node)
        return made
    return node


def _is_maker(node: fx.Node, whole: Cut) -> bool:
    """Whether a node is run, and no view or item of another one."""
    return node.op not in _NOT_RUN and node not in whole.views and not is_item(node)
