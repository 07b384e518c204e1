"""Where a function's kernel runs, as the function says it: which of its operands are streamed."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

from tvm_tile.graph.functions import is_tensor
from tvm_tile.graph.tile_graph import TileGraph, stored_bytes
from tvm_tile.tile.time import AMID, Scene, Start

STREAMED = "tvm_tile.streamed"
"""Attribute of a function: places of the parameters that no cache holds when it is called."""


def with_streamed(func: tirx.PrimFunc, places: Sequence[int]) -> tirx.PrimFunc:
    """The function with parameters marked that come from memory, given their places."""
    return func.with_attr(STREAMED, list(places)) if places else func


def streamed_names(func: tirx.PrimFunc) -> tuple[str, ...]:
    """Names of the parameters that are marked; a pass may have left out some."""
    places = map(int, (func.attrs or {}).get(STREAMED, ()))
    return tuple(str(func.params[place].name) for place in places if place < len(func.params))


def scene_of(func: tirx.PrimFunc, graph: TileGraph) -> Scene:
    """Where the kernel of a function runs.

    Args:
        func: the function, amid a model.
        graph: its operators.
    """
    places = (func.attrs or {}).get(STREAMED, ())
    # A pass may have left out parameters.
    params = [func.params[int(place)] for place in places if int(place) < len(func.params)]
    streamed = sum(stored_bytes(param.ty) for param in params if is_tensor(param))
    if not streamed:
        return AMID
    read = max(1, graph.traffic - graph.written)
    return Scene(Start.BEHIND, max(0.0, 1 - streamed / read))
