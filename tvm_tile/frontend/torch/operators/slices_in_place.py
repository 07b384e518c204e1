"""Writing to a view's places in place: only they are touched, as a cache's slots of one step."""

from __future__ import annotations

from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.frontend.torch.emit import Emit
from tvm_tile.frontend.torch.operators.rows_in_place import argument, load
from tvm_tile.frontend.torch.places import Places
from tvm_tile.loops.rows import each_element


def write_slices(emit: Emit, x: relax.Expr, value: relax.Expr, places: Places) -> relax.Expr:
    """Write a value to places of the memory of ``x`` itself, which is the result.

    Args:
        emit: of the node.
        x: what is written to; nobody reads what it is now any more.
        value: broadcast to the places' shape, of the element type of ``x``.
        places: where; no two are one.
    """
    name = emit.builder.add_func(_loops(x, value, places), "write_slices")
    return emit(relax.op.call_tir_inplace(name, [x, value], [0], x.ty))


def _loops(x: relax.Expr, value: relax.Expr, places: Places) -> tirx.PrimFunc:
    """``for index: x[places.at(index)] = value[index]``."""
    with IRBuilder() as builder, ib.prim_func(s_tir=True):
        ib.func_name("write_slices")
        ib.func_attr({"tirx.noalias": True})
        data, given = argument("data", x), argument("values", value)
        with each_element("write_slices", places.shape or (1,)) as at:
            index = at if places.shape else []
            ib.buffer_store(data, load(given, index), places.at(index))
    return builder.get().without_attr("global_symbol")
