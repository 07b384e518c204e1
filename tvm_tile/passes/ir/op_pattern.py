"""Kind of a function for TVM's fusion: its OpPatternKind."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from tvm import tirx


class OpPattern(IntEnum):
    """Kinds of functions, by TVM's numbers; a lower one is fused more freely."""

    ELEMENT_WISE = 0
    BROADCAST = 1
    INJECTIVE = 2  # each element from others at any one place
    COMM_REDUCE = 3  # a sum, fused with what feeds it
    OUT_ELEMENT_WISE_FUSABLE = 4  # a convolution, fused with what follows it
    TUPLE = 7
    OPAQUE = 8


def pattern_of(func: Any) -> OpPattern | None:
    """The pattern of a function, as TVM annotated it; ``None`` of any other."""
    if not isinstance(func, tirx.PrimFunc) or "op_pattern" not in (func.attrs or {}):
        return None
    return OpPattern(int(func.attrs["op_pattern"]))


def with_pattern(func: tirx.PrimFunc, pattern: OpPattern) -> tirx.PrimFunc:
    """``func`` as fusion is to take it."""
    return func.with_attr("op_pattern", int(pattern))
