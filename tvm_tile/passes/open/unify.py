"""Modules of one model at several extents, as one module in which these are variables.

Every stage from a front door to fused loops knows extents as numbers. What depends on an open one
is found by comparison: the stages run once with its greatest value and a few times with others, and
are made to decide each time as the first time (``replay.py``). The results must agree but for
numbers; each of these must be a :class:`~tvm_tile.graph.open_extents.Form` of the open extents,
and what the operators are by themselves must be that at further points.

before: ``for i in range(128): y[i] = x[i]`` at 128, and ``for i in range(127): ...`` at 127
after:  ``for i in range(n): y[i] = x[i]``
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, sym, tirx

from tvm_tile.errors import DynamicShapeError
from tvm_tile.graph.constant_tensors import elements_of
from tvm_tile.graph.extract import blocks_in
from tvm_tile.graph.functions import relax_functions
from tvm_tile.graph.open_extents import Form, Point, fit, variable
from tvm_tile.passes.ir.rewriter import is_call_tir
from tvm_tile.passes.open.open_rows import is_by_rows, with_body_of, without_body
from tvm_tile.passes.open.plain_loops import (
    NUMBERS,
    is_alike,
    is_close,
    numbers_of,
    plain,
    simplified,
    without_numbers,
)
from tvm_tile.passes.scheduling.first_choices import content_of

_RESHAPE = tvm.ir.Op.get("relax.reshape")
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Cast)


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A binding of a model's ``main``.

    Attributes:
        var: variable that it binds, of the greatest extents.
        value: the expression at the greatest extents.
        func: function that it calls, with variables for the open extents; ``None`` where it calls
            nothing.
        type: type of its result, with these variables.
    """

    var: Any
    value: Any
    func: tirx.PrimFunc | None
    type: Any


@dataclass(frozen=True, slots=True)
class OpenModule:
    """A fused model with variables for its open extents.

    Attributes:
        base: the model at the greatest extents.
        symbols: the variables, in the order of a point.
        params: types of the parameters of ``main``, with these variables.
        calls: the bindings of ``main``, in order.
        result: the type of what ``main`` returns, with these variables.
    """

    base: tvm.IRModule
    symbols: tuple[tirx.Var, ...]
    params: tuple[Any, ...]
    calls: tuple[OpenCall, ...]
    result: Any


def unify(modules: Mapping[Point, tvm.IRModule], names: Sequence[str]) -> OpenModule:
    """The module that all these are instances of.

    Args:
        modules: point -> the fused model there; the first one is at the greatest extents.
        names: names of the open extents, in the order of a point.

    Raises:
        DynamicShapeError: there is none, or what depends on an extent does so in no known form.
    """
    symbols = tuple(tirx.Var(variable(i, name), "int64") for i, name in enumerate(names))
    base = next(iter(modules.values()))
    mains = {point: _Main(mod) for point, mod in modules.items()}
    first = next(iter(mains.values()))
    for main in mains.values():
        if main.outline != first.outline:
            raise _differs("other kernels, or the same in another order", next(iter(modules)))
    params = _types({p: main.params for p, main in mains.items()}, symbols)
    # Layers that are alike call the same functions.
    unified: dict[Any, tirx.PrimFunc] = {}
    calls = []
    for number, (var, value) in enumerate(first.bindings):
        types = {p: [main.bindings[number][0].ty] for p, main in mains.items()}
        func = None
        if is_call_tir(value):
            called = {p: m.called(number) for p, m in mains.items()}
            key = tuple(map(content_of, called.values()))
            func = unified[key] = unified.get(key) or unified_function(called, symbols)
        _check_constants({p: main.constants(number) for p, main in mains.items()})
        calls.append(OpenCall(var, value, func, _types(types, symbols)[0]))
    result = _types({p: [main.result.ty] for p, main in mains.items()}, symbols)[0]
    return OpenModule(base, symbols, tuple(params), tuple(calls), result)


def confirm(opened: OpenModule, point: Point, module: tvm.IRModule) -> None:
    """Make sure that a model in variables is what a model is at a further point.

    Raises:
        DynamicShapeError: the model is another one there.
    """
    main, known = _Main(module), _Main(opened.base)
    if main.outline != known.outline:
        raise _differs("other operators", point)
    confirmed: set[Any] = set()
    for number, call in enumerate(opened.calls):
        constants = {(): known.constants(number), point: main.constants(number)}
        _check_constants(constants)
        if call.func is None:
            continue
        own, other = call.func, main.called(number)
        key = content_of(own), content_of(other)
        if key in confirmed:
            continue
        confirmed.add(key)
        own = at_point(own, opened.symbols, point)
        if is_by_rows([known.called(number), other]):
            own, other = without_body(own), without_body(other)
        if not is_alike(plain(own), plain(other)):
            raise _differs(f"the loops of {_name(call.func)} are others", point)


