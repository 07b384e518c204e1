"""Nodes whose value is another one's but for some places: assignments to slices and at indices.

torch.export writes to no tensor. What it makes of ``cache[0, 1:3] = x`` reads a view, makes its new
value, and puts that back through every view in turn::

    row = select(cache, 0, 0);  old = slice(row, 0, 1, 3);  new = copy(old, x)
    row2 = slice_scatter(row, new, 0, 1, 3);  cache2 = select_scatter(cache, row2, 0, 0)

Here ``cache2`` is ``cache``, but for the places of ``cache[0, 1:3]``, which are ``x``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from tvm_tile.frontend.torch.convert import given_arguments
from tvm_tile.frontend.torch.places import Places, ViewStep, is_same_view, places_of, view_of

Indices = tuple[fx.Node | None, ...]

_ATEN = torch.ops.aten
_MASKS = (torch.bool, torch.uint8)
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
        indices: where in the view the value is, as ``index_put`` takes it; everywhere if empty.
    """

    base: fx.Node
    value: fx.Node
    places: Places
    indices: Indices = ()

    @property
    def operands(self) -> list[fx.Node]:
        """What the node is computed from."""
        return [self.base, self.value, *(index for index in self.indices if index is not None)]


def update_of(node: fx.Node) -> Update | None:
    """The update that a node is, the smallest that can be seen; none where it is something else."""
    found = _put(node)
    shape = None if found is None else _shape(found.base)
    if found is None or shape is None:
        return None
    view = view_of(shape, found.steps)
    places = None if view is None else places_of(shape, view)
    return None if places is None else Update(found.base, found.value, places, found.indices)


@dataclass(frozen=True, slots=True)
class _Put:
    """An :class:`Update` with the steps that make the view which is written."""

    base: fx.Node
    value: fx.Node
    steps: tuple[ViewStep, ...] = ()
    indices: Indices = ()


def _put(node: fx.Node) -> _Put | None:
    if node.target is _ATEN.copy.default:
        return _Put(node.args[0], node.args[1])
    if node.target in _SCATTERS:
        arguments = given_arguments(node)
        base, value = arguments.pop("self"), arguments.pop("src")
        step = ViewStep(_SCATTERS[node.target], tuple(arguments.items()))
        return _joined(_Put(base, value, (step,)), _put(value))
    if node.target is _ATEN.index_put.default:
        return _put_at_indices(node)
    if node.target in _VIEWS:
        return _turned_back(node)
    return None


def _put_at_indices(node: fx.Node) -> _Put | None:
    """An assignment at indices that are numbers."""
    arguments = given_arguments(node)
    indices = tuple(arguments["indices"])
    given = [index for index in indices if index is not None]
    if not given or any(index.meta["val"].dtype in _MASKS for index in given):
        return None
    if arguments.get("accumulate", False):
        return None
    return _Put(arguments["self"], arguments["values"], (), indices)


def _joined(outer: _Put, inner: _Put | None) -> _Put:
    """One update of two, where the inner one changes what the outer one's places held before."""
    between = None if inner is None else _steps_between(outer.base, inner.base)
    shape = _shape(outer.base)
    if inner is None or between is None or shape is None:
        return outer
    if not is_same_view(view_of(shape, outer.steps), view_of(shape, between)):
        return outer
    return replace(inner, base=outer.base, steps=(*outer.steps, *inner.steps))


def _turned_back(node: fx.Node) -> _Put | None:
    """A view of an updated view that shows the whole of a tensor again, such as two transpositions
    with an update in between."""
    inner = _put(node.args[0])
    if inner is None:
        return None
    base = inner.base
    steps: tuple[ViewStep, ...] = (_step(node),)
    while base.target in _VIEWS:
        steps = (_step(base), *steps)
        base = base.args[0]
        shape = _shape(base)
        if shape is not None and is_same_view(view_of(shape, steps), view_of(shape, ())):
            return replace(inner, base=base, steps=(*steps[:-1], *inner.steps))
    return None


def _steps_between(base: fx.Node, view: fx.Node) -> tuple[ViewStep, ...] | None:
    """The views that lead from one node to another; none where no views do."""
    steps: tuple[ViewStep, ...] = ()
    while view is not base:
        if view.target not in _VIEWS:
            return None
        steps = (_step(view), *steps)
        view = view.args[0]
    return steps


def _step(node: fx.Node) -> ViewStep:
    arguments = given_arguments(node)
    del arguments["self"]
    return ViewStep(node.target, tuple(arguments.items()))


def _shape(node: fx.Node) -> tuple[int, ...] | None:
    """A tensor's extents, where all are known."""
    shape = node.meta["val"].shape
    return tuple(shape) if all(isinstance(extent, int) for extent in shape) else None
