"""Predicted time of one tile of a product at other extents than those that it is made for.

A product's tile hardly depends on how many rows there are; what it takes does, in steps: a row more
may be another turn of all multiprocessors. A rule that is asked for tiles looks at all that there
are; to ask again for each extent of a range would take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import sym, tirx

from tvm_tile.device.device import Device
from tvm_tile.graph.expression import substituted
from tvm_tile.schedule.rule import Task
from tvm_tile.schedule.tensor_cores.found import ProductMatch
from tvm_tile.schedule.tensor_cores.limits import Limits
from tvm_tile.schedule.tensor_cores.work import store_work
from tvm_tile.tile.products.store_work import StoreWork
from tvm_tile.tile.tile import AnyTile
from tvm_tile.tile.time import Scene, Work, seconds_of
from tvm_tile.tile.units.product import Product

_ALL = 1 << 16  # tiles: more than there are of any product

Values = Mapping[Any, int]
"""Open extents, variables of a function, in a call."""


def times_over(
    found: ProductMatch | None,
    task: Task,
    construct: Callable[[Product, Device, int, StoreWork, Scene], Sequence[AnyTile]],
    shorter_work: Callable[[Product, Device, AnyTile, StoreWork], Work],
    text: str,
    points: Sequence[Values],
) -> list[float] | None:
    """Predicted seconds of a tile in some calls; ``None`` if there is no such tile, or no product.

    Args:
        found: the product, at the greatest extents.
        task: the function that it is in.
        construct: function that names tiles of a product, at most a number of them.
        shorter_work: function that says what a tile's kernel does for a shorter product.
        text: describes the tile.
        points: the calls.
    """
    if found is None:
        return None
    product, work = found.product, store_work(found.epilogue, found.product)
    tiles = construct(product, task.device, _ALL, work, task.scene)
    tile = next((tile for tile in tiles if tile.describe() == text), None)
    names = {axis.name for axis in (*product.batch, *product.left.free, *product.right.free)}
    if tile is None or not names.issuperset(found.limits):
        return None
    shorter = (product.shortened(_at(found.limits, point)) for point in points)
    works = [shorter_work(own, task.device, tile, work) for own in shorter]
    return seconds_of(works, task.device, task.scene).tolist() if works else []


def _at(limits: Limits, point: Values) -> dict[str, int]:
    """Limits of axes at the values of a call."""
    return {name: _value(limit, point) for name, limit in limits.items()}


def _value(expr: Any, point: Values) -> int:
    """An expression of open extents in a call."""
    numbers = {var: tirx.const(value, str(var.ty.dtype)) for var, value in point.items()}
    return int(sym.Analyzer().simplify(substituted(expr, numbers)))
