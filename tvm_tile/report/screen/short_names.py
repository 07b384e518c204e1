"""Names of a user's model on little room."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

SIGN = " + "
"""Between two names of several that are told as one."""

_DOTS = "..."
_KEPT = 4  # parts of a long path
_PART = re.compile(r"[^/.]+[/.]*|[/.]+")


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
            own[0] = _DOTS + "".join(parts[-_KEPT:])
    for kept in range(len(own), 0, -1):
        more = [f"{len(own) - kept} more"] if kept < len(own) else []
        text = SIGN.join([*own[:kept], *more])
        if len(text) <= width:
            return text
    return f"{own[0][: width - len(_DOTS)]}{_DOTS}" if own else ""


def tail(name: str, width: int) -> str:
    """A name on at most ``width`` characters: of a longer path, the last parts that have room."""
    if len(name) <= width:
        return name
    kept = ""
    for part in reversed(_PART.findall(name)):
        if len(_DOTS) + len(part) + len(kept) > width:
            break
        kept = part + kept
    return _DOTS + (kept or name[len(_DOTS) - width :])


def _shared(names: Sequence[str]) -> int:
    """How many characters all names begin with, whole parts of paths, and not all of any name."""
    parts = zip(*(_PART.findall(name)[:-1] for name in names), strict=False)
    alike = itertools.takewhile(lambda part: len(set(part)) == 1, parts)
    return sum(len(part[0]) for part in alike)
