"""Keep small products apart from what spreads them over large tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_tile.graph.extract import extract
from tvm_tile.passes.ir.op_pattern import OpPattern, pattern_of, with_pattern
from tvm_tile.passes.ir.rewriter import elements_in, is_call_tir

_SPREAD = 8  # times as large


@tvm.transform.module_pass(opt_level=0, name="MarkSpreads")
@dataclass(frozen=True, slots=True)
class MarkSpreads:
    """Tell FuseOps not to fuse a product with what is much larger than the product.

    before: ``y = multiply(image, gate)``, where ``gate`` is a convolution of one place of the image
    after:  ``multiply`` is marked as injective, which no product takes behind it

    As one kernel it would have as many blocks as the small product can use, and these would write
    all of the large output (channel attention, squeeze and excitation). Apart, the product is
    small, and ``multiply`` goes with the element-wise functions around it.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        marked = mod.clone()
        for func in mod.functions.values():
            if isinstance(func, relax.Function):
                for var in _spreading(mod, func):
                    marked[var] = with_pattern(mod[var], OpPattern.INJECTIVE)
        return marked


def _spreading(mod: tvm.IRModule, func: relax.Function) -> Iterator[Any]:
    """The functions that spread products of the same dataflow block."""
    for block in func.body.blocks:
        bound = {binding.var: binding.value for binding in block.bindings}
        for value in bound.values():
            if _pattern(mod, value) not in (OpPattern.ELEMENT_WISE, OpPattern.BROADCAST):
                continue
            size = elements_in(value)
            for argument in value.args[1].fields:
                if elements_in(argument) * _SPREAD <= size and _is_of_product(mod, argument, bound):
                    yield value.args[0]


def _is_of_product(mod: tvm.IRModule, value: Any, bound: dict[Any, Any]) -> bool:
    """Whether a value is a product, or made of one element by element."""
    call = bound.get(value)
    pattern = None if call is None else _pattern(mod, call)
    if call is None or pattern is None:
        return False
    if pattern > OpPattern.INJECTIVE:
        return _sums_products(mod[call.args[0]])
    alike = [a for a in call.args[1].fields if elements_in(a) == elements_in(value)]
    return any(_is_of_product(mod, argument, bound) for argument in alike)


def _sums_products(func: tirx.PrimFunc) -> bool:
    """Whether a function sums up what two tensors have along the same axis."""
    graph = extract(func)
    for op in () if graph is None else graph.reductions:
        summed = {axis.name for axis in op.reduce_axes if axis.extent > 1}
        if sum(not read.axes.isdisjoint(summed) for read in op.reads) > 1:
            return True
    return False


def _pattern(mod: tvm.IRModule, value: Any) -> OpPattern | None:
    """The pattern of the function that ``call_tir`` calls; ``None`` of any other expression."""
    return pattern_of(mod[value.args[0]]) if is_call_tir(value) else None
