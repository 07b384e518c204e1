"""Padding that need not be made: copies fill with zeros what lies outside of a tensor."""

from __future__ import annotations

from typing import Any

from tvm import ir, sym, tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.extract import extract_operator, is_choice
from tvm_tile.graph.tile_graph import Access, AffineIndex
from tvm_tile.schedule.s_tir.guards import conjuncts


def unpadded(read: Access, producer: SBlock) -> Access | None:
    """A read of padded ``producer`` as one of what it pads, at places that may lie outside.

    before: ``P[i] = A[i - 1] if 1 <= i <= n else 0``, read at ``P[y + k]``
    after:  ``A[y + k - 1]``, zero where there is no such element

    Returns:
        ``None`` where the producer does anything but pad with zeros.
    """
    operator = extract_operator(producer)
    if operator is None or operator.reduce_axes or len(operator.reads) != 1:
        return None
    (source,) = operator.reads
    if not _pads_with_zeros(producer) or not source.is_exact:
        return None
    written = [index.terms for index in operator.write.indices]
    long = {axis.name for axis in operator.axes if axis.extent > 1}
    shifted = []
    for own, place, outer in zip(source.indices, written, read.indices, strict=True):
        terms = [term for term in own.terms if term[0] in long]
        if terms and (len(terms) != 1 or terms[0][1] != 1 or terms[0] not in place):
            return None
        # A dimension of one element is read at its only place.
        shifted.append(AffineIndex(outer.terms if terms else (), outer.offset + own.offset))
    return Access(source.tensor, tuple(shifted))


def _pads_with_zeros(producer: SBlock) -> bool:
    """Whether a block stores an element wherever there is one, and zero everywhere else."""
    value = producer.body.value
    if not is_choice(value):
        return False
    condition, load, other = value.args
    if not isinstance(load, ir.TensorLoad) or not isinstance(other, tirx.FloatImm | tirx.IntImm):
        return False
    return float(other.value) == 0 and _holds_inside(condition, load, producer)


def _holds_inside(condition: Any, load: ir.TensorLoad, producer: SBlock) -> bool:
    """Whether every place that lies in the tensor fulfils the condition."""
    analyzer = sym.Analyzer()
    for v in producer.iter_vars:
        low, high = tirx.const(0, v.var.ty.dtype), v.dom.extent
        for index, extent in zip(load.indices, load.source.ty.shape, strict=True):
            offset = analyzer.simplify(index - v.var)
            if isinstance(offset, tirx.IntImm):
                low, high = -offset, extent - offset
        analyzer.bind(v.var, ir.Range(low, high))
    return all(analyzer.can_prove(clause) for clause in conjuncts(condition))
