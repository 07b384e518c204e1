"""TVM's FuseOps, behind which calls still know whose values they compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_tile.graph.functions import (
    bindings_of,
    mutated,
    relax_functions,
    with_relax_functions,
    with_values,
)
from tvm_tile.graph.user_names import (
    Names,
    names_of,
    united,
    with_named_values,
    with_names,
)
from tvm_tile.passes.ir.op_pattern import OpPattern, pattern_of
from tvm_tile.passes.ir.rewriter import is_call_tir

_NAMES = "names"
_STOP = ir.Op.get("relax.builtin.stop_lift_params")


@tvm.transform.module_pass(opt_level=0, name="FuseOps")
@dataclass(frozen=True, slots=True)
class FuseOperators:
    """``relax.transform.FuseOps``, and the names of a group's values on the call of the group.

    before: ``h = call_tir(conv, (x,))  # conv1``, ``y = call_tir(relu, (h,))  # act``
    after:  ``y = fused_conv_relu(x)  # conv1, act``

    TVM makes one function of groups that are alike, in which it is no longer said whose groups they
    are. So it works twice: once more on calls that have their names as an attribute, whose groups
    are not alike. Both times it makes the same groups, in the same order.

    What a group takes of several outputs of a call that is none of its own, it takes one by one:
    TVM would hand it the tuple, and confuses the parts of several of these.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        fuse = relax.transform.FuseOps()
        parting = _Parting(mod)
        mod = mutated(mod, parting) if _has_outputs(mod) else mod
        fused, marked = fuse(mod), fuse(with_relax_functions(mod, _marked))
        found: dict[Any, Names] = {}
        for var, func in fused.functions_items():
            if isinstance(func, relax.Function) and "Primitive" not in (func.attrs or {}):
                told = bindings_of(marked[str(var.name_hint)].body)
                for (own, _), (_, value) in zip(bindings_of(func.body), told, strict=True):
                    if isinstance(value, relax.Call) and isinstance(value.op, ir.GlobalVar):
                        found[own] = _names_within(marked[value.op])
        fused = with_named_values(fused, found)
        return mutated(fused, _Rejoining(fused)) if parting.has_parted else fused


def _has_outputs(mod: tvm.IRModule) -> bool:
    """Whether a module takes one of several outputs anywhere."""
    return any(
        isinstance(value, relax.TupleGetItem)
        for func in relax_functions(mod).values()
        for _, value in bindings_of(func.body)
    )


@mutator
class _Parting(PyExprMutator):
    """Puts an operator that fusion leaves alone behind each output of calls that it cannot fuse
    with what follows.

    before: ``v = t[0]``, and after: ``u = t[0]; v = stop(u)``
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._mod = mod
        self.has_parted = False

    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> relax.Expr:
        if not isinstance(item.tuple_value, relax.Var):
            return item
        made = self.lookup_binding(item.tuple_value)
        pattern = pattern_of(self._mod[made.args[0]]) if is_call_tir(made) else None
        is_fused = pattern is not None and pattern <= OpPattern.INJECTIVE
        if is_fused or not isinstance(item.ty, relax.TensorType):
            return item
        self.has_parted = True
        return relax.op.builtin.stop_lift_params(item)


@mutator
class _Rejoining(PyExprMutator):
    """Takes away what was put behind outputs."""

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = binding.value
        if isinstance(value, relax.Call) and value.op == _STOP:
            self.set_var_remap(binding.var, self.visit_expr(value.args[0]))
        else:
            super().visit_var_binding_(binding)


def _marked(func: relax.Function) -> relax.Function:
    """A function whose calls of kernels have their names in their attributes."""
    marks = {
        var.__chandle__(): with_names(call, names_of(call), {_NAMES: list(names_of(call))})
        for var, call in bindings_of(func.body)
        if is_call_tir(call) and call.attrs is None
    }
    return with_values(func, marks)


def _names_within(func: Any) -> Names:
    """The names in the attributes of the calls of a group's function; none where it is none."""
    values = [value for _, value in bindings_of(func.body)]
    attrs = [value.attrs for value in values if is_call_tir(value)]
    return united(tuple(map(str, own[_NAMES])) for own in attrs if own and _NAMES in own)
