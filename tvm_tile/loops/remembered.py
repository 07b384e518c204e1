"""Loops of operators, written once for all calls that are alike: layers mostly are."""

from __future__ import annotations

import functools
from functools import partial
from typing import Any

from tvm import ir, relax
from tvm_ffi import StructuralKey

from tvm_tile.loops.legalizations import LEGALIZATIONS, Legalization, has_open_extents


def remembering() -> dict[str, Legalization]:
    """The legalization of each operator, for one ``LegalizeOps``: ours, or else TVM's.

    To write the loops of a call takes a millisecond, and to find that another call has the same,
    which TVM does afterwards, spares none of it. Calls are alike whose operators, attributes and
    operands' types are equal, as long as no operand may be looked into.
    """
    memory = _Remembered()
    return {name: partial(memory.legalized, own) for name, own in _every().items()}


@functools.cache
def _every() -> dict[str, Legalization]:
    """The legalization of each operator that has one."""
    stock = {str(name): ir.Op.get(name).get_attr("FLegalize") for name in ir.Op.list_op_names()}
    return {name: own for name, own in stock.items() if own is not None} | dict(LEGALIZATIONS)


class _Remembered:
    """What calls of operators became within one builder, whose module has the functions."""

    def __init__(self) -> None:
        self._builder: Any = None
        self._known: dict[Any, tuple[relax.Call, list[int]]] = {}

    def legalized(self, own: Legalization, builder: Any, call: relax.Call) -> relax.Expr:
        """What a call becomes by a legalization, or as one before it did."""
        if not builder.same_as(self._builder):
            self._builder, self._known = builder, {}
        key = _key_of(call)
        if key in self._known:
            made, places = self._known[key]
            operands = relax.Tuple([call.args[place] for place in places])
            return relax.Call(made.op, [made.args[0], operands], made.attrs, made.ty_args)
        found = own(builder, call)
        taken = _places(found, call) if key is not None else None
        if taken is not None:
            self._known[key] = found, taken
        return found


def _key_of(call: relax.Call) -> Any:
    """A key that is equal for calls that are alike; ``None`` where operands are looked into."""
    if has_open_extents(call):
        return None
    operands = []
    for arg in call.args:
        if _is_opaque(arg):
            first = next(n for n, other in enumerate(call.args) if other.same_as(arg))
            operands.append((first, StructuralKey(arg.ty)))
        elif isinstance(arg, relax.ShapeExpr):
            operands.append((-1, StructuralKey(arg)))
        else:
            return None
    return call.op.name, StructuralKey(call.attrs), StructuralKey(call.ty), tuple(operands)


def _is_opaque(arg: relax.Expr) -> bool:
    """Whether no legalization asks more of an operand than its type.

    Some ask for numbers: the value of a scalar, or that of a constant of integers.
    """
    if not isinstance(arg.ty, relax.TensorType) or arg.ty.ndim == 0:
        return False
    is_weight = isinstance(arg, ir.Constant) and "float" in str(arg.ty.dtype)
    return is_weight or isinstance(arg, relax.Var)


def _places(found: Any, call: relax.Call) -> list[int] | None:
    """Which operands of a call what it became takes; ``None`` if that is no call of loops alone."""
    if not isinstance(found, relax.Call) or found.op != ir.Op.get("relax.call_tir"):
        return None
    if len(found.args) != 2 or not isinstance(found.args[1], relax.Tuple):
        return None
    places = []
    for taken in found.args[1].fields:
        place = next((n for n, arg in enumerate(call.args) if arg.same_as(taken)), None)
        if place is None:
            return None
        places.append(place)
    return places
