"""Names of a function's buffers, by which decisions and schedule rules know tensors."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.expression import substituted


def buffers_of(func: tirx.PrimFunc) -> list[Any]:
    """Parameters, then what blocks allocate, from the outermost one on."""
    found: list[Any] = list(func.params)

    def visit(block: Any) -> None:
        found.extend(block.alloc_buffers)

    tvm_ffi.structural_walk(func.body, (SBlock, visit), order="pre")
    return found


def has_own_names(func: tirx.PrimFunc) -> bool:
    """Whether no two of a function's buffers have one name."""
    buffers = buffers_of(func)
    return len({str(buffer.name) for buffer in buffers}) == len(buffers)


def with_own_names(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func``, no two of whose buffers have one name; the first of a name keeps it.

    before: ``def f(x: Buffer, x: Buffer, y: Buffer)``, as stock fusion may leave it
    after:  ``def f(x: Buffer, x_: Buffer, y: Buffer)``
    """
    buffers = buffers_of(func)
    names = {str(buffer.name) for buffer in buffers}
    if len(names) == len(buffers):
        return func
    kept: set[str] = set()
    renamed: dict[Any, Any] = {}
    for buffer in buffers:
        name = str(buffer.name)
        if name in kept:
            while name in names:
                name += "_"
            renamed[buffer] = tirx.Var(name, buffer.ty)
            names.add(name)
        kept.add(name)

    params = [renamed.get(p, p) for p in func.params]
    return tirx.PrimFunc(params, substituted(func.body, renamed), func.ret_type, func.attrs)
