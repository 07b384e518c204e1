"""Constants that functions of a model are given become constants within them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax

from tvm_tile.graph.functions import relax_functions

Place = tuple[Any, int]
"""A function's variable in the module, and the position of one of its parameters."""


def sink_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """Write constants into the private functions that every caller gives them to.

    before: ``branch(x, w) = matmul(x, w);  main(x) = branch(x, const)``
    after:  ``branch(x) = matmul(x, const); main(x) = branch(x)``

    The weights of a branch or of a loop's body are its parameters as importers write it: nothing
    that wants to see them (folds, gates, products side by side) would.

    Args:
        mod: a Relax module; a function that is called elsewhere than by its name keeps its
            parameters.

    Returns:
        The module; the very one where nothing is to be sunk.
    """
    known = _known(mod)
    if not known:
        return mod
    functions = relax_functions(mod)
    renewed: dict[Any, Any] = {}
    for var in {var for var, _ in known}:
        func = functions[var]
        kept = [p for n, p in enumerate(func.params) if (var, n) not in known]
        renewed[var] = ir.GlobalVar(var.name_hint)
        ty = relax.FuncType([p.ty for p in kept], func.ret_ty, func.is_pure)
        relax.expr._update_type(renewed[var], ty)
    result = {renewed.get(var, var): func for var, func in mod.functions_items()}
    for var, func in functions.items():
        values = {p: known[var, n] for n, p in enumerate(func.params) if (var, n) in known}
        body = _Sinker(mod, known, renewed, values).visit_expr(func.body)
        kept = [p for p in func.params if p not in values]
        changed = relax.Function(kept, body, func.ret_ty, func.is_pure, func.attrs)
        result[renewed.get(var, var)] = changed
    return tvm.IRModule(result, attrs=mod.attrs)


def _known(mod: tvm.IRModule) -> dict[Place, Any]:
    """The parameters of private functions that are one constant whoever calls."""
    sites = _Sites({}, set())
    for var, func in relax_functions(mod).items():
        sites.add(var, func)
    # A parameter that is handed on is what its own function is given: first believed, then checked.
    known: dict[Place, Any] = {}
    for (var, number), values in sites.given.items():
        constants = [value for value in values if isinstance(value, ir.GenericConst)]
        if constants and not sites.is_open(mod, var):
            known[var, number] = constants[0]
    for var, number in sites.given:
        if not sites.is_open(mod, var):
            # Given by parameters only: its constant is theirs.
            known.setdefault((var, number), _first(sites, (var, number), known, set()))
    while True:
        wrong = [
            place
            for place, constant in known.items()
            if not all(_is(value, constant, known) for value in sites.given[place])
        ]
        if not wrong:
            return known
        for place in wrong:
            del known[place]


def _first(sites: _Sites, place: Place, known: dict[Place, Any], seen: set[Place]) -> Any:
    """A constant that a chain of functions hands to a parameter; ``None`` where none does."""
    if place in known:
        return known[place]
    seen.add(place)
    for value in sites.given.get(place, ()):
        if isinstance(value, tuple) and value not in seen:
            found = _first(sites, value, known, seen)
            if found is not None:
                return found
    return None


def _is(value: Any, constant: Any, known: dict[Place, Any]) -> bool:
    """Whether what a caller gives is a constant, as far as is known."""
    if isinstance(value, tuple):
        value = known.get(value)
    return constant is not None and value is not None and bool(constant.same_as(value))


@dataclass(frozen=True, slots=True)
class _Sites:
    """Where functions are called.

    Attributes:
        given: parameter -> what callers give: constants, parameters of theirs, or ``None``.
        named: functions that are named elsewhere than where they are called.
    """

    given: dict[Place, list[Any]]
    named: set[Any]

    def add(self, caller: Any, func: relax.Function) -> None:
        """Read the calls in a function."""
        own = {param: (caller, number) for number, param in enumerate(func.params)}

        def visit(value: Any) -> None:
            if not isinstance(value, relax.Call):
                return
            self.named.update(arg for arg in value.args if isinstance(arg, ir.GlobalVar))
            if isinstance(value.op, ir.GlobalVar):
                for number, arg in enumerate(value.args):
                    known = arg if isinstance(arg, ir.GenericConst) else None
                    found = own.get(arg) if isinstance(arg, relax.Var) else known
                    self.given.setdefault((value.op, number), []).append(found)

        relax.analysis.post_order_visit(func.body, visit)

    def is_open(self, mod: tvm.IRModule, var: Any) -> bool:
        """Whether a function may be called by others than are known."""
        func = mod[var]
        is_public = "global_symbol" in (func.attrs or {})
        return is_public or var in self.named or not isinstance(func, relax.Function)


@relax.expr_functor.mutator
class _Sinker(relax.PyExprMutator):
    """Writes constants for parameters, and calls without them."""

    def __init__(
        self,
        mod: tvm.IRModule,
        known: dict[Place, Any],
        renewed: dict[Any, Any],
        values: dict[Any, Any],
    ) -> None:
        super().__init__(mod)
        self._known, self._renewed, self._values = known, renewed, values

    def visit_var_(self, var: relax.Var) -> relax.Expr:
        return self._values.get(var, super().visit_var_(var))

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if call.op not in self._renewed:
            return self.visit_expr_post_order(call)
        args = [
            self.visit_expr(arg)
            for number, arg in enumerate(call.args)
            if (call.op, number) not in self._known
        ]
        return relax.Call(self._renewed[call.op], args, call.attrs, call.ty_args)
