"""Operators on whole rows, such as sorts and scans, where an open extent is the number of rows.

Their loops are by definition those of each row by itself, so a function for the greatest extents
does within smaller ones what one for these does, whatever lies beyond them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import tirx

from tvm_tile.schedule.rowwise import find_rowwise


def is_by_rows(functions: Sequence[tirx.PrimFunc]) -> bool:
    """Whether functions are one operator on rows of one length."""
    operators = [_of_any_rows(func) for func in functions]
    return operators[0] is not None and all(one == operators[0] for one in operators)


def _of_any_rows(func: tirx.PrimFunc) -> Any:
    """The operator, as if there were one row; ``None`` of a function that is none."""
    found = find_rowwise(func)
    if found is None:
        return None
    rows = found.rows
    shape = tuple(extent if axis == rows.axis else 1 for axis, extent in enumerate(rows.shape))
    return replace(found, rows=replace(rows, shape=shape))


def without_body(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function of the same parameters that does nothing."""
    return tirx.PrimFunc(func.params, tirx.Evaluate(tirx.IntImm("int32", 0)), func.ret_type)


def with_body_of(func: tirx.PrimFunc, outside: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function that does what ``func`` does, with the parameters of another one."""
    params = dict(zip(func.params, outside.params, strict=True))
    body = tvm_ffi.structural_map(
        func.body, [(tirx.Var, lambda var: params.get(var, var))], order="post"
    )
    return tirx.PrimFunc(list(outside.params), body, func.ret_type, func.attrs)
