"""The name that somebody may have meant: "did you mean ...?"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(given: str, known: Iterable[str]) -> str | None:
    """The known name that is most like the one given, in any case; None where none is like it."""
    by_lower_case = {name.lower(): name for name in known}
    found = difflib.get_close_matches(given.lower(), by_lower_case, n=1)
    return by_lower_case[found[0]] if found else None


def did_you_mean(given: str, known: Iterable[str], otherwise: str) -> str:
    """The remedy for a name that is not known.

    Args:
        given: the name.
        known: names that are known.
        otherwise: the remedy where none of them is meant.
    """
    found = closest(given, known)
    return otherwise if found is None else f"did you mean {found}? Otherwise {otherwise}"
