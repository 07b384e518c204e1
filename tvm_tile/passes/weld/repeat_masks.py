"""Masks of places and positions are computed anew where they are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import mutator

from tvm_tile.frontend.fold import is_large
from tvm_tile.graph.arrays import items_of
from tvm_tile.graph.extract import nodes_in
from tvm_tile.passes.ir.op_pattern import OpPattern, pattern_of
from tvm_tile.passes.ir.rewriter import ModuleRewriter, elements_in, is_call_tir
from tvm_tile.passes.weld.fuse_tiles import with_outputs

_SPREAD = 8  # times as large
_MOST_STEPS = 32  # that are computed anew


@tvm.transform.module_pass(opt_level=0, name="RepeatMasks")
@dataclass(frozen=True, slots=True)
class RepeatMasks:
    """Give each function that reads a mask one of its own, so that both become one kernel.

    before: ``m = less_equal(position); y1 = where(m, x1, low); y2 = where(m, x2, low)``
    after:  ``m1 = less_equal(position); y1 = where(m1, x1, low); m2 = less_equal(position); ...``

    Attention of all layers takes one mask, of a few positions. As one kernel with what makes it,
    attention is told which keys it hides. A mask is what computes bools, or numbers of bools,
    element by element, of other masks and of tensors that are much smaller; a large bias of
    distances is as good as one. Only what computes element by element itself is given one.

    Args:
        is_open: whether extents are to be open, so that none of them may decide what is large.
    """

    is_open: bool = False

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        repeated = _MaskRepeating(mod, self.is_open).rewritten(mod)
        return relax.transform.DeadCodeElimination()(repeated)


@mutator
class _MaskRepeating(ModuleRewriter):
    def __init__(self, mod: tvm.IRModule, is_open: bool) -> None:
        super().__init__(mod)
        self._mod, self._is_open = mod, is_open
        self._known: dict[Any, int] = {}

    def visit_function_(self, func: relax.Function) -> relax.Function:
        return with_outputs(super().visit_function_(func))

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not self._is_injective(call) or self._is_mask(call):
            return call
        return self._with_own_masks(call)

    def _with_own_masks(self, call: relax.Call) -> relax.Call:
        """A call whose masks nothing else reads."""
        args = []
        for arg in call.args[1].fields:
            made = self.lookup_binding(arg) if isinstance(arg, relax.Var) else None
            is_mask = made is not None and self._is_mask(made)
            args.append(self.builder_.emit(self._with_own_masks(made)) if is_mask else arg)
        given = [call.args[0], relax.Tuple(args)]
        return relax.Call(call.op, given, call.attrs, call.ty_args)

    def _is_mask(self, value: relax.Expr) -> bool:
        """Whether an expression computes a mask."""
        return 0 < self._steps(value) <= _MOST_STEPS

    def _steps(self, value: relax.Expr) -> int:
        """Steps that compute a mask, one behind the other; zero for what is none."""
        if not self._is_injective(value) or not self._may_be_mask(value):
            return 0
        of_masks, most, given = 0, 0, 0
        for arg in value.args[1].fields:
            if 0 < elements_in(arg) * _SPREAD <= elements_in(value):
                given += elements_in(arg)
            else:
                steps = self._steps_to(arg)
                if not 0 < steps <= _MOST_STEPS:
                    return 0
                of_masks += str(arg.ty.dtype) == "bool"
                most = max(most, steps)
        is_mask = str(value.ty.dtype) == "bool" or of_masks > 0
        return 1 + most if is_mask or self._is_bias(value, given) else 0

    def _may_be_mask(self, value: relax.Call) -> bool:
        """Whether a call makes or takes bools, or makes as many numbers as a mask has at least."""
        elements, taken = elements_in(value), items_of(value.args[1].fields)
        if not elements:
            return False
        is_bool = any(str(getattr(own.ty, "dtype", "")) == "bool" for own in (value, *taken))
        return is_bool or (not self._is_open and is_large(elements, 0))

    def _is_bias(self, value: relax.Call, given: int) -> bool:
        """Whether a call makes as many numbers of so few, by arithmetic, as a mask is of."""
        func = self._mod[value.args[0]]
        is_spread = not self._is_open and is_large(elements_in(value), given)
        return is_spread and not nodes_in(func.body, ir.Call)

    def _steps_to(self, arg: relax.Expr) -> int:
        """Steps that compute an argument; calls come in order, so those before it are known."""
        if not isinstance(arg, relax.Var):
            return 0
        if arg not in self._known:
            made = self.lookup_binding(arg)
            self._known[arg] = 0 if made is None else self._steps(made)
        return self._known[arg]

    def _is_injective(self, value: relax.Expr) -> bool:
        """Whether an expression calls a function that computes each element by itself."""
        if not is_call_tir(value) or len(value.args) != 2:
            return False
        pattern = pattern_of(self._mod[value.args[0]])
        return pattern is not None and pattern <= OpPattern.INJECTIVE
