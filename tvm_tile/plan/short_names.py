"""Names of a user's model on little room."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

_PART = re.compile(r"[^/.]+[/.]*|[/.]+")


def short(names: Sequence[str], width: int) -> str:
    """Several names as one, of at most so many characters.

    What all of them begin with is told once; where there is no room for all, how many more there
    are::

        layer1.0.conv2, layer1.0.bn2, layer1.0.relu   =>   layer1.0.conv2 + bn2 + relu
    """
    shared = _shared(names)
    own = [names[0], *(name[shared:] for name in names[1:])] if names else []
    text = " + ".join(own)
    kept = len(own)
    while len(text) > width and kept > 1:
        kept -= 1
        text = " + ".join(own[:kept]) + f" + {len(own) - kept} more"
    return text if len(text) <= width else f"{text[: max(width - 3, 0)]}..."


def _shared(names: Sequence[str]) -> int:
    """How many characters all names begin with, whole parts of paths, and not all of any name."""
    parts = zip(*(_PART.findall(name)[:-1] for name in names), strict=False)
    alike = itertools.takewhile(lambda part: len(set(part)) == 1, parts)
    return sum(len(part[0]) for part in alike)


def places(calls: Sequence[Sequence[str]], width: int) -> str:
    """The names of what a kernel computes: those of its first call, and how many others it has."""
    if not calls:
        return ""
    others = f" (and {len(calls) - 1} alike)" if len(calls) > 1 else ""
    return short(calls[0], width - len(others)) + others
