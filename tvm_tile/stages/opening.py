"""A model of open extents: fused at a few points, and what is the same at all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import tvm

from tvm_tile.build import rename_by_content
from tvm_tile.device import Device
from tvm_tile.graph.open_extents import Point, Symbol, far, top
from tvm_tile.passes.open.close_main import close
from tvm_tile.passes.open.replay import Decisions, RecordedChoices, RecordedRefusals
from tvm_tile.passes.open.unify import confirm, unify
from tvm_tile.passes.scheduling.first_choices import FirstChoices
from tvm_tile.passes.sequence import Refused, operator_loops, run_passes
from tvm_tile.stages.fusing import Fused

_NEAR = 4  # values of an extent, from the greatest one on, at which a model is fused

Fuse = Callable[[tvm.IRModule, FirstChoices, Refused], Fused]
"""Fuses a model, with what answers for schedules and refusals."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A model whose extents are open.

    Attributes:
        symbols: symbols of its open extents.
        at: function that gives the model in Relax at a point, prepared as front doors do.
    """

    symbols: tuple[Symbol, ...]
    at: Callable[[Point], tvm.IRModule]

    def fused(self, device: Device, fuse: Fuse, choices: FirstChoices, refused: Refused) -> Fused:
        """The fused model over tensors of the greatest extents, which takes open ones.

        Args:
            device: the device that it is compiled for.
            fuse: the stages.
            choices: scheduler of functions.
            refused: why functions must not be made of others.

        Raises:
            DynamicShapeError: the model is not the same at all points.
        """
        decisions = Decisions()
        points = near(self.symbols)
        recorded = RecordedChoices(choices, decisions), RecordedRefusals(refused, decisions)
        fused = {points[0]: fuse(self.at(points[0]), *recorded)}
        for point in points[1:]:
            fused[point] = fuse(self.at(point), *decisions.again(device))
        modules = {point: own.mod for point, own in fused.items()}
        opened = unify(modules, [symbol.name for symbol in self.symbols])
        self._confirm(points)
        return replace(fused[points[-1]], mod=rename_by_content(close(opened, self.symbols)))

    def _confirm(self, points: Sequence[Point]) -> None:
        """Make sure that loops are the same at the least extents, too, before they are fused."""
        passes = operator_loops()
        modules = {point: run_passes(passes, self.at(point)) for point in points}
        opened = unify(modules, [symbol.name for symbol in self.symbols])
        for point in far(self.symbols):
            confirm(opened, point, run_passes(passes, self.at(point)))


def near(symbols: Sequence[Symbol]) -> list[Point]:
    """Points from which forms are found: the greatest, and those next to it, one way or several."""
    first = top(symbols)
    corners = itertools.product(*(_last(symbol, 2) for symbol in symbols))
    lines = (
        (*first[:i], value, *first[i + 1 :])
        for i, symbol in enumerate(symbols)
        for value in _last(symbol, _NEAR)
    )
    return list(dict.fromkeys([first, *corners, *lines]))


def _last(symbol: Symbol, count: int) -> list[int]:
    """The ``count`` last of a symbol's values, reversed, without 1 if two or more are left."""
    values = symbol.values[-count:]
    # Loops of one iteration are none: at 1, a function has others.
    several = [value for value in values if value > 1]
    return list(reversed(several if len(several) > 1 else values))
