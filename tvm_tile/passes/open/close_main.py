"""A model of open extents over tensors of the greatest ones.

before, of the variable ``n``::

    main(x: (1, n)) -> (1, n): y = f(x); return g(y)

after, made for ``n <= 128``::

    main(x: (1, n)) -> (1, n):
        x' = copy(x)                # (1, 128), of which n elements are written
        y: (1, 128) = f'(x', n)     # only if f' asks for n
        z: (1, 128) = g'(y)
        return copy(z)              # (1, n)

So all memory but of the results is known when the model is compiled, and all functions have known
loops (``bound_loops.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, tirx, topi
from tvm.s_tir import SBlock

from tvm_tile.graph.open_extents import Symbol, top
from tvm_tile.graph.user_names import Names, named, names_of
from tvm_tile.passes.ir.rewriter import is_call_tir
from tvm_tile.passes.lower.capture_graphs import CAPTURED_EXTENTS
from tvm_tile.passes.open.bound_loops import bounded
from tvm_tile.passes.open.plain_loops import is_one
from tvm_tile.passes.open.unify import OpenCall, OpenModule, at_point
from tvm_tile.passes.scheduling.first_choices import content_of
from tvm_tile.schedule.open_copy import OPEN_COPY
from tvm_tile.schedule.open_outputs import Range, with_ranges
from tvm_tile.tile.cover import grid

_RESHAPE = tvm.ir.Op.get("relax.reshape")


def close(module: OpenModule, symbols: Sequence[Symbol]) -> tvm.IRModule:
    """The model over tensors made for the greatest extents.

    Args:
        module: the model in variables.
        symbols: variables that stand for these, in the same order.

    Raises:
        DynamicShapeError: a function of it cannot be for known loops (:func:`bounded`).
    """
    return _Closing(module, symbols).result()


class _Closing:
    """Writes the new ``main``."""

    def __init__(self, module: OpenModule, symbols: Sequence[Symbol]) -> None:
        self._module, self._symbols, self._whole = module, symbols, top(symbols)
        self._builder = relax.BlockBuilder()
        self._functions: dict[Any, Any] = {}
        self._known: dict[Any, tuple[tirx.PrimFunc, Sequence[tirx.Var]]] = {}
        self._values: dict[Any, Any] = {}
        self._names: dict[Any, Names] = {}

    def result(self) -> tvm.IRModule:
        """The new module."""
        main, calls = self._module.base["main"], self._module.calls
        types = self._module.params
        params = [relax.Var(p.name, ty) for p, ty in zip(main.params, types, strict=True)]
        builder = self._builder
        attrs = {**dict(main.attrs or {}), CAPTURED_EXTENTS: [s.name for s in self._module.symbols]}
        with builder.function("main", params, attrs=attrs):
            with builder.dataflow():
                for own, given in zip(main.params, params, strict=True):
                    self._values[own] = self._whole_of(given)
                for call in calls:
                    self._values[call.var] = value = self._emit(call)
                    self._names.setdefault(value, names_of(call.value))
                made = {call.var: call.value for call in calls}
                result = self._returned(main.body.body, self._module.result, made)
                output = builder.emit_output(result)
            builder.emit_func_output(output)
        return named(builder.get(), self._names)

    def _whole_of(self, given: Any) -> Any:
        """A tensor of the greatest extents that begins as an input does."""
        whole = self._at_whole(given.ty)
        return given if self._is_known(given.ty) else self._copied(given, given.ty, whole, whole)

    def _returned(self, value: Any, ty: Any, made: dict[Any, Any]) -> Any:
        """Result of ``main``, of the call's extents; for a constant, its first elements."""
        while isinstance(made.get(value), relax.Var):
            value = made[value]
        if isinstance(ty, relax.TupleType):
            found = made.get(value, value)
            fields = found.fields if isinstance(found, relax.Tuple) else self._items(value, ty)
            pairs = zip(fields, ty.fields, strict=True)
            return relax.Tuple([self._returned(field, own, made) for field, own in pairs])
        own = self._value(value)
        return own if self._is_known(ty) else self._copied(own, self._at_whole(ty), ty, ty)

    def _items(self, value: Any, ty: Any) -> list[Any]:
        """Variables for what a tuple has that an operator made."""
        own = self._value(value)
        items = [self._builder.emit(relax.TupleGetItem(own, i)) for i in range(len(ty.fields))]
        self._values.update((item, item) for item in items)
        return items

    def _copied(self, value: Any, source: Any, target: Any, ty: Any) -> Any:
        """Copy a value between a tensor of a call's extents and one of the greatest."""
        spans = source if not self._is_known(source) else target
        func = _copying(source, target, spans)
        return self._builder.emit(relax.call_tir(self._added(func), [value], ty))

    def _emit(self, call: OpenCall) -> Any:
        """Emit a call over tensors of the greatest extents."""
        value, ty = call.value, self._at_whole(call.type)
        if isinstance(value, relax.Var | tvm.ir.Constant):
            return self._value(value)
        if isinstance(value, relax.Tuple):
            return self._builder.emit(relax.Tuple([self._value(v) for v in value.fields]))
        if isinstance(value, relax.TupleGetItem):
            item = relax.TupleGetItem(self._value(value.tuple_value), value.index)
            return self._builder.emit(item)
        if is_call_tir(value):
            return self._called(call.func, [self._value(v) for v in value.args[1].fields], ty)
        return self._reshaped(value, call.type)

    def _called(self, func: tirx.PrimFunc, args: list[Any], ty: Any) -> Any:
        """A call of a function in variables, over tensors of the greatest extents."""
        key = content_of(func)
        if key not in self._known:
            self._known[key] = self._bounded(func, len(args))
        own, scalars = self._known[key]
        types = list(ty.fields) if isinstance(ty, relax.TupleType) else ty
        called = relax.call_tir(self._added(own), [*args, *scalars], types)
        return self._builder.emit(called)

    def _bounded(self, func: Any, inputs: int) -> tuple[tirx.PrimFunc, Sequence[tirx.Var]]:
        """A function of known loops, and the open extents that it takes.

        If it sums up, it says what it is for lesser bounds, too.
        """
        variables, whole = self._module.symbols, self._whole
        own = bounded(func, inputs, variables, whole, whole)
        if not own.scalars or not _has_sums(func):
            return own.func, own.scalars
        places = [i for i, v in enumerate(variables) if any(v.same_as(s) for s in own.scalars)]
        ranges = []
        for bound in grid([self._symbols[i] for i in places]):
            most = list(whole)
            for place, value in zip(places, bound, strict=True):
                most[place] = value
            one = bounded(func, inputs, variables, tuple(most), whole)
            ranges.append(Range(bound, one.func))
        return with_ranges(own.func, ranges), own.scalars

    def _reshaped(self, value: Any, ty: Any) -> Any:
        """A view, if elements lie in it where they lie in the tensor of the greatest extents.

        Else a copy that moves them.
        """
        source = value.args[0]
        before = next((c.type for c in self._module.calls if c.var.same_as(source)), None)
        if before is None:
            pairs = zip(self._module.base["main"].params, self._module.params, strict=True)
            before = next((ty for p, ty in pairs if p.same_as(source)), source.ty)
        if not (_is_open_outside(before, self._is_known) and _is_open_outside(ty, self._is_known)):
            return self._called(_moving(before, ty), [self._value(source)], self._at_whole(ty))
        shape = relax.ShapeExpr(list(self._at_whole(ty).shape))
        return self._builder.emit(relax.op.reshape(self._value(source), shape))

    def _value(self, value: Any) -> Any:
        """The new value of a variable; a constant is itself."""
        return value if isinstance(value, tvm.ir.Constant) else self._values[value]

    def _added(self, func: tirx.PrimFunc) -> Any:
        """The function in the new module, each different one once."""
        key = content_of(func)
        if key not in self._functions:
            self._functions[key] = self._builder.add_func(func, "open")
        return self._functions[key]

    def _at_whole(self, ty: Any) -> Any:
        """A type with the greatest extents."""
        if isinstance(ty, relax.TupleType):
            return relax.TupleType([self._at_whole(field) for field in ty.fields])
        shape = [at_point(extent, self._module.symbols, self._whole) for extent in ty.shape]
        return relax.TensorType(shape, ty.dtype)

    def _is_known(self, ty: Any) -> bool:
        """Whether all extents of a type are known."""
        return all(isinstance(extent, tirx.IntImm) for extent in getattr(ty, "shape", ()))


