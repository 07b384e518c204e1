"""The function of a model that a kernel belongs to, found by its symbol in machine code."""

from __future__ import annotations

import re
from collections.abc import Collection

# What TVM calls the kernels of a schedule, the first without a number.
_SYMBOL = re.compile(r"(?P<schedule>.+)_kernel(_\d+)?")
# What is behind a function's name in that of one of its schedules, where it has several.
_OF_SEVERAL = re.compile(r"_[0-9a-f]{8}$")


def schedule_of(symbol: str) -> str:
    """The schedule that a kernel is of; the symbol itself where it does not look like a kernel's.

    >>> schedule_of("fused_conv2d_relu_0f3a99c1_kernel_1")
    'fused_conv2d_relu_0f3a99c1'
    """
    found = _SYMBOL.fullmatch(symbol)
    return found["schedule"] if found else symbol


def function_of(symbol: str, known: Collection[str]) -> str:
    """The function that a kernel is of; the symbol itself where it is of none that is known."""
    schedule = schedule_of(symbol)
    names = (schedule, _OF_SEVERAL.sub("", schedule))
    return next((name for name in names if name in known), symbol)
