"""Calls that find out whether kernels went beyond their bounds, and what they hand on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from tvm_tile.passes.ir.rewriter import ModuleRewriter
from tvm_tile.plan.rprogram import Bounds
from tvm_tile.registered import REQUIRE_ENDED
from tvm_tile.runtime.ended import register_require_ended

_SAID = 4  # arguments ahead of the results


def ended(stopped: Any, name: str, bounds: Bounds, results: Sequence[Any]) -> Any:
    """A call that hands on the results of a kernel, once it is known that it came to its end.

    As a pure one it may stand in dataflow blocks. Whoever needs a result needs it: no pass takes it
    away, or puts it behind those who read what a kernel left undone.

    Args:
        stopped: the word that the kernel has left.
        name: name of the kernel.
        bounds: bounds of the kernel.
        results: tensors that the kernel has made.
    """
    limits = map(relax.prim_value, (bounds.iterations, bounds.depth))
    said = stopped, tvm.ir.StringImm(name), *limits
    kind = relax.TupleType([result.ty for result in results])
    return relax.op.call_pure_packed(REQUIRE_ENDED, *said, *results, ty_args=[kind])


def results_of(
    made: Any, count: int, bounds: Bounds | None
) -> tuple[list[Any], list[tuple[Any, Any]]]:
    """The results of a kernel, as variables, and what these and others are bound to.

    Args:
        made: the variable of the kernel's tuple: its results, what it leaves, and its workspace.
        count: number of results.
        bounds: bounds of the kernel; None where it has none, and leaves no word.
    """
    name, kinds = made.name, made.ty.fields[:count]
    results = [relax.Var(f"{name}_{number}", kind) for number, kind in enumerate(kinds)]
    fields = [(own, relax.TupleGetItem(made, number)) for number, own in enumerate(results)]
    if bounds is None or not results:
        return results, fields
    stopped = relax.Var(f"{name}_stopped", made.ty.fields[count])
    whole = relax.Var(f"{name}_ended", relax.TupleType(kinds))
    known = [relax.Var(f"{name}_{number}_known", kind) for number, kind in enumerate(kinds)]
    check = (whole, ended(stopped, name, bounds, results))
    taken = ((own, relax.TupleGetItem(whole, number)) for number, own in enumerate(known))
    return known, [(stopped, relax.TupleGetItem(made, count)), *fields, check, *taken]


@tvm.transform.module_pass(opt_level=0, name="CheckEnds")
@dataclass(frozen=True, slots=True)
class CheckEnds:
    """Have calls that check kernels' ends hand nothing on, as memory is planned by name.

    before: ``r = require_ended(stopped, name, bounds..., a, b);  x = r[0]``
    after:  ``_ = require_ended(stopped, name, bounds...);        r = (a, b);  x = r[0]``

    Functions from outside are thought to keep nothing of what they are given, and what they return
    to be new: the memory of ``a`` would be taken for another value while ``r`` still is in use.
    Behind it blocks are no dataflow, and calls not pure.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        register_require_ended()
        return _EndChecking(mod).rewritten(mod)


@mutator
class _EndChecking(ModuleRewriter):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        is_check = isinstance(call.op, relax.ExternFunc) and call.op.global_symbol == REQUIRE_ENDED
        if not is_check or len(call.args) == _SAID:
            return call
        said, results = call.args[:_SAID], call.args[_SAID:]
        self.builder_.emit(relax.Call(call.op, said, call.attrs, [relax.AnyType()]))
        return relax.Tuple(results)
