"""What the numbers in the target of Relay's ``reshape`` mean."""

from __future__ import annotations

import math
from collections.abc import Sequence


def target_shape(
    shape: Sequence[int], codes: Sequence[int], *, zero_is_extent: bool = False
) -> tuple[int, ...]:
    """The shape that a reshape makes.

    In the target 0 is the operand's extent at this place, -1 whatever is left (at most once), -2
    all extents of the operand that are left, -3 the product of its next two, and -4 its next one,
    split into the two numbers that follow, of which one may be -1.

    Args:
        shape: the operand's.
        codes: the target: extents and codes.
        zero_is_extent: 0 is the extent 0.

    Raises:
        ValueError: no shape is meant.
    """
    extents, left = list(shape), [int(code) for code in codes]
    place, open_at, given = 0, None, 1
    found: list[int] = []
    kept: set[int] = set()  # places of the operand's extents that the shape has, too

    def following(count: int) -> list[int]:
        nonlocal place
        taken = extents[place : place + count]
        kept.update(range(place, place + count))
        if len(taken) < count:
            raise ValueError(f"{list(codes)} for a tensor of {extents}")
        place += count
        return taken

    while left:
        code = left.pop(0)
        if code > 0 or (code == 0 and zero_is_extent):
            found.append(code)
            given *= code
            place += 1
        elif code == 0:
            found += following(1)
        elif code == -1 and open_at is None:
            open_at = len(found)
            found.append(1)
            place += 1
        elif code == -2:
            found += following(len(extents) - place)
        elif code == -3:
            found.append(math.prod(following(2)))
        elif code == -4 and len(left) >= 2:
            found += _split(following(1)[0], left.pop(0), left.pop(0))
        else:
            raise ValueError(f"{list(codes)} as the shape of a reshape")
    if open_at is not None and given:
        others = math.prod(extent for i, extent in enumerate(extents) if i not in kept)
        found[open_at] = others // given
    if math.prod(found) != math.prod(shape):
        raise ValueError(f"a tensor of {extents} as one of {list(codes)}")
    return tuple(found)


def _split(extent: int, first: int, second: int) -> tuple[int, int]:
    """Two numbers whose product is an extent; one of them may be -1."""
    if first == -1 and second > 0:
        first = extent // second
    elif second == -1 and first > 0:
        second = extent // first
    if first < 0 or second < 0 or first * second != extent:
        raise ValueError(f"an extent of {extent} as {first} times {second}")
    return first, second


def target_like(
    shape: Sequence[int],
    like: Sequence[int],
    places: tuple[int, int | None],
    places_of_like: tuple[int, int | None],
) -> tuple[int, ...]:
    """A shape, some extents of which are replaced by those of another one.

    Args:
        shape: the operand's.
        like: the other one.
        places: begin and end of what is replaced; ``None`` is the rank.
        places_of_like: of what it is replaced by.
    """
    begin, end = _section(places, len(shape))
    first, last = _section(places_of_like, len(like))
    return (*shape[:begin], *like[first:last], *shape[end:])


def _section(places: tuple[int, int | None], rank: int) -> tuple[int, int]:
    begin, end = places[0], rank if places[1] is None else places[1]
    begin, end = (place + rank if place < 0 else place for place in (begin, end))
    if not 0 <= begin <= end <= rank:
        raise ValueError(f"extents {begin} to {end} of {rank}")
    return begin, end


def without_ones(shape: Sequence[int], axes: Sequence[int] | None) -> tuple[int, ...]:
    """A shape without some extents of 1, or without all of them.

    Args:
        shape: the operand's.
        axes: of those extents, counted from the first or from the last one; ``None`` is all.

    Raises:
        ValueError: there is no such axis, or its extent is not 1.
    """
    if axes is None:
        return tuple(extent for extent in shape if extent != 1)
    rank = len(shape)
    if any(not -rank <= axis < rank or shape[axis] != 1 for axis in axes):
        raise ValueError(f"a tensor of {list(shape)} without the axes {list(axes)}")
    gone = {axis % rank for axis in axes}
    return tuple(extent for place, extent in enumerate(shape) if place not in gone)


def with_ones(shape: Sequence[int], axis: int, count: int) -> tuple[int, ...]:
    """A shape with some more extents of 1, from an axis of the result on.

    Raises:
        ValueError: there is no such axis.
    """
    rank = len(shape)
    if not -rank - 1 <= axis <= rank or count < 0:
        raise ValueError(f"axis {axis} of {rank} dimensions and {count} more")
    place = axis + rank + 1 if axis < 0 else axis
    return (*shape[:place], *(1,) * count, *shape[place:])
