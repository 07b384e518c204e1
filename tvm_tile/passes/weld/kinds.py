"""What kinds of computation functions are, as far as it matters for what becomes one kernel."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx

from tvm_tile.graph.extract import extract
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.loops.decoding import format_of
from tvm_tile.tile.classify import is_contraction, is_product, is_window
from tvm_tile.tile.weld.call_graph import Kind


def kind_of(func: Any) -> Kind:
    """Kind of a function's computation, as far as connecting asks."""
    graph = extract(func) if isinstance(func, tirx.PrimFunc) else None
    if graph is None:
        return Kind.OTHER
    if format_of(func) is not None:
        return Kind.DECODING
    # Small products are no contractions; where something slides, they are windows.
    if any(is_contraction(o) or (is_product(o) and not o.sliding_axes) for o in graph.reductions):
        return Kind.PRODUCT
    if graph.reductions:
        # Of two operands: the other one is a depthwise convolution's weights.
        if all(is_window(op) and len(op.reads) == 2 for op in graph.reductions):
            return Kind.WINDOW
        last = graph.operators[-1]
        is_rows = all(op.points == last.points for op in graph.reductions)
        return Kind.ROWS if is_rows and not last.reduce_axes else Kind.OTHER
    return Kind.VIEW if all(map(_moves, graph.operators)) else Kind.SPATIAL


def is_reshape(func: Any) -> bool:
    """Whether a function only reshapes."""
    return isinstance(func, tirx.PrimFunc) and bool(relax.analysis.has_reshape_pattern(func))


def _moves(operator: Operator) -> bool:
    """Whether each element is one of another tensor, as it is; several may be the same one."""
    if not operator.is_copy or operator.reads[0].is_computed:
        return False
    read = operator.reads[0]
    return read.tensor.dtype == operator.write.tensor.dtype