def unified_function(
    functions: Mapping[Point, tirx.PrimFunc], symbols: Sequence[tirx.Var]
) -> tirx.PrimFunc:
    """The function that all these are instances of, in the same variables.

    Raises:
        DynamicShapeError: as in :func:`unify`.
    """
    if is_by_rows(list(functions.values())):
        outside = unified_function({p: without_body(f) for p, f in functions.items()}, symbols)
        return with_body_of(next(iter(functions.values())), outside)
    simple = {point: simplified(func) for point, func in functions.items()}
    first = next(iter(simple.values()))
    outline = without_numbers(first)
    for func in simple.values():
        if not tvm_ffi.structural_equal(without_numbers(func), outline, map_free_vars=True):
            raise _differs(f"the loops of {_name(first)} are others", next(iter(functions)))
    numbers = {point: numbers_of(func) for point, func in simple.items()}
    columns = zip(*numbers.values(), strict=True)
    forms = iter(
        [_form(dict(zip(numbers, column, strict=True)), _name(first)) for column in columns]
    )

    def number(value: Any) -> Any:
        return _expression(next(forms), value, symbols)

    return tvm_ffi.structural_map(first, [(NUMBERS, number)], order="post")


def at_point(expr: Any, symbols: Sequence[tirx.Var], point: Point) -> Any:
    """An expression, a statement or a type with numbers in the place of the variables."""
    values = {s: tirx.IntImm("int64", v) for s, v in zip(symbols, point, strict=True)}
    analyzer = sym.Analyzer()

    def variable(var: Any) -> Any:
        return values.get(var, var)

    def folded(node: Any) -> Any:
        operands = (node.value,) if isinstance(node, tirx.Cast) else (node.a, node.b)
        is_known = all(isinstance(operand, tirx.IntImm) for operand in operands)
        return analyzer.simplify(node) if is_known else node

    callbacks = [(tirx.Var, variable), (_ARITHMETIC, folded)]
    return tvm_ffi.structural_map(expr, callbacks, order="post")


class _Main:
    """Calls and result of a fused module's ``main``.

    Attributes:
        params: types of its parameters.
        bindings: variables and what they are bound to.
        result: value that it returns.
        outline: comparable form of the same, without types and constants.
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        main = mod["main"]
        if len(relax_functions(mod)) > 1:
            raise DynamicShapeError(
                "a model with open extents must be one function: straight lines of operators",
                "it has loops or branches",
                "give all extents, or compile its parts",
            )
        self._mod = mod
        self.params = [param.ty for param in main.params]
        self.result = main.body.body
        self.bindings = [(b.var, b.value) for block in main.body.blocks for b in block.bindings]
        known = {param: number for number, param in enumerate(main.params)}
        rows = []
        for var, value in self.bindings:
            rows.append(_outline(value, known))
            known[var] = len(known)
        self.outline = (*rows, _outline(self.result, known))

    def called(self, number: int) -> tirx.PrimFunc:
        """The function that a binding calls."""
        return self._mod[self.bindings[number][1].args[0]].without_attr("global_symbol")

    def constants(self, number: int) -> list[Any]:
        """The constants that a binding is given."""
        value = self.bindings[number][1]
        return [a for a in _arguments(value) if isinstance(a, tvm.ir.Constant)]


def _arguments(value: Any) -> list[Any]:
    """Arguments of a binding's value; raises for values that are not known."""
    if is_call_tir(value):
        return list(value.args[1].fields)
    if isinstance(value, relax.Tuple):
        return list(value.fields)
    if isinstance(value, relax.TupleGetItem):
        return [value.tuple_value]
    if isinstance(value, relax.Call) and value.op == _RESHAPE:
        return [value.args[0]]
    if isinstance(value, relax.Var | tvm.ir.Constant):
        return [value]
    what = getattr(getattr(value, "op", None), "name", type(value).__name__)
    raise DynamicShapeError(
        "a model with open extents must be made of operators with loops of ours",
        f"it has {what}",
        "give all extents",
    )


def _outline(value: Any, known: Mapping[Any, int]) -> tuple[Any, ...]:
    """Form of a value, comparable between modules: its kind, and which values it takes."""
    kind = type(value).__name__
    index = int(value.index) if isinstance(value, relax.TupleGetItem) else 0
    return (kind, index, *(known.get(a, -1) for a in _arguments(value)))


