"""Weights and constants as one argument of a program, and the number of the place they are at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from tvm_tile.build.program import WEIGHTS
from tvm_tile.frontend.imported import NUM_INPUT
from tvm_tile.graph.functions import global_vars, is_called
from tvm_tile.passes.ir.rewriter import ModuleRewriter, size_of
from tvm_tile.passes.lower.capture_graphs import CAPTURE, CAPTURED_EXTENTS, WITH_CONTEXT

_MAIN = "main"
_ITEM = relax.ExternFunc("vm.builtin.tuple_getitem")
# What is smaller costs more to take out of a tuple than to keep in the bytecode.
_LEAST_BYTES = 1024

Position = Callable[[Any], int]
"""Of a constant's tensor among the constants that a program takes."""


@tvm.transform.module_pass(opt_level=0, name="PassWeights")
@dataclass(frozen=True, slots=True)
class PassWeights:
    """Take the parameters of ``main`` that are no inputs, and constants, as one tuple, together
    with a number.

    before, with ``num_input = 1`` and the state ``s``::

        main(x, w, b, s):
            y = matmul(x, w)
            z = run_or_capture(f, (w, b, s, memory), 0)

    after::

        main(x, weights, place):
            w = weights[0]
            y = matmul(x, w)
            z = run_or_capture(f, (weights, memory), 0, place)

    where ``f(weights, memory)`` takes ``w``, ``b``, ``s`` and its constants out of ``weights``. A
    CUDA graph holds the addresses of the weights that it was captured with, and the virtual machine
    captures one for each ``place``, a shape of one extent: a caller whose weights lie elsewhere
    passes another one. Weights and state that only graphs touch cost a call nothing; parameters are
    checked each time. Constants so are in nobody's bytecode: programs can have them in common.

    A ``main`` that functions of the model call is left as it is, and so are constants of functions
    that are called by others than ``main``; and a ``main`` with neither weights nor constants.

    Attributes:
        state: number of parameters, the last ones, that are the model's state. They are in the
            tuple behind the weights, and lie at one place for good.
        position: function that is called with each constant that is taken out, and gives its
            position in the tuple, behind the weights and the state.
    """

    state: int
    position: Position

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        main = mod[_MAIN]
        if is_called(mod, _MAIN):
            return mod
        count = len(main.params) - self.state
        inputs = max(0, int((main.attrs or {}).get(NUM_INPUT, count)))
        weights = main.params[inputs:]
        given = relax.Var("weights", relax.AnyType())
        # Where graphs are for one value of open extents, these stand behind the number.
        number = [tvm.tirx.Var("place", "int64")]
        is_open = bool((main.attrs or {}).get(CAPTURED_EXTENTS))
        place = relax.Var("place", relax.ShapeType(number) if is_open else relax.ShapeType(ndim=1))
        taken = _Passing(mod, weights, given, place, lambda c: len(weights) + self.position(c))
        body = taken.body_of(main, given)
        if inputs == count and not taken.has_constants:
            return mod
        params = [*main.params[:inputs], given, place]
        changed = relax.Function(params, body, main.ret_ty, main.is_pure, main.attrs)
        changed = changed.without_attr(NUM_INPUT).with_attr(WEIGHTS, count - inputs)
        result = mod.clone()
        result.update(taken.captured)
        result[mod.get_global_var(_MAIN)] = changed
        return _without_former(result, taken.former)


