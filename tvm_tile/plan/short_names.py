"""Names of a user's model on little room."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

_SIGN = " + "
_DOTS = "..."
_KEPT = 4  # parts of a long path
_PART = re.compile(r"[^/.]+[/.]*|[/.]+")


def short(names: Sequence[str], width: int) -> str:
    """Several names as one, of at most so many characters.

    What all of them begin with is told once; where there is no room, the path in front is left out
    but for its last parts, then names are, which are counted::

        layer1.0.conv2, layer1.0.bn2, layer1.0.relu   =>   layer1.0.conv2 + bn2 + relu
    """
    shared = _shared(names)
    own = [names[0], *(name[shared:] for name in names[1:])] if names else []
    if len(_SIGN.join(own)) > width:
        parts = _PART.findall(own[0])
        if len(parts) > _KEPT:
            own[0] = _DOTS + "".join(parts[-_KEPT:])
    for kept in range(len(own), 0, -1):
        more = [f"{len(own) - kept} more"] if kept < len(own) else []
        text = _SIGN.join([*own[:kept], *more])
        if len(text) <= width:
            return text
    return f"{own[0][: width - len(_DOTS)]}{_DOTS}" if own else ""


def _shared(names: Sequence[str]) -> int:
    """How many characters all names begin with, whole parts of paths, and not all of any name."""
    parts = zip(*(_PART.findall(name)[:-1] for name in names), strict=False)
    alike = itertools.takewhile(lambda part: len(set(part)) == 1, parts)
    return sum(len(part[0]) for part in alike)
