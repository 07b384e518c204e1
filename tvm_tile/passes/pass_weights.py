"""Weights as one argument of a program, and the number of the place where they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from tvm_tile.build.program import WEIGHTS
from tvm_tile.frontend.imported import NUM_INPUT
from tvm_tile.passes.capture_graphs import CAPTURE, WITH_CONTEXT
from tvm_tile.passes.rewriter import ModuleRewriter

_MAIN = "main"
_ITEM = relax.ExternFunc("vm.builtin.tuple_getitem")


@tvm.transform.module_pass(opt_level=0, name="PassWeights")
@dataclass(frozen=True, slots=True)
class PassWeights:
    """Take the parameters of ``main`` that are no inputs as one tuple, together with a number.

    before, with ``num_input = 1``::

        main(x, w, b):
            y = matmul(x, w)
            z = run_or_capture(f, (w, b, memory), 0)

    after::

        main(x, weights, place):
            w = weights[0]
            y = matmul(x, w)
            z = run_or_capture(f, (weights, memory), 0, place)

    where ``f(weights, memory)`` takes ``w`` and ``b`` out of ``weights``. A CUDA graph holds the
    addresses of the weights that it was captured with, and the virtual machine captures one for
    each ``place``, a shape of one extent: a caller whose weights lie elsewhere passes another one.
    Weights that only graphs read cost a call nothing; parameters are checked each time.

    Attributes:
        state: how many parameters, the last ones, are the model's state. They stay parameters,
            behind ``place``: they lie at one place for good.
    """

    state: int = 0

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        main = mod[_MAIN]
        count = len(main.params) - self.state
        inputs = max(0, int((main.attrs or {}).get(NUM_INPUT, count)))
        weights = {var: position for position, var in enumerate(main.params[inputs:count])}
        if not weights:
            return mod
        given = relax.Var("weights", relax.AnyType())
        place = relax.Var("place", relax.ShapeType(ndim=1))
        graphs = _Graphs(mod, weights, given, place)
        body = graphs.visit_expr(main.body)
        body = _taken(body, given, {v: at for v, at in weights.items() if _is_free(v, body)})
        params = [*main.params[:inputs], given, place, *main.params[count:]]
        taken = relax.Function(params, body, main.ret_ty, main.is_pure, main.attrs)
        taken = taken.without_attr(NUM_INPUT).with_attr(WEIGHTS, len(weights))
        result = mod.clone()
        result.update(graphs.captured)
        result[mod.get_global_var(_MAIN)] = taken
        return _without_former(result, graphs.former)


@mutator
class _Graphs(ModuleRewriter):
    """Passes the weights on to captured functions, as one argument in place of several.

    RewriteCUDAGraph calls one function where several are equal, with other weights each time. Which
    weights these are is then said by the function, so that each call has one of its own.

    Attributes:
        captured: these functions.
        former: what they are made of.

    Args:
        mod: the module.
        weights: of ``main``: parameter -> position in the tuple.
        given: the tuple in ``main``.
        place: what graphs are known by, besides their number.
    """

    def __init__(
        self, mod: tvm.IRModule, weights: Mapping[Any, int], given: Any, place: Any
    ) -> None:
        super().__init__(mod)
        self._mod = mod
        self._weights = weights
        self._given = given
        self._place = place
        self.captured: dict[Any, relax.Function] = {}
        self.former: list[Any] = []

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if call.op != WITH_CONTEXT or call.args[0].global_symbol != CAPTURE:
            return super().visit_call_(call)
        captured, arguments, number = call.args[1].fields
        positions = [self._weights.get(argument) for argument in arguments.fields]
        pairs = zip(arguments.fields, positions, strict=True)
        others = [self.visit_expr(argument) for argument, at in pairs if at is None]
        own = tvm.ir.GlobalVar(f"{captured.name_hint}_of_{int(number)}")
        self.captured[own] = _with_tuple(self._mod[captured], positions)
        self.former.append(captured)
        relax.expr._update_type(own, self.captured[own].ty)
        passed = relax.Tuple([own, relax.Tuple([self._given, *others]), number, self._place])
        return relax.Call(call.op, [call.args[0], passed], call.attrs, call.ty_args)


def _with_tuple(func: relax.Function, positions: Sequence[int | None]) -> relax.Function:
    """A captured function that takes parameters with a position out of a tuple, its first."""
    given = relax.Var("weights", relax.AnyType())
    pairs = list(zip(func.params, positions, strict=True))
    others = [param for param, at in pairs if at is None]
    body = _taken(func.body, given, {param: at for param, at in pairs if at is not None})
    return relax.Function([given, *others], body, func.ret_ty, func.is_pure, func.attrs)


def _taken(body: relax.SeqExpr, given: Any, positions: Mapping[Any, int]) -> relax.SeqExpr:
    """A function's body behind bindings that take these variables out of a tuple."""
    bindings = [
        relax.VarBinding(
            var, relax.Call(_ITEM, [given, tvm.tirx.IntImm("int64", at)], None, [var.ty])
        )
        for var, at in positions.items()
    ]
    return relax.SeqExpr([relax.BindingBlock(bindings), *body.blocks], body.body)


def _without_former(mod: tvm.IRModule, former: Sequence[Any]) -> tvm.IRModule:
    """The module without those of some functions that no function names."""
    functions = [func for func in mod.functions.values() if isinstance(func, relax.Function)]
    named = {v.name_hint for func in functions for v in relax.analysis.all_global_vars(func)}
    for name in {var.name_hint for var in former} - named:
        del mod[name]
    return mod


def _is_free(var: Any, body: relax.Expr) -> bool:
    return any(var.same_as(other) for other in relax.analysis.free_vars(body))