@mutator
class _Passing(ModuleRewriter):
    """Passes the tuple on to captured functions, and takes constants and weights out of it.

    RewriteCUDAGraph calls one function where several are equal, with other weights each time. Which
    weights these are is then said by the function, so that each call has one of its own.

    Attributes:
        captured: the captured functions.
        former: functions that they are made of.
        has_constants: whether the tuple has any.

    Args:
        mod: the module.
        weights: parameters of ``main`` that are taken, too.
        given: the tuple in ``main``.
        place: number of the weights' place, by which graphs are known besides their own number.
        position: function that gives a constant's position in the tuple.
    """

    def __init__(
        self, mod: tvm.IRModule, weights: Sequence[Any], given: Any, place: Any, position: Position
    ) -> None:
        super().__init__(mod)
        self._mod = mod
        self._weights = {var: at for at, var in enumerate(weights)}
        self._given = given
        self._place = place
        self._position = position
        self.captured: dict[Any, relax.Function] = {}
        self.former: list[Any] = []
        self.has_constants = False
        # Of the function that is being written: positions -> variables.
        self._constants: dict[int, Any] = {}

    def body_of(
        self, func: relax.Function, given: Any, weights: Mapping[Any, int] | None = None
    ) -> relax.SeqExpr:
        """A function's body that takes constants, and what it knows as ``weights``, from a tuple.

        Args:
            func: the function.
            given: the tuple, a parameter of the result.
            weights: variables of the function -> positions; those of ``main`` by default.
        """
        outer, self._constants = self._constants, {}
        body = self.visit_expr(func.body)
        items = dict(self._weights if weights is None else weights)
        items |= {var: at for at, var in self._constants.items()}
        self._constants = outer
        free = relax.analysis.free_vars(body)
        items = {v: at for v, at in items.items() if any(v.same_as(other) for other in free)}
        bindings = [
            relax.VarBinding(
                var, relax.Call(_ITEM, [given, tvm.tirx.IntImm("int64", at)], None, [var.ty])
            )
            for var, at in items.items()
        ]
        return relax.SeqExpr([relax.BindingBlock(bindings), *body.blocks], body.body)

    def visit_generic_const_(self, constant: Any) -> relax.Expr:
        if not _is_large(constant):
            return constant
        at = self._constant(constant)
        if at not in self._constants:
            self._constants[at] = relax.Var("constant", constant.ty)
        return self._constants[at]

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if call.op != WITH_CONTEXT or call.args[0].global_symbol != CAPTURE:
            return super().visit_call_(call)
        # Behind these there are open extents, of which a graph is for one value.
        captured, arguments, number, *extents = call.args[1].fields
        values = [value for extent in extents for value in extent.values]
        place = relax.ShapeExpr([self._place.ty.values[0], *values]) if values else self._place
        pairs = [(argument, self._place_of(argument)) for argument in arguments.fields]
        others = [self.visit_expr(argument) for argument, at in pairs if at is None]
        own = tvm.ir.GlobalVar(f"{captured.name_hint}_of_{int(number)}")
        self.captured[own] = self._with_tuple(self._mod[captured], [at for _, at in pairs])
        self.former.append(captured)
        relax.expr._update_type(own, self.captured[own].ty)
        passed = relax.Tuple([own, relax.Tuple([self._given, *others]), number, place])
        return relax.Call(call.op, [call.args[0], passed], call.attrs, call.ty_args)

    def _place_of(self, argument: Any) -> int | None:
        """Position in the tuple of an argument of a captured function, if it is in there."""
        if _is_large(argument):
            return self._constant(argument)
        return self._weights.get(argument)

    def _constant(self, constant: Any) -> int:
        """Position in the tuple that a constant has from now on."""
        self.has_constants = True
        return self._position(constant.value)

    def _with_tuple(self, func: relax.Function, places: Sequence[int | None]) -> relax.Function:
        """A captured function that takes parameters with a place out of a tuple, its first."""
        given = relax.Var("weights", relax.AnyType())
        pairs = list(zip(func.params, places, strict=True))
        others = [param for param, at in pairs if at is None]
        weights = {param: at for param, at in pairs if at is not None}
        body = self.body_of(func, given, weights)
        return relax.Function([given, *others], body, func.ret_ty, func.is_pure, func.attrs)


def _is_large(value: Any) -> bool:
    """Whether a constant is a tensor large enough to be taken out, rather than a text or a type."""
    is_tensor = isinstance(value, tvm.ir.Constant) and isinstance(value.ty, relax.TensorType)
    return is_tensor and size_of(value.ty) >= _LEAST_BYTES


def _without_former(mod: tvm.IRModule, former: Sequence[Any]) -> tvm.IRModule:
    """The module without those of some functions that no function names."""
    functions = [func for func in mod.functions.values() if isinstance(func, relax.Function)]
    named = {var.name_hint for func in functions for var in global_vars(func)}
    for name in {var.name_hint for var in former} - named:
        del mod[name]
    return mod
