"""Nodes whose value is another one's but for the places of a view: assignments to slices.

torch.export writes to no tensor. What it makes of ``cache[0, 1:3] = x`` reads a view, makes its new
value, and puts that back through every view in turn::

    row = select(cache, 0, 0);  old = slice(row, 0, 1, 3);  new = copy(old, x)
    row2 = slice_scatter(row, new, 0, 1, 3);  cache2 = select_scatter(cache, row2, 0, 0)

Here ``cache2`` is ``cache``, but for the places of ``cache[0, 1:3]``, which are ``x``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tvm_tile.frontend.torch.convert import given_arguments
from tvm_tile.frontend.torch.places import Places, Step, is_same_view, places_of, view_of

_ATEN = torch.ops.aten
_VIEWS = frozenset(
    {
        *(_ATEN.slice.Tensor, _ATEN.select.int, _ATEN.diagonal.default, _ATEN.permute.default),
        *(_ATEN.unsqueeze.default, _ATEN.squeeze.dim, _ATEN.squeeze.dims, _ATEN.view.default),
    }
)
_SCATTERS: Mapping[Any, Any] = {
    _ATEN.slice_scatter.default: _ATEN.slice.Tensor,
    _ATEN.select_scatter.default: _ATEN.select.int,
    _ATEN.diagonal_scatter.default: _ATEN.diagonal.default,
}


@dataclass(frozen=True, slots=True)
class Update:
    """What makes a node's value of another one's.

    Attributes:
        base: the other one, of the same shape and element type.
        value: the node of what is at the places of a view of it; its shape is broadcast to the
            view's, its element type cast.
        places: the view's.
    """

    base: fx.Node
    value: fx.Node
    places: Places


def update_of(node: fx.Node) -> Update | None:
    """The update that a node is, the smallest that can be seen; none where it is something else."""
    found = _put(node)
    if found is None:
        return None
    base, value, steps = found
    shape = _shape(base)
    view = None if shape is None else view_of(shape, steps)
    places = None if shape is None or view is None else places_of(shape, view)
    return None if places is None else Update(base, value, places)


_Put = tuple[fx.Node, fx.Node, tuple[Step, ...]]
"""A node whose value changes, what it has in the places of a view, the view."""


def _put(node: fx.Node) -> _Put | None:
    if node.target is _ATEN.copy.default:
        return node.args[0], node.args[1], ()
    if node.target in _SCATTERS:
        arguments = given_arguments(node)
        base, value = arguments.pop("self"), arguments.pop("src")
        step = Step(_SCATTERS[node.target], tuple(arguments.items()))
        return _joined((base, value, (step,)), _put(value))
    if node.target in _VIEWS:
        return _turned_back(node)
    return None


def _joined(outer: _Put, inner: _Put | None) -> _Put:
    """One update of two, where the inner one changes what the outer one's places held before."""
    base, _, steps = outer
    between = None if inner is None else _steps_between(base, inner[0])
    shape = _shape(base)
    if inner is None or between is None or shape is None:
        return outer
    if not is_same_view(view_of(shape, steps), view_of(shape, between)):
        return outer
    return base, inner[1], (*steps, *inner[2])


def _turned_back(node: fx.Node) -> _Put | None:
    """A view of an updated view that shows the whole of a tensor again, such as two transpositions
    with an update in between."""
    inner = _put(node.args[0])
    if inner is None:
        return None
    base = inner[0]
    steps: tuple[Step, ...] = (_step(node),)
    while base.target in _VIEWS:
        steps = (_step(base), *steps)
        base = base.args[0]
        shape = _shape(base)
        if shape is not None and is_same_view(view_of(shape, steps), view_of(shape, ())):
            return base, inner[1], (*steps[:-1], *inner[2])
    return None


def _steps_between(base: fx.Node, view: fx.Node) -> tuple[Step, ...] | None:
    """The views that lead from one node to another; none where no views do."""
    steps: tuple[Step, ...] = ()
    while view is not base:
        if view.target not in _VIEWS:
            return None
        steps = (_step(view), *steps)
        view = view.args[0]
    return steps


def _step(node: fx.Node) -> Step:
    arguments = given_arguments(node)
    del arguments["self"]
    return Step(node.target, tuple(arguments.items()))


def _shape(node: fx.Node) -> tuple[int, ...] | None:
    """A tensor's extents, where all are known."""
    shape = node.meta["val"].shape
    return tuple(shape) if all(isinstance(extent, int) for extent in shape) else None
