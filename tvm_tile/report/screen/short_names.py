"""Names of a user's model on little room."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

SIGN = " + "
"""Between two names of several that are told as one."""

CUT = "…"
"""What stands for text that is left out."""

_ALSO = ", "  # between values that are told as one
_KEPT = 4  # parts of a long path
_PART = re.compile(r"[^/.]+[/.]*|[/.]+")
_NUMBER = re.compile(r"(\d+)")


def short(names: Sequence[str], width: int) -> str:
    """Several names as one, of at most ``width`` characters.

    What all of them begin with is told once; where there is no room, the path in front is left out
    but for its last parts, then names are, which are counted::

        layer1.0.conv2, layer1.0.bn2, layer1.0.relu   =>   layer1.0.conv2 + bn2 + relu
    """
    shared = _shared(names)
    own = [names[0], *(name[shared:] for name in names[1:])] if names else []
    if len(SIGN.join(own)) > width:
        parts = _PART.findall(own[0])
        if len(parts) > _KEPT:
            own[0] = CUT + "".join(parts[-_KEPT:])
    return _as_many(own, SIGN, width)


def short_of_calls(calls: Sequence[Sequence[str]], width: int) -> str:
    """What several calls compute, in at most ``width`` characters; :func:`folded` ones as one.

    Args:
        calls: the names of each call's values.
        width: the most characters.
    """
    groups = folded(calls)
    room = width - len(f"{_ALSO}and {len(groups)} more") * (len(groups) > 1)
    return _as_many([short(names, max(room, 1)) for names in groups], _ALSO, width, "and ")


def folded(calls: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """The names of calls; those that differ only in numbers are one, with ``*`` for these::

    (layers.0.up, layers.0.relu6), (layers.1.up, layers.1.relu6)
        =>   (layers.*.up, layers.*.relu6)
    """
    alike: dict[tuple[str, ...], list[Sequence[str]]] = {}
    for names in calls:
        alike.setdefault(without_numbers(names), []).append(names)
    return tuple(
        tuple(map(_starred, zip(*group, strict=True))) if len(group) > 1 else tuple(group[0])
        for group in alike.values()
    )


def without_numbers(names: Sequence[str]) -> tuple[str, ...]:
    """Names with ``*`` for each number."""
    return tuple(_NUMBER.sub("*", name) for name in names)


def cut(text: str, width: int) -> str:
    """A text on at most ``width`` characters: a longer one without its middle."""
    if len(text) <= width:
        return text
    kept = max(width - len(CUT), 0)
    return text[: kept // 2] + CUT[:width] + text[len(text) - (kept + 1) // 2 :]


def _as_many(texts: Sequence[str], sign: str, width: int, last: str = "") -> str:
    """Texts with a sign between them, as many as there is room for, and how many more there are.

    ``last`` are words ahead of that number.
    """
    for kept in range(len(texts), 0, -1):
        more = [f"{last}{len(texts) - kept} more"] if kept < len(texts) else []
        told = sign.join([*texts[:kept], *more])
        if len(told) <= width:
            return told
    return cut(texts[0], width) if texts else ""


def _starred(names: Sequence[str]) -> str:
    """Names that differ only in numbers as one, with ``*`` for what differs."""
    parts = zip(*map(_NUMBER.split, names), strict=True)
    return "".join(first if {first} == {*others} else "*" for first, *others in parts)


def _shared(names: Sequence[str]) -> int:
    """How many characters all names begin with, whole parts of paths, and not all of any name."""
    parts = zip(*(_PART.findall(name)[:-1] for name in names), strict=False)
    alike = itertools.takewhile(lambda part: len(set(part)) == 1, parts)
    return sum(len(part[0]) for part in alike)
