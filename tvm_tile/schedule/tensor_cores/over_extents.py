"""What one tile of a product is predicted to take at other extents than those that it is made for.

A product's tile hardly depends on how many rows there are; what it takes does, in steps: a row more
may be another turn of all multiprocessors. A rule that is asked for tiles looks at all that there
are; to ask again for each extent of a range would take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import tvm_ffi
from tvm import sym, tirx

from tvm_tile.schedule.rule import RankedTile
from tvm_tile.schedule.tensor_cores.limits import Limits
from tvm_tile.tile.product import Product

Tile = TypeVar("Tile", bound=RankedTile)
Values = Mapping[Any, int]
"""Open extents, variables of a function, in a call."""


def times_over(
    tiles: Iterable[Tile],
    text: str,
    product: Product,
    limits: Limits,
    seconds: Callable[[Product, Tile], float],
    points: Sequence[Values],
) -> list[float] | None:
    """What a tile takes in some calls; ``None`` if there is no such tile.

    Args:
        tiles: of the product.
        text: describes the tile.
        product: at the greatest extents.
        limits: how far its axes go in a call.
        seconds: predicts what a tile takes for a shorter product.
        points: the calls.
    """
    tile = next((tile for tile in tiles if tile.describe() == text), None)
    if tile is None:
        return None
    names = {axis.name for axis in (*product.batch, *product.left.free, *product.right.free)}
    known = {name: limit for name, limit in limits.items() if name in names}
    if len(known) < len(limits):
        return None
    return [seconds(product.shortened(_at(known, point)), tile) for point in points]


def _at(limits: Limits, point: Values) -> dict[str, int]:
    return {name: _value(limit, point) for name, limit in limits.items()}


def _value(expr: Any, point: Values) -> int:
    """An expression of open extents in a call."""

    def variable(var: Any) -> Any:
        return tirx.const(point[var], str(var.ty.dtype)) if var in point else var

    known = tvm_ffi.structural_map(expr, [(tirx.Var, variable)], order="post")
    return int(sym.Analyzer().simplify(known))
