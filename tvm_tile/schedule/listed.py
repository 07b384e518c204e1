"""Which chunks of a constant weight are not zeros, as a function says it: in an attribute, and in
one more parameter, a table that its kernel may walk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx

from tvm_tile.graph.positions import Listed
from tvm_tile.graph.tile_graph import TileGraph, stored_bytes
from tvm_tile.schedule import compressed

LISTED = "tvm_tile.listed_chunks"
"""Attribute of a function: the places of a matrix of weights and of its table among the parameters,
which dimension of the matrix is not summed up, columns of a group, elements of a chunk, chunks, and
each group's bits as a hexadecimal number."""

_NUMBERS = 6  # ahead of the groups


def with_listed(
    func: tirx.PrimFunc, matrix: tuple[int, int], listed: Listed, inputs: int
) -> tirx.PrimFunc:
    """A function of one more parameter, the table, behind all inputs.

    Args:
        func: an unscheduled function.
        matrix: place of the matrix that has the zeros, and its dimension that is not summed up.
        listed: its chunks that are not zeros.
        inputs: number of its inputs, which are ahead of its outputs.
    """
    table = tirx.decl_buffer(list(listed.shape), "uint32", listed.source)
    told = [matrix[0], inputs, matrix[1], listed.step, listed.chunk, listed.chunks]
    groups = [f"{group:x}" for group in listed.groups]
    return with_parameter(func, inputs, table).with_attr(LISTED, [*told, *groups])


def with_parameter(func: tirx.PrimFunc, place: int, buffer: Any) -> tirx.PrimFunc:
    """A function of one more parameter, which nothing of it reads.

    Args:
        func: the function.
        place: how many of its parameters are in front of it.
        buffer: the parameter.
    """
    params = [*func.params[:place], buffer, *func.params[place:]]
    return tirx.PrimFunc(params, func.body, func.ret_type, func.attrs)


def listed_of(func: tirx.PrimFunc) -> tuple[Any, Listed] | None:
    """The matrix, a parameter of a function, and its lists; ``None`` where it has none."""
    told = (func.attrs or {}).get(LISTED)
    if told is None:
        return None
    place, table, _, step, chunk, chunks = map(int, told[:_NUMBERS])
    groups = tuple(int(str(group), 16) for group in told[_NUMBERS:])
    source = str(func.params[table].name)
    return func.params[place], Listed(source, step, chunk, chunks, groups)


def left_out(func: tirx.PrimFunc, graph: TileGraph) -> tuple[float, float]:
    """Operations and bytes of a function that its kernel leaves out, as its lists tell or since its
    matrix is kept without zeros; none where neither is so.

    Args:
        func: the function, whose only sum is a product that has the matrix.
        graph: its operators.
    """
    told = listed_of(func)
    if told is None:
        return compressed.left_out(func, graph), 0.0
    matrix, listed = told
    size = stored_bytes(matrix.ty)
    share = 1 - listed.share
    return share * graph.reductions[0].total_flops, share * size


def settlers_of(func: tirx.PrimFunc) -> dict[int, Callable[[np.ndarray], np.ndarray]]:
    """Functions that make of any values of some parameters what they may be: of lists the table
    itself, and a matrix that has its zeros; words that tell which numbers of a matrix are kept.

    Args:
        func: the function.

    Returns:
        Place of the parameter -> function of an array like it.
    """
    told = listed_of(func)
    if told is None:
        return compressed.settlers_of(func)
    place, table, axis = map(int, func.attrs[LISTED][:3])
    listed = told[1]

    def with_zeros(matrix: np.ndarray) -> np.ndarray:
        shape = [extent for extent in matrix.shape if extent > 1]
        own = listed.kept().repeat(listed.step, 0).repeat(listed.chunk, 1)
        kept = (own.T if axis else own)[: shape[0], : shape[1]].reshape(matrix.shape)
        return np.where(kept, matrix, matrix.dtype.type(0))

    return {place: with_zeros, table: lambda _: listed.table()}
