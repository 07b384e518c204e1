"""Slices that begin where data say become reads and assignments at indices.

A program that was exported with ``p = position.item()`` has ``slice(cache, 2, p, p + 2)`` of a
number that only the data decide. How long such a slice is, is known all the same::

    slice(x, 2, p, p + n)               =>  index(x, [None, None, p + arange(n)])
    slice_scatter(x, y, 2, p, p + n)    =>  index_put(x, [None, None, p + arange(n)], y)
    select(x, 2, p)                     =>  index(x, [None, None, p])
    select_scatter(x, y, 2, p)          =>  index_put(x, [None, None, p], y)

Places out of bounds, of which PyTorch raises an error, are read and written as indices are.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.fx.node import map_arg

from tvm_tile.frontend.torch.convert import given_arguments
from tvm_tile.frontend.torch.exported import copied_graph, with_graph

_ATEN = torch.ops.aten
_READS = frozenset({_ATEN.slice.Tensor, _ATEN.select.int})
_PUTS = frozenset({_ATEN.slice_scatter.default, _ATEN.select_scatter.default})
_SEVERAL = frozenset({_ATEN.slice.Tensor, _ATEN.slice_scatter.default})
_ARITHMETIC = {
    operator.add: _ATEN.add.Tensor,
    operator.sub: _ATEN.sub.Tensor,
    operator.mul: _ATEN.mul.Tensor,
}
_WHOLE = {"dtype": torch.int64}


def with_indices(program: ExportedProgram) -> ExportedProgram:
    """The program without slices that begin where data say; itself where it has none.

    Args:
        program: functional, as ``run_decompositions`` leaves it.
    """
    if not any(map(_begins_where_data_say, program.graph.nodes)):
        return program
    graph = copied_graph(program)
    rewriting = _Rewriting(graph)
    for node in filter(_begins_where_data_say, list(graph.nodes)):
        rewriting.rewrite(node)
    return with_graph(program, graph)


def _begins_where_data_say(node: fx.Node) -> bool:
    """Whether a node is a slice of known extents that begins at a number that data decide."""
    if node.target not in _READS | _PUTS or not isinstance(_begin(node), fx.Node):
        return False
    arguments = given_arguments(node)
    part = arguments.get("src", node)
    return isinstance(arguments.get("step", 1), int) and all(
        isinstance(extent, int)
        for tensor in (part, arguments["self"])
        for extent in tensor.meta["val"].shape
    )


def _begin(node: fx.Node) -> Any:
    arguments = given_arguments(node)
    return arguments.get("index", arguments.get("start"))


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """A graph in which slices are replaced.

    Attributes:
        graph: changed in place.
        tensors: numbers of the graph -> tensors without dimensions that hold them.
    """

    graph: fx.Graph
    tensors: dict[fx.Node, fx.Node] = field(default_factory=dict)

    def rewrite(self, node: fx.Node) -> None:
        """Replace a slice, where its beginning is arithmetic of numbers that tensors hold."""
        arguments = given_arguments(node)
        x, part = arguments["self"], arguments.get("src", node)
        axis = arguments.get("dim", 0) % x.meta["val"].ndim
        with self.graph.inserting_before(node):
            begin = self._tensor(_begin(node))
            if begin is None:
                return
            if node.target in _SEVERAL:
                step = arguments.get("step", 1)
                end = part.meta["val"].shape[axis] * step
                places = self._call(begin, _ATEN.arange.start_step, 0, end, step, **_WHOLE)
                begin = self._call(begin, _ATEN.add.Tensor, begin, places)
            indices = [*[None] * axis, begin]
            made = (
                self.graph.call_function(_ATEN.index.Tensor, (x, indices))
                if node.target in _READS
                else self.graph.call_function(_ATEN.index_put.default, (x, indices, part))
            )
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        self.graph.erase_node(node)

    def _tensor(self, number: fx.Node) -> fx.Node | None:
        """The tensor that holds a number; none where that is computed in another way."""
        if number not in self.tensors:
            made = self._held(number)
            if made is None:
                return None
            self.tensors[number] = made
        return self.tensors[number]

    def _held(self, number: fx.Node) -> fx.Node | None:
        if number.target is _ATEN._local_scalar_dense.default:
            source = number.args[0]
            flat = self._call(source, _ATEN.view.default, source, [])
            return self._call(flat, _ATEN._to_copy.default, flat, **_WHOLE)
        if number.target not in _ARITHMETIC:
            return None
        held = [self._tensor(a) if isinstance(a, fx.Node) else a for a in number.args]
        like = next((tensor for tensor in held if isinstance(tensor, fx.Node)), None)
        if like is None or not all(isinstance(one, fx.Node | int) for one in held):
            return None
        operands = (
            self._call(like, _ATEN.scalar_tensor.default, one, **_WHOLE)
            if isinstance(one, int)
            else one
            for one in held
        )
        return self._call(like, _ARITHMETIC[number.target], *operands)

    def _call(self, like: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A call of an operator, whose result without data is of the kind that ``like``'s is."""
        made = self.graph.call_function(target, args, kwargs)
        with like.meta["val"].fake_mode:
            made.meta["val"] = target(*map_arg(args, lambda node: node.meta["val"]), **kwargs)
        return made
