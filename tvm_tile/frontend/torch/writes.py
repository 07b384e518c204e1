"""Which nodes of a program write to the memory of a tensor that the program changes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import fx
from torch.fx.node import map_arg

from tvm_tile.frontend.torch.updates import Update, update_of

Writes = Mapping[fx.Node, Update]
"""Nodes that write to memory of the base of the update that each is."""


def writes_in_place(graph: fx.Graph, changed: Iterable[tuple[fx.Node, fx.Node]]) -> Writes:
    """The nodes that write in place.

    A tensor's new value is written in place where all nodes from its placeholder to the value can
    write to their base, and where nobody reads a base from there on: neither itself nor what may be
    another name of the same memory.

    Args:
        graph: functional.
        changed: placeholders of tensors that are changed, with the nodes of their new values.
    """
    chains = [chain for place, value in changed if (chain := _chain(place, value))]
    while True:
        writes = {node: update for chain in chains for node, update in chain.items()}
        reads = _reads(graph, writes)
        left = [chain for chain in chains if all(_is_last(*item, reads) for item in chain.items())]
        if len(left) == len(chains):
            return writes
        chains = left  # what these read to make whole new values is read, too


def needed(graph: fx.Graph, writes: Writes) -> list[fx.Node]:
    """The nodes that some output needs, in order."""
    found = {graph.output_node()}
    for node in reversed(graph.nodes):
        if node in found:
            found.update(operands(node, writes))
    return [node for node in graph.nodes if node in found]


def operands(node: fx.Node, writes: Writes) -> list[fx.Node]:
    """What a node is computed from, each as often as it is an operand."""
    update = writes.get(node)
    if update is not None:
        return update.operands
    found: list[fx.Node] = []
    map_arg((node.args, node.kwargs), found.append)
    return found


def _chain(place: fx.Node, value: fx.Node) -> dict[fx.Node, Update]:
    """What leads from a tensor to its new value, last first; none where some of it cannot write."""
    chain: dict[fx.Node, Update] = {}
    node = value
    while node is not place:
        update = update_of(node)
        if update is None:
            return {}
        chain[node] = update
        node = update.base
    return chain


class _Reads:
    """The readers of each value, and the order in which they read.

    Attributes:
        order: each node's place among those that are needed.
    """

    def __init__(self, nodes: Sequence[fx.Node], writes: Writes) -> None:
        self.order = {node: number for number, node in enumerate(nodes)}
        self._readers: dict[fx.Node, list[fx.Node]] = {}
        for node in nodes:
            for operand in operands(node, writes):
                self._readers.setdefault(operand, []).append(node)

    def of(self, node: fx.Node) -> list[fx.Node]:
        """The readers of a node's value, each as often as it reads it."""
        return self._readers.get(node, [])


def _reads(graph: fx.Graph, writes: Writes) -> _Reads:
    return _Reads(needed(graph, writes), writes)


def _is_last(node: fx.Node, update: Update, reads: _Reads) -> bool:
    """Whether a node that writes is the last to read its base, and any other name of its memory."""
    readers = [*reads.of(update.base)]
    readers.remove(node)  # as its base, once
    size = math.prod(update.base.meta["val"].shape)
    seen: set[fx.Node] = set()
    while readers:
        reader = readers.pop()
        if reads.order[reader] >= reads.order[node]:
            return False
        if reader not in seen and size in _sizes(reader):
            readers += reads.of(reader)
        seen.add(reader)
    return True


def _sizes(node: fx.Node) -> set[int]:
    """How many elements a node's results have: where as many as an operand, a converter may have
    returned the operand, or a view of all of it."""
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else (value,)
    return {math.prod(one.shape) for one in values if isinstance(one, torch.Tensor)}
