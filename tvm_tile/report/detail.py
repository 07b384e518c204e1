"""Words that ``explain()`` takes."""

from __future__ import annotations

from typing import Any, Literal, get_args

from tvm_tile.errors import OptionError

Detail = Literal["summary", "kernels", "joined", "apart", "memory", "all"]
Sort = Literal["time", "bytes", "name"]

DETAILS: tuple[str, ...] = get_args(Detail)
SORTS: tuple[str, ...] = get_args(Sort)


def check_word(name: str, value: Any, words: tuple[str, ...]) -> None:
    """Refuse a value that is none of some words.

    Raises:
        OptionError: the value is none of them.
    """
    if value not in words:
        known = ", ".join(map(repr, words))
        raise OptionError(f"{name} is one of {known}", repr(value), "pass one of them")
