"""Rows that a program sorts by their group are multiplied as they were before: that needs no order.

Experts of a mixture get their tokens side by side: the tokens are sorted by expert, gathered,
multiplied group by group, and what comes of them is put back in order. Our products find rows of
one matrix wherever they lie. So all of that goes, if each operator between computes rows by rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from tvm_tile.frontend.torch.convert import given_arguments
from tvm_tile.frontend.torch.decompose import broken_down_by_us, decomposed, of_transformers
from tvm_tile.frontend.torch.exported import copied_graph, with_graph

_ATEN = torch.ops.aten
_HISTOGRAM = _ATEN.histc.default
_MATRICES = 3  # dimensions
_SORTS = (_ATEN.sort.default, _ATEN.sort.stable)
_CASTS = (_ATEN._to_copy.default,)
_VIEWS = (_ATEN.view.default, _ATEN.reshape.default, _ATEN._unsafe_view.default)
_PARTS = (_ATEN.split_with_sizes.default, _ATEN.slice.Tensor, _ATEN.unsqueeze.default)
_SUMS = (_ATEN.sum.dim_IntList, _ATEN.mean.dim, _ATEN.amax.default)


def is_grouped_product(node: fx.Node) -> bool:
    """Whether a node multiplies rows in groups that lie side by side, each by a matrix of its own,
    as ``torch._grouped_mm`` does, and what transformers has for other types."""
    return node.target in (_ATEN._grouped_mm.default, *of_transformers())


def with_rows_as_given(program: ExportedProgram) -> ExportedProgram:
    """A program whose grouped products take rows in the order in which they were before a sort.

    before: ``ids_g, perm = sort(ids); offs = cumsum(histc(ids_g)); y_g = _grouped_mm(x[perm // k],
            w, offs); inverse[perm] = arange; y = f(y_g)[inverse]``
    after:  ``y = f(bmm(repeat_interleave(x, k).unsqueeze(1), w[ids]))``

    Where anything else becomes of sorted rows than what keeps each a row, the program stays.
    """
    if not any(map(is_grouped_product, program.graph.nodes)):
        return program
    # A histogram, and a product, are told as such; broken down, they are a dozen operators.
    known = decomposed(program, kept=broken_down_by_us())
    sorts = [node.name for node in known.graph.nodes if node.target in _SORTS]
    for name in sorts:
        graph = copied_graph(known)
        sort = next((node for node in graph.nodes if node.name == name), None)
        rows = _SortedRows.of(sort) if sort else None
        if rows is not None and rows.follow():
            rows.replace()
            graph.eliminate_dead_code()
            known = with_graph(known, graph)
    return known


@dataclass(slots=True)
class _SortedRows:
    """A sort of the numbers of groups, and the nodes that have its rows along their first axis.

    Attributes:
        ids: the numbers, unsorted.
        values: the node of the numbers in order, if there is one.
        order: the node that says where each was.
        rows: nodes with a row of each in order, these two among them.
        inverse: nodes that say where in this order each row is, and sorts that do.
        counts: nodes that say how many rows each group has, and the number of groups.
        offsets: nodes that say behind which row a group ends, likewise.
        ends: nodes whose rows are in the order from before again.
    """

    ids: fx.Node
    values: fx.Node | None
    order: fx.Node
    rows: set[fx.Node] = field(default_factory=set)
    inverse: set[fx.Node] = field(default_factory=set)
    counts: dict[fx.Node, int] = field(default_factory=dict)
    offsets: dict[fx.Node, int] = field(default_factory=dict)
    ends: set[fx.Node] = field(default_factory=set)

    @classmethod
    def of(cls, sort: fx.Node) -> _SortedRows | None:
        """What a sort gives, if it is of one axis and rises."""
        ids, descending = sort.args[0], _argument(sort, "descending")
        parts = {node.args[1]: node for node in sort.users if node.target is operator.getitem}
        if not isinstance(ids, fx.Node) or _value(ids).ndim != 1 or descending or 1 not in parts:
            return None
        if not isinstance(_value(ids).shape[0], int):
            return None  # open
        found = cls(ids, parts.get(0), parts[1])
        found.rows.update(parts.values())
        return found

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int(_value(self.ids).shape[0])

    def follow(self) -> bool:
        """Find what becomes of the rows; whether all of it is known to keep them."""
        for node in self.order.graph.nodes:
            takes = any(self._is_known(own) for own in node.all_input_nodes)
            if takes and node not in self.rows and not self._take(node):
                return False
        return bool(self.ends)

    def _is_known(self, node: fx.Node) -> bool:
        return any(node in own for own in (self.rows, self.inverse, self.counts, self.offsets))

    def _take(self, node: fx.Node) -> bool:
        """Note what a node that takes rows is; whether that is known."""
        if node.target is _ATEN._assert_tensor_metadata.default:
            return True
        for kind in (self._is_offsets, self._is_inverse, self._is_end):
            if kind(node):
                return True
        if self._is_row_wise(node):
            self.rows.add(node)
            return True
        return False

    def _is_offsets(self, node: fx.Node) -> bool:
        """Whether a node counts rows of groups, or adds up these counts; it is noted."""
        first = node.args[0] if node.args else None
        if node.target is _HISTOGRAM:
            bins, low, high = (_argument(node, name) for name in ("bins", "min", "max"))
            is_whole = (low, high) == (0, bins - 1) and bins > 1 and self._is_values(first)
            if is_whole:
                self.counts[node] = bins
            return is_whole
        if node.target is _ATEN.cumsum.default and first in self.counts:
            self.offsets[node] = self.counts[first]
            return True
        of_first = next((own for own in (self.counts, self.offsets) if first in own), None)
        if node.target not in _CASTS or of_first is None:
            return False
        of_first[node] = of_first[first]
        return True

    def _is_values(self, node: Any) -> bool:
        """Whether a node is the sorted numbers, of whatever type."""
        while isinstance(node, fx.Node) and node.target in _CASTS:
            node = node.args[0]
        return node is self.values

    def _is_inverse(self, node: fx.Node) -> bool:
        """Whether a node says where in the order each row is; it is noted."""
        if node.target is _ATEN.index_put.default:
            _, places, numbers = node.args[:3]
            is_written = places == [self.order] and not _argument(node, "accumulate")
            is_inverse = is_written and _is_count(numbers, self.count)
        elif node.target in _SORTS:
            is_inverse = node.args[0] is self.order and not _argument(node, "descending")
        else:
            is_second = node.target is operator.getitem and node.args[1] == 1
            is_inverse = is_second and node.args[0] in self.inverse
        if is_inverse:
            self.inverse.add(node)
        return is_inverse

    def _is_end(self, node: fx.Node) -> bool:
        """Whether a node puts rows back in order; it is noted."""
        if node.target is not _ATEN.index.Tensor or node.args[0] not in self.rows:
            return False
        is_end = len(node.args[1]) == 1 and node.args[1][0] in self.inverse
        if is_end:
            self.ends.add(node)
        return is_end

    def _is_row_wise(self, node: fx.Node) -> bool:
        """Whether each row of a node is made of the same rows of what it takes."""
        taken = [own for own in node.all_input_nodes if self._is_known(own)]
        if is_grouped_product(node):
            x, w, offsets = node.args[:3]
            is_plain = _argument(node, "bias") is None and _value(w).ndim == _MATRICES
            own = self.offsets.get(offsets) == _value(w).shape[0]
            return is_plain and own and taken == [x, offsets] and x in self.rows
        if any(own not in self.rows for own in taken):
            return False
        if node.target is operator.getitem:
            return node.args[0] in self.rows
        if node.target is _ATEN.index.Tensor:
            is_alone = len(node.args[1]) == 1 and list(node.args[1]) == taken
            is_place = _value(taken[0]).dtype is not torch.bool
            return node.args[0] not in self.rows and is_alone and is_place
        results = node.meta.get("val", ())
        results = results if isinstance(results, list | tuple) else [results]
        first = _value(taken[0])
        if not results or any(own.ndim < 1 or own.shape[0] != self.count for own in results):
            return False
        if node.target in _VIEWS:
            return True
        if node.target in (*_PARTS, *_SUMS):
            axes = _argument(node, "dim")
            axes = axes if isinstance(axes, list | tuple) else [axes]
            ndim = results[0].ndim if node.target is _ATEN.unsqueeze.default else first.ndim
            return bool(axes) and all(axis is not None and axis % ndim for axis in axes)
        is_pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
        if not is_pointwise and node.target not in _CASTS:
            return False
        # Others than rows must have nothing along the first axis.
        ndim = results[0].ndim
        return all(
            _value(own).ndim == ndim if own in self.rows
            else _value(own).ndim < ndim or _value(own).shape[0] == 1
            for own in node.all_input_nodes
        )  # fmt: skip

    def replace(self) -> None:
        """Let all nodes have their rows in the order from before."""
        graph = self.order.graph
        with graph.inserting_after(self.order):
            places = self._made(graph, _ATEN.arange.default, self.count)
        for node in list(graph.nodes):
            if node in self.ends:
                node.replace_all_uses_with(node.args[0])
            elif node in self.rows and is_grouped_product(node):
                node.replace_all_uses_with(self._product(node))
            elif node in self.rows and node.target is _ATEN.index.Tensor:
                self._read_in_order(node)
        self.order.replace_all_uses_with(places)
        if self.values is not None:
            self.values.replace_all_uses_with(self.ids)

    def _read_in_order(self, node: fx.Node) -> None:
        """Read rows that many share, one behind the other, if that is what a node does."""
        x, (places,) = node.args
        if places is self.order and _value(x).shape[0] == self.count:
            node.replace_all_uses_with(x)
            return
        if places.target is _ATEN.div.Tensor_mode and places.args[0] is self.order:
            times = places.args[1]
            is_floor = places.kwargs.get("rounding_mode") == "floor"
            if is_floor and isinstance(times, int) and _value(x).shape[0] * times == self.count:
                with node.graph.inserting_before(node):
                    spread = _ATEN.repeat_interleave.self_int
                    node.replace_all_uses_with(self._made(node.graph, spread, x, times, 0))

    def _product(self, node: fx.Node) -> fx.Node:
        """The product of each row with the matrix of its group."""
        x, w = node.args[:2]
        is_turned = w.target is _ATEN.permute.default and list(w.args[1]) == [0, 2, 1]
        graph = node.graph
        with graph.inserting_before(node):
            own = self._made(graph, _ATEN.index.Tensor, w.args[0] if is_turned else w, [self.ids])
            if is_turned:
                own = self._made(graph, _ATEN.permute.default, own, [0, 2, 1])
            rows = self._made(graph, _ATEN.unsqueeze.default, x, 1)
            product = self._made(graph, _ATEN.bmm.default, rows, own)
            return self._made(graph, _ATEN.squeeze.dim, product, 1)

    def _made(self, graph: fx.Graph, target: Callable[..., Any], *args: Any) -> fx.Node:
        """A new node, which knows its shape and type."""
        node = graph.call_function(target, args)
        mode = _value(self.ids).fake_mode
        given = fx.node.map_arg(args, lambda own: own.meta["val"])
        with mode:
            node.meta["val"] = target(*given)
        return node


def _value(node: fx.Node) -> Any:
    """The tensor without data that a node stands for."""
    return node.meta["val"]


def _argument(node: fx.Node, name: str) -> Any:
    """An argument of a call, by its name; its default where it is not given."""
    defaults = {own.name: own.default_value for own in node.target._schema.arguments}
    return (defaults | given_arguments(node)).get(name)


def _is_count(node: Any, count: int) -> bool:
    """Whether a node is 0, 1, 2 and so on, up to a number."""
    while isinstance(node, fx.Node) and node.target in _VIEWS:  # of a single row
        node = node.args[0]
    if not isinstance(node, fx.Node) or node.target is not _ATEN.arange.start_step:
        return False
    start, end, step = (_argument(node, name) for name in ("start", "end", "step"))
    return (start, end, step) == (0, count, 1)