def _types(types: Mapping[Point, Sequence[Any]], symbols: Sequence[tirx.Var]) -> list[Any]:
    """Types that are lists of tensors', of tuples of them, in variables."""
    columns = list(zip(*types.values(), strict=True))
    return [_type(dict(zip(types, column, strict=True)), symbols) for column in columns]


def _type(types: Mapping[Point, Any], symbols: Sequence[tirx.Var]) -> Any:
    """The type in variables that has these instances at the points."""
    first = next(iter(types.values()))
    if isinstance(first, relax.TupleType):
        fields = _types({p: ty.fields for p, ty in types.items()}, symbols)
        return relax.TupleType(fields)
    if not isinstance(first, relax.TensorType) or not isinstance(first.shape, relax.ShapeExpr):
        raise _differs("a value whose shape the data decides", next(iter(types)))
    shape = []
    for axis, extent in enumerate(first.shape):
        form = _form({p: int(ty.shape[axis]) for p, ty in types.items()}, "an extent")
        shape.append(_expression(form, extent, symbols))
    return relax.TensorType(shape, first.dtype)


@dataclass(frozen=True, slots=True)
class _Quotient:
    """A floating-point number that is 1 divided by a form, or that form itself."""

    form: Form
    is_inverse: bool


def _form(values: Mapping[Point, float], where: str) -> Form | _Quotient | float:
    """How a number depends on the point; the number itself where it does not."""
    numbers = set(values.values())
    if len(numbers) == 1 or all(number != number for number in numbers):
        return next(iter(values.values()))
    if all(isinstance(number, int) for number in numbers):
        form = fit({point: int(v) for point, v in values.items()})
        if form is not None:
            return form
    elif all(float(v).is_integer() for v in numbers):
        form = fit({point: int(v) for point, v in values.items()})
        if form is not None:
            return _Quotient(form, is_inverse=False)
    elif all(number and math.isfinite(number) for number in numbers):
        inverse = {point: round(1 / v) for point, v in values.items()}
        form = fit(inverse)
        if form is not None and all(is_close(v * inverse[p], 1.0) for p, v in values.items()):
            return _Quotient(form, is_inverse=True)
    points = ", ".join(f"{number} at {point}" for point, number in list(values.items())[:4])
    raise DynamicShapeError(
        "what depends on an open extent must be a product, a sum or a quotient of such",
        f"in {where}: {points}",
        "give the extent, or a range within which one rule holds",
    )


def _expression(form: Form | _Quotient | float, number: Any, symbols: Sequence[tirx.Var]) -> Any:
    """A form as an expression of the type of the number that it takes the place of."""
    if isinstance(form, _Quotient):
        value = _sum_of(form.form, symbols).astype(str(number.ty.dtype))
        return tirx.Div(tirx.FloatImm(number.ty, 1.0), value) if form.is_inverse else value
    if not isinstance(form, Form):
        return number
    dtype = str(number.ty.dtype)
    value = _sum_of(form, symbols)
    return value if dtype == "int64" else value.astype(dtype)


def _sum_of(form: Form, symbols: Sequence[tirx.Var]) -> Any:
    """A form's value as an expression of the symbols."""
    total: Any = tirx.IntImm("int64", 0)
    for positions, factor in form.terms:
        term: Any = tirx.IntImm("int64", factor)
        for position in positions:
            term = term * symbols[position]
        total = total + term
    if form.divisor > 1:
        total = tirx.FloorDiv(total, tirx.IntImm("int64", form.divisor))
    return sym.Analyzer().simplify(total)


def _check_constants(constants: Mapping[Point, Sequence[Any]]) -> None:
    """Make sure that the constants at each point are the first elements of those at the first."""
    whole = [elements_of(c) for c in next(iter(constants.values()))]
    for point, own in constants.items():
        for all_of_it, constant in zip(whole, own, strict=True):
            value = elements_of(constant)
            start = all_of_it[tuple(slice(extent) for extent in value.shape)]
            if (
                start.shape != value.shape
                or start.tobytes() != np.ascontiguousarray(value).tobytes()
            ):
                raise _differs("a constant whose elements depend on the extent", point)


def _name(func: tirx.PrimFunc) -> str:
    """Name of a function for people: those of its blocks."""
    return " ".join(str(block.name_hint) for block in blocks_in(func.body))[:80]


def _differs(what: str, point: Point) -> DynamicShapeError:
    """The error for a model that has other operators at another point."""
    return DynamicShapeError(
        "a model must have the same operators whatever its open extents are",
        f"{what}: at {point} and at another point",
        "give the extent, or a narrower range",
    )
