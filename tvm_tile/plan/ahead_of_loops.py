"""Waits of a loop's body that are waits ahead of the loop.

What a body waits for of what lies outside of its loop was ended once and for all before the first
iteration: regions outside are not entered while the loop runs. So each vEU waits for that once, as
it comes to the loop, for all that it runs there. All of it comes before the loop on the path, so
that the kernel still ends (:mod:`tvm_tile.plan.rprogram`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm_tile.plan.rprogram import Lagged, RProgram, places, program_waits, repeated_regions

Waits = Sequence[Sequence[Lagged]]
"""Of each counter, what those who add to it wait for."""


@dataclass(frozen=True, slots=True)
class DividedWaits:
    """Counters that are waited for, and where.

    Attributes:
        inside: for each counter, the waits that are left each time its rTasks run.
        ahead: waits ahead of a loop, by the region that holds all of the loop, and by counter.
    """

    inside: tuple[tuple[Lagged, ...], ...]
    ahead: Mapping[int, Mapping[int, tuple[Lagged, ...]]]

    def of_loop(self, region: int, counters: Sequence[int]) -> tuple[Lagged, ...]:
        """Waits of a vEU ahead of a loop, if the vEU adds to these counters in it or elsewhere."""
        own = self.ahead.get(region, {})
        return tuple(dict.fromkeys(w for counter in counters for w in own.get(counter, ())))


def divided_waits(program: RProgram, waited: Waits | None = None) -> DividedWaits:
    """Waits, each as far ahead as it can be.

    Args:
        program: without functions that call themselves, or none is ahead.
        waited: waits, if they are others than those of
            :func:`~tvm_tile.plan.rprogram.program_waits`.
    """
    waits = program_waits(program) if waited is None else waited
    if program.functions:
        return DividedWaits(tuple(map(tuple, waits)), {})
    loops = repeated_regions(program.items)
    around = {place.counter: place.regions for place in places(program)}
    inside: list[tuple[Lagged, ...]] = []
    ahead: dict[int, dict[int, tuple[Lagged, ...]]] = {}
    for counter, own in enumerate(waits):
        left = []
        for wait in own:
            others = around[wait.counter]
            outer = (r for r in around[counter] if r in loops and r not in others)
            region = next(outer, None)
            if region is None:
                left.append(wait)
            else:
                of_loop = ahead.setdefault(region, {})
                of_loop[counter] = (*of_loop.get(counter, ()), wait)
        inside.append(tuple(left))
    return DividedWaits(tuple(inside), ahead)
