"""How many elements of a sorted run come before one: a search in halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.loops.rows import number
from tvm_tile.loops.sorting import Ordering, State


def count_before(
    ordering: Ordering,
    own: Callable[[], State],
    run: Callable[[Any], State],
    longest: int,
    length: Any,
    found: Any,
) -> None:
    """Count the elements of a sorted run before another one, and store the number in ``found``.

    Args:
        ordering: which of two comes first.
        own: the element.
        run: of a place: the run's element there.
        longest: elements that a run has at most.
        length: elements that this one has; nothing behind them is read.
        found: where the number goes.
    """
    ib.buffer_store(found, number(0), [0])
    bits = longest.bit_length()
    with ib.serial(number(bits)) as step:
        further = ib.Bind(found[0] + (number(1 << (bits - 1)) >> step))
        with ib.If(further <= length), ib.Then():
            is_before = ordering.is_before(run(further - number(1)), own())
            ib.buffer_store(found, tirx.Select(is_before, further, found[0]), [0])
