"""Constants that indices tell, causal masks and positions above all, in the functions that read
them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
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

_FARTHEST = 1 << 31  # number that 32 bits have no place for


@tvm.transform.module_pass(opt_level=0, name="InlineConstants")
@dataclass(frozen=True, slots=True)
class InlineConstants:
    """Compute constants of two values, divided by diagonals, and positions, integers in even steps
    along one dimension; write out those of one element.

    before: ``y = call_tir(where, (x, mask, -inf))`` with ``y[i, j] = Select(mask[i, j], x[i, j],
            low[()])`` and a constant ``mask``, ``True`` where ``j <= i``
    after:  ``y = call_tir(where, (x,))`` with ``y[i, j] = Select(j - i <= 0, x[i, j], -inf)``

    The values decide, whatever the constant is called. Only functions that compute each element
    from others are rewritten, from constants alone where these are all positions: products read
    their operands from memory, and what decodes weights has all that is shared as its format says.
    What else reads the constant still does.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return _ConstantInlining(mod).rewritten(mod)


@mutator
class _ConstantInlining(ModuleRewriter):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._mod = mod
        self._told: dict[Any, Banded | _Steps | float | None] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not is_call_tir(call) or len(call.args) != 2:
            return call
        func = self._mod[call.args[0]]
        if not _is_injective(func) or format_of(func) is not None:
            return call
        args = list(call.args[1].fields)
        known = {place: self._value(arg) for place, arg in enumerate(args)}
        values = {func.params[place]: v for place, v in known.items() if v is not None}
        is_whole = len(values) == len(args)
        if not values or (is_whole and not all(isinstance(v, _Steps) for v in values.values())):
            return call
        # A function takes one thing at least, though it may not read it.
        gone = list(values)[is_whole:]
        kept = [a for p, a in zip(func.params, args, strict=False) if not _is_among(p, gone)]
        without = _without(func, values, gone)
        var = self.builder_.add_func(without, str(call.args[0].name_hint))
        return relax.call_tir(var, kept, call.ty_args[0])

    def _value(self, arg: relax.Expr) -> Banded | _Steps | float | None:
        """The value of a constant that is told by indices; ``None`` of anything else."""
        if not isinstance(arg, tvm.ir.Constant):
            return None
        if arg not in self._told:
            values = arg.value.numpy()
            found = find_banded(values) or _find_steps(values)
            self._told[arg] = values.item() if found is None and arg.ty.ndim == 0 else found
        return self._told[arg]


@dataclass(frozen=True, slots=True)
class _Steps:
    """Integers in even steps: those of ``arange``.

    Attributes:
        dimension: the only one of more than one element.
        start: the first.
        step: from each to the next.
    """

    dimension: int
    start: int
    step: int


def _find_steps(values: np.ndarray) -> _Steps | None:
    """A constant as integers in even steps, none of which is beyond 32 bits."""
    long = [place for place, extent in enumerate(values.shape) if extent > 1]
    if len(long) != 1 or not values.size or values.dtype not in (np.int32, np.int64):
        return None
    if int(values.min()) < -_FARTHEST or int(values.max()) >= _FARTHEST:
        return None
    steps = np.unique(np.diff(values.ravel()))
    return _Steps(long[0], int(values.flat[0]), int(steps[0])) if len(steps) == 1 else None


def _is_injective(func: Any) -> bool:
    """Whether a function computes each element from others alike."""
    pattern = pattern_of(func)
    return pattern is not None and pattern <= OpPattern.INJECTIVE


def _is_among(param: Any, params: Sequence[Any]) -> bool:
    return any(param.same_as(own) for own in params)


def _without(
    func: tirx.PrimFunc, values: Mapping[Any, Banded | _Steps | float], gone: Sequence[Any]
) -> tirx.PrimFunc:
    """``func`` that reads no parameters whose values are known, and does not take some of them."""

    def load(node: ir.TensorLoad) -> Any:
        value = next((v for param, v in values.items() if node.source.same_as(param)), None)
        return node if value is None else _element(value, node)

    def block(node: SBlock) -> Any:
        reads = [r for r in node.reads if not _is_among(r.source, list(values))]
        return replace_parts(node, reads=reads)

    entries = [(ir.TensorLoad, load), (SBlock, block)]
    body = hide_zeros(tvm_ffi.structural_map(func.body, entries, order="post"))
    params = [param for param in func.params if not _is_among(param, gone)]
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs)


def _element(value: Banded | _Steps | float, load: ir.TensorLoad) -> Any:
    """An element of a constant, computed from its indices."""
    dtype = str(load.ty.dtype)
    if isinstance(value, _Steps):
        place = tirx.Cast(dtype, load.indices[value.dimension])
        return place * tirx.const(value.step, dtype) + tirx.const(value.start, dtype)
    if not isinstance(value, Banded):
        return tirx.const(value, dtype)
    row, column = list(load.indices)[-2:]
    inside = functools.reduce(tirx.And, value.band.holds(column - row))
    if dtype == "bool":
        return inside if value.inside else tirx.Not(inside)
    ends = (tirx.const(end.item(), dtype) for end in (value.inside, value.outside))
    return tirx.Select(inside, *ends)
