"""Constants that indices tell, causal masks above all, within the functions that read them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.relax.expr_functor import mutator
from tvm.s_tir import SBlock

from tvm_tile.build.exact.floats import hide_zeros
from tvm_tile.loops.decoding import format_of
from tvm_tile.passes.ir.op_pattern import OpPattern, pattern_of
from tvm_tile.passes.ir.rewriter import ModuleRewriter, is_call_tir
from tvm_tile.schedule.s_tir.steps import replace_parts
from tvm_tile.tile.attention.band import Banded, find_banded


@tvm.transform.module_pass(opt_level=0, name="InlineConstants")
@dataclass(frozen=True, slots=True)
class InlineConstants:
    """Compute constants of two values, divided by diagonals, and write out those of one element.

    before: ``y = call_tir(where, (x, mask, -inf))`` with ``y[i, j] = Select(mask[i, j], x[i, j],
            low[()])`` and a constant ``mask``, ``True`` where ``j <= i``
    after:  ``y = call_tir(where, (x,))`` with ``y[i, j] = Select(j - i <= 0, x[i, j], -inf)``

    The values decide, whatever the constant is called. Only functions that compute each element
    from others, and not from constants alone, are rewritten: products read their operands from
    memory, and what decodes weights has all that is shared as its format says. What else reads the
    constant still does.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return _ConstantInlining(mod).rewritten(mod)


@mutator
class _ConstantInlining(ModuleRewriter):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._mod = mod
        self._banded: dict[Any, Banded | None] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not is_call_tir(call) or len(call.args) != 2:
            return call
        func = self._mod[call.args[0]]
        if not _is_injective(func) or format_of(func) is not None:
            return call
        args = list(call.args[1].fields)
        known = {place: self._value(arg) for place, arg in enumerate(args)}
        kept = [arg for place, arg in enumerate(args) if known[place] is None]
        if not kept or len(kept) == len(args):
            return call
        values = {func.params[place]: v for place, v in known.items() if v is not None}
        var = self.builder_.add_func(_without(func, values), str(call.args[0].name_hint))
        return relax.call_tir(var, kept, call.ty_args[0])

    def _value(self, arg: relax.Expr) -> Banded | float | None:
        """The value of a constant of one element or of a band; ``None`` of anything else."""
        if not isinstance(arg, tvm.ir.Constant):
            return None
        if arg not in self._banded:
            self._banded[arg] = find_banded(arg.value.numpy())
        found = self._banded[arg]
        return arg.value.numpy().item() if found is None and arg.ty.ndim == 0 else found


def _is_injective(func: Any) -> bool:
    """Whether a function computes each element from others alike."""
    pattern = pattern_of(func)
    return pattern is not None and pattern <= OpPattern.INJECTIVE


def _without(func: tirx.PrimFunc, values: Mapping[Any, Banded | float]) -> tirx.PrimFunc:
    """``func`` without the parameters whose values are known."""

    def load(node: ir.TensorLoad) -> Any:
        value = next((v for param, v in values.items() if node.source.same_as(param)), None)
        return node if value is None else _element(value, node)

    def block(node: SBlock) -> Any:
        reads = [r for r in node.reads if not any(r.source.same_as(param) for param in values)]
        return replace_parts(node, reads=reads)

    entries = [(ir.TensorLoad, load), (SBlock, block)]
    body = hide_zeros(tvm_ffi.structural_map(func.body, entries, order="post"))
    params = [param for param in func.params if not any(param.same_as(own) for own in values)]
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs)


def _element(value: Banded | float, load: ir.TensorLoad) -> Any:
    """An element of a constant, computed from its indices."""
    dtype = str(load.ty.dtype)
    if not isinstance(value, Banded):
        return tirx.const(value, dtype)
    row, column = list(load.indices)[-2:]
    inside = functools.reduce(tirx.And, value.band.holds(column - row))
    if dtype == "bool":
        return inside if value.inside else tirx.Not(inside)
    ends = (tirx.const(end.item(), dtype) for end in (value.inside, value.outside))
    return tirx.Select(inside, *ends)
