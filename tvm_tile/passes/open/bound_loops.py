"""Functions of open extents as functions of known loops, over tensors of the greatest extents.

before, of the variable ``n``::

    for i in range(n): y[i] = sum(x[i, k] for k in range(n))

after, for ``n <= 64`` in tensors made for 128::

    for i in range(64): y[i] = sum(x[i, k] if k < n else 0 for k in range(64))

where ``x`` is of ``128 x 128`` elements and ``y`` of 128. Every extent, stride and alignment that a
rule reads in the result is a fact. An element with a position beyond the call's extent may be
anything, and nothing that is computed within it depends on one:

* what a reduction takes from beyond its extent is its neutral element;
* what depends on an extent otherwise (the other end of a flipped axis, a boundary between joined
  tensors) is computed with the call's extent, and nothing is read where that would be elsewhere;
* nothing is read by an index from memory, nor divided by an integer from there, beyond the extent:
  who knows what lies there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock

from tvm_tile.errors import DynamicShapeError
from tvm_tile.graph.expression import is_load_of, uses
from tvm_tile.graph.extract import loads_in, nodes_in
from tvm_tile.graph.open_extents import Point
from tvm_tile.passes.open.plain_loops import is_one
from tvm_tile.passes.open.unify import at_point
from tvm_tile.schedule.open_outputs import with_extents
from tvm_tile.schedule.s_tir.steps import replace_parts, replace_value

_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
_SPATIAL, _REDUCE = 0, 2


@dataclass(frozen=True, slots=True)
class Bounded:
    """A function whose loops and tensors have known extents.

    Attributes:
        func: the function; between its inputs and its outputs it takes ``scalars``.
        scalars: the open extents that it depends on, int64.
    """

    func: tirx.PrimFunc
    scalars: tuple[tirx.Var, ...]


def bounded(
    func: tirx.PrimFunc, inputs: int, symbols: Sequence[tirx.Var], most: Point, whole: Point
) -> Bounded:
    """A function for all points up to ``most``, over tensors that are made for ``whole``.

    Args:
        func: function whose extents are expressions of the symbols.
        inputs: number of its parameters, the first ones, that are inputs.
        symbols: symbols in the order of points.
        most: the greatest values that it is called with.
        whole: extents that its parameters' memory is for.

    Raises:
        DynamicShapeError: the function has loops written by hand, such as those of a sort, that
            depend on an open extent.
    """
    if not uses(func, symbols):
        return Bounded(func, ())

    def known(expr: Any) -> Any:
        return at_point(expr, symbols, most)

    whole_params = {p: _first_rows(p, symbols, most, whole) for p in func.params}

    body = _with_known_tensors(func.body, whole_params, known)
    body = _with_known_loops(_with_masks(body, symbols), known)
    scalars = tuple(symbol for symbol in symbols if uses(func, [symbol]))
    tensors = list(whole_params.values())
    params = [*tensors[:inputs], *scalars, *tensors[inputs:]]
    made = tirx.PrimFunc(params, body, func.ret_type, func.attrs)
    return Bounded(with_extents(made, [p.ty.shape for p in func.params[inputs:]]), scalars)


def _first_rows(param: Any, symbols: Sequence[tirx.Var], most: Point, whole: Point) -> tirx.Var:
    """A tensor made for the greatest extents, without the rows behind those of the bound.

    Rows are those of the outermost axis, so that all others lie where they did. That those of the
    bound lie one behind the other, as in a tensor of its own, is what rules join axes by.
    """
    shape = [at_point(extent, symbols, whole) for extent in param.ty.shape]
    outer = next((i for i, extent in enumerate(shape) if not is_one(extent)), None)
    if outer is not None:
        shape[outer] = at_point(param.ty.shape[outer], symbols, most)
    return tirx.decl_buffer(tuple(shape), str(param.ty.dtype), str(param.name))


def _with_masks(body: Any, symbols: Sequence[tirx.Var]) -> Any:
    """The body with masked blocks."""

    def block(block: Any) -> Any:
        return block if str(block.name_hint) == "root" else _masked(block, symbols)

    return tvm_ffi.structural_map(body, [(SBlock, block)], order="post")


def _masked(block: Any, symbols: Sequence[tirx.Var]) -> Any:
    """A block that computes within the open extents what it did, and reads nothing unknown."""
    open_axes = [v for v in block.iter_vars if uses(v.dom.extent, symbols)]
    store = block.body
    if not open_axes and not uses(store, symbols):
        return block
    if not isinstance(store, tirx.BufferStore):
        raise DynamicShapeError(
            "what is computed along an open extent must be element-wise, a reduction or a product",
            f"{block.name_hint} has loops written by hand, as sorts and scans do",
            "give the extent",
        )
    if any(uses(index, symbols) or loads_in(index) for index in store.indices):
        raise DynamicShapeError(
            "where a result is written must not depend on an open extent, nor on data",
            f"that of {block.name_hint} does",
            "give the extent",
        )
    reduced = [_inside(v) for v in open_axes if int(v.iter_type) == _REDUCE]
    value = store.value
    if reduced:
        value = _without_the_rest(block, value, functools.reduce(tirx.And, reduced))
    spatial = [_inside(v) for v in open_axes if int(v.iter_type) == _SPATIAL]
    if spatial and _is_risky(store.value, symbols):
        value = tirx.if_then_else(
            functools.reduce(tirx.And, spatial), value, tirx.const(0, str(value.ty.dtype))
        )
    return replace_value(block, value)


def _inside(v: Any) -> Any:
    """The condition for a variable to be within its extent."""
    return tirx.LT(v.var, v.dom.extent)


def _without_the_rest(block: Any, value: Any, inside: Any) -> Any:
    """The value of a reduction that takes nothing from beyond its extent."""
    neutral = block.init.value if isinstance(block.init, tirx.BufferStore) else None
    own, kinds = block.body.buffer, (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)
    if neutral is not None and isinstance(value, kinds) and is_load_of(value.a, own):
        return type(value)(value.a, tirx.if_then_else(inside, value.b, neutral))
    return tirx.if_then_else(inside, value, tirx.BufferLoad(own, block.body.indices))


def _is_risky(value: Any, symbols: Sequence[tirx.Var]) -> bool:
    """Whether an expression must not be computed from what may be anything."""
    loads = loads_in(value)
    if uses(value, symbols) or any(loads_in(index) for load in loads for index in load.indices):
        return True
    divisions = nodes_in(value, *_DIVISIONS)
    return any("int" in str(d.b.ty.dtype) and loads_in(d.b) for d in divisions)


def _with_known_tensors(body: Any, params: dict[Any, Any], known: Callable[[Any], Any]) -> Any:
    """Give the tensors that blocks allocate known shapes, and replace parameters."""
    tensors = dict(params)

    def allocate(block: Any) -> None:
        tensors.update((b, tirx.Var(b.name, known(b.ty))) for b in block.alloc_buffers)

    tvm_ffi.structural_walk(body, (SBlock, allocate), order="pre")
    return tvm_ffi.structural_map(
        body, [(tirx.Var, lambda var: tensors.get(var, var))], order="post"
    )


def _with_known_loops(body: Any, known: Callable[[Any], Any]) -> Any:
    """Loops and blocks' domains have known extents."""

    def loop(loop: Any) -> Any:
        return tirx.For(
            loop.loop_var, loop.min, known(loop.extent), loop.kind, loop.body,
            loop.thread_binding, loop.annotations,
        )  # fmt: skip

    def block(block: Any) -> Any:
        iters = [
            tirx.IterVar(tvm.ir.Range(v.dom.min, known(v.dom.extent)), v.var, v.iter_type)
            for v in block.iter_vars
        ]
        return replace_parts(block, iter_vars=iters)

    return tvm_ffi.structural_map(body, [(tirx.For, loop), (SBlock, block)], order="post")
