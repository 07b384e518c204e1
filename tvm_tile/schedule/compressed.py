"""A matrix that a function takes without its zeros, as the function says it: it makes the matrix of
what is kept ahead of what reads it, and tells in an attribute which of its parameters that are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import s_tir, tirx
from tvm.s_tir import SBlockRealize

from tvm_tile.graph.expression import substituted
from tvm_tile.graph.extract import blocks_in, loads_in
from tvm_tile.graph.sparsity import with_places
from tvm_tile.graph.tile_graph import TileGraph
from tvm_tile.loops.expanding import expanding_loops
from tvm_tile.schedule.s_tir.steps import replace_parts, without_blocks

COMPRESSED = "tvm_tile.compressed_matrix"
"""Attribute of a function: places among its parameters of a matrix' kept numbers, and of the words
that tell which they are."""


@dataclass(frozen=True, slots=True)
class CompressedMatrix:
    """A function that takes a matrix whole, made of one that takes it without its zeros.

    Attributes:
        func: the function, whose first parameter is the matrix.
        values: name of the parameter of the kept numbers.
        places: name of that of the words that tell which these are.
        shape: rows, and elements of a row.
    """

    func: tirx.PrimFunc
    values: str
    places: str
    shape: tuple[int, int]


def with_compressed(func: tirx.PrimFunc, matrix: tuple[int, int], inputs: int) -> tirx.PrimFunc:
    """A function that takes a matrix without its zeros.

    before: ``f(x, w)``   after: ``f(x, values, words)``, whose ``w`` is made of these

    Args:
        func: an unscheduled function.
        matrix: place of the matrix, and its dimension that is not summed up.
        inputs: number of its inputs, which are ahead of its outputs.
    """
    place, axis = matrix
    whole = func.params[place]
    shape = [int(extent) for extent in whole.ty.shape]
    loops = s_tir.renew_defs(expanding_loops(shape, axis, str(whole.ty.dtype)))
    names = [f"{whole.name}_{end}" for end in ("kept", "places")]
    pairs = zip(names, loops.params, strict=False)
    values, words = (tirx.Var(name, own.ty) for name, own in pairs)
    renamed = dict(zip(loops.params, (values, words, whole), strict=True))
    root = func.body.block
    parts = list(root.body) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    body = tirx.SeqStmt([substituted(loops.body.block.body, renamed), *parts])
    block = replace_parts(root, alloc_buffers=[whole, *root.alloc_buffers], body=body)
    params = list(func.params)
    # Where the matrix was, so that other attributes' places still are those of their parameters.
    params[place] = values
    params.insert(inputs, words)
    realize = SBlockRealize([], True, block)
    found = tirx.PrimFunc(params, realize, func.ret_type, func.attrs)
    return found.with_attr(COMPRESSED, [place, inputs])


def compressed_of(func: tirx.PrimFunc) -> CompressedMatrix | None:
    """The function without what makes its matrix; ``None`` of one that takes none so."""
    told = (func.attrs or {}).get(COMPRESSED)
    if told is None:
        return None
    values, words = (func.params[int(place)] for place in told)
    (block,) = (
        block
        for block in blocks_in(func.body)
        if any(load.source.same_as(words) for load in loads_in(block.body.value))
    )
    rows, half = map(int, values.ty.shape)
    whole = without_blocks(func, [block], block.body.buffer)
    return CompressedMatrix(whole, str(values.name), str(words.name), (rows, 2 * half))


def left_out(func: tirx.PrimFunc, graph: TileGraph) -> float:
    """Operations of a function that nobody does: products with zeros, and what makes the matrix."""
    if COMPRESSED not in (func.attrs or {}):
        return 0.0
    (product,) = graph.reductions
    name = str(func.params[int(func.attrs[COMPRESSED][1])].name)
    making = (own for own in graph.operators if any(read.tensor.name == name for read in own.reads))
    return product.total_flops / 2 + math.fsum(own.total_flops for own in making)


def settlers_of(func: tirx.PrimFunc) -> dict[int, Callable[[np.ndarray], np.ndarray]]:
    """Functions that make of any values of some parameters what they may be: words that tell two
    different places each.

    Args:
        func: the function.

    Returns:
        Place of the parameter -> function of an array like it.
    """
    told: Any = (func.attrs or {}).get(COMPRESSED)
    return {} if told is None else {int(told[1]): with_places}
