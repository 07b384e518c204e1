"""Which chunks of a constant weight are not zeros, as a function says it: in an attribute, and in
one more parameter, a table that its kernel may walk."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tvm_tile.graph.listed import Listed

LISTED = "tvm_tile.listed"
"""Attribute of a function: the places of a matrix of weights and of its table among the parameters,
columns of a group, elements of a chunk, chunks, and each group's bits as a hexadecimal number."""


def with_listed(func: tirx.PrimFunc, place: int, listed: Listed, inputs: int) -> tirx.PrimFunc:
    """A function of one more parameter, the table, behind all inputs.

    Args:
        func: an unscheduled function.
        place: place of the matrix that has the zeros.
        listed: its chunks that are not zeros.
        inputs: number of its inputs, which are ahead of its outputs.
    """
    shape = [len(listed.groups), listed.words]
    params = list(func.params)
    params.insert(inputs, tirx.decl_buffer(shape, "uint32", listed.source))
    told = [place, inputs, listed.step, listed.chunk, listed.chunks]
    groups = [f"{group:x}" for group in listed.groups]
    own = tirx.PrimFunc(params, func.body, func.ret_type, func.attrs)
    return own.with_attr(LISTED, [*told, *groups])


def listed_of(func: tirx.PrimFunc) -> tuple[Any, Listed] | None:
    """The matrix, a parameter of a function, and its lists; ``None`` where it has none."""
    told = (func.attrs or {}).get(LISTED)
    if told is None:
        return None
    place, table, step, chunk, chunks = map(int, told[:5])
    groups = tuple(int(str(group), 16) for group in told[5:])
    source = str(func.params[table].name)
    return func.params[place], Listed(source, step, chunk, chunks, groups)