def _has_sums(func: tirx.PrimFunc) -> bool:
    """Whether a function has reductions."""

    def visit(block: Any) -> Any:
        return tvm_ffi.VisitInterrupt() if block.init is not None else None

    return tvm_ffi.structural_walk(func.body, (SBlock, visit)) is not None


def _is_open_outside(ty: Any, is_known: Any) -> bool:
    """Whether only the outermost extent that is not 1 is open."""
    shape = [extent for extent in ty.shape if not is_one(extent)]
    return all(isinstance(extent, tirx.IntImm) for extent in shape[1:])


def _moving(source: Any, target: Any) -> tirx.PrimFunc:
    """A function that reshapes a tensor of the call's extents."""
    value = te.placeholder(tuple(source.shape), str(source.dtype), "value")
    moved = topi.reshape(value, tuple(target.shape))
    return te.create_prim_func([value, moved]).without_attr("global_symbol")


def _copying(source: Any, target: Any, spans: Any) -> tirx.PrimFunc:
    """A function that copies the elements of the call's extents from one tensor to another.

    An extent such as ``(n + 1) // 2`` is a variable of the function's own, which the shape of the
    tensor that is of the call's extents tells.
    """
    source, target, spans = _with_own_variables(source, target, spans)
    value = te.placeholder(tuple(spans.shape), str(spans.dtype), "value")
    place = te.compute(value.shape, lambda *at: value(*at), name="place")
    func = te.create_prim_func([value, place]).without_attr("global_symbol")
    types = {str(p.name): ty for p, ty in zip(func.params, (source, target), strict=True)}
    params = {p: _buffer(str(p.name), types[str(p.name)]) for p in func.params}
    body = tvm_ffi.structural_map(
        func.body, [(tirx.Var, lambda var: params.get(var, var))], order="post"
    )
    return tirx.PrimFunc(list(params.values()), body, None, func.attrs).with_attr(OPEN_COPY, True)


def _with_own_variables(*types: Any) -> list[Any]:
    """Tensors whose extents are numbers and variables: equal expressions are one variable."""
    own: dict[str, tirx.Var] = {}

    def extent(value: Any) -> Any:
        if isinstance(value, tirx.IntImm):
            return value
        return own.setdefault(str(value), tirx.Var(f"extent{len(own)}", "int64"))

    return [relax.TensorType([extent(e) for e in ty.shape], ty.dtype) for ty in types]


def _buffer(name: str, ty: Any) -> Any:
    """A buffer of a tensor's type."""
    return tirx.decl_buffer(tuple(ty.shape), str(ty.dtype), name)
