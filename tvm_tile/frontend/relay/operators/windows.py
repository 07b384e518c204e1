"""Numbers that say how windows move, as attributes of Relay."""

from __future__ import annotations

from typing import Any

from tvm_tile.frontend.relay.call import OperatorCall


def numbers(call: OperatorCall, name: str, rank: int, least: int = 1) -> list[int]:
    """An attribute with a number for each axis, or one for all of them.

    Raises:
        ValueError: there are more or fewer, or one is below the least one.
    """
    found = _listed(call.attributes[name])
    found = found * rank if len(found) == 1 else found
    if len(found) != rank or min(found) < least:
        raise ValueError(f"{name} {found} for {rank} axes")
    return found


def paddings(call: OperatorCall, rank: int) -> list[int]:
    """Padding before each axis, then padding behind each axis.

    Raises:
        ValueError: the attribute has neither one number, nor one nor two an axis.
    """
    found = _listed(call.attributes["padding"])
    if len(found) == 1:
        found = found * 2 * rank
    elif len(found) == rank:
        found = found * 2
    if len(found) != 2 * rank:
        raise ValueError(f"padding {found} for {rank} axes")
    if min(found) < 0:
        raise NotImplementedError(f"padding {found}")
    return found


def _listed(value: Any) -> list[int]:
    return [int(number) for number in (value if isinstance(value, tuple | list) else (value,))]
