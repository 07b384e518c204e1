"""Loops of operators, written once for all calls that are alike: layers mostly are."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import ir, relax, tirx
from tvm.target import Target
from tvm_ffi import StructuralKey

from tvm_tile.graph.arrays import items_of
from tvm_tile.graph.latest import Latest
from tvm_tile.loops.legalizations import LEGALIZATIONS, Legalization, has_open_extents


def remembering(*, across_models: bool = True) -> dict[str, Legalization]:
    """The legalization of each operator, for one ``LegalizeOps``: ours, or else TVM's.

    To write the loops of a call takes a millisecond, and to find that another call has the same,
    which TVM does afterwards, spares none of it. Calls are alike whose operators, attributes and
    operands' types are equal, as long as no operand may be looked into. Those of another module get
    the same functions, too, by the names that they would have.

    Args:
        across_models: whether modules may have functions in common. Where functions are put into
            others, as those of open extents are, names tell which expressions these share.
    """
    memory = _Remembered(across_models)
    return {name: partial(memory.legalized, own) for name, own in _every().items()}


@functools.cache
def _every() -> dict[str, Legalization]:
    """The legalization of each operator that has one."""
    stock = {str(name): ir.Op.get(name).get_attr("FLegalize") for name in ir.Op.list_op_names()}
    return {name: own for name, own in stock.items() if own is not None} | dict(LEGALIZATIONS)


class _Remembered:
    """What calls of operators became within one builder, whose module has the functions."""

    def __init__(self, across_models: bool) -> None:
        self._latest = _LATEST if across_models else None
        self._builder: Any = None
        self._known: dict[Any, tuple[Any, _Loops]] = {}

    def legalized(self, own: Legalization, builder: Any, call: relax.Call) -> relax.Expr:
        """What a call becomes by a legalization, or as one before it did."""
        if not builder.same_as(self._builder):
            self._builder, self._known = builder, {}
        key = _key_of(call)
        if key is None:
            return own(builder, call)
        if key not in self._known:
            loops = _loops_of(key, own, call, self._latest)
            if loops is None:
                return own(builder, call)
            self._known[key] = builder.add_func(loops.func, loops.name), loops
        function, loops = self._known[key]
        every = _operands(call)
        operands = relax.Tuple([every[place] for place in loops.places])
        return relax.Call(loops.op, [function, operands], loops.attrs, loops.types)


@dataclass(frozen=True, slots=True)
class _Loops:
    """A call of loops, in whatever module.

    Attributes:
        func: the loops.
        name: hint of their name in a module.
        places: which operands of the operator they take.
        op, attrs, types: of the call.
    """

    func: Any
    name: str
    places: tuple[int, ...]
    op: Any
    attrs: Any
    types: Any


_LATEST: Latest[_Loops | bool] = Latest(4096)  # or False for calls that become no loops alone


def _loops_of(
    key: Any, legalize: Legalization, call: relax.Call, latest: Latest[_Loops | bool] | None
) -> _Loops | None:
    """What a call becomes; ``None`` where that is no call of loops of its operands alone.

    TVM names loops by the variables that they are first written for.
    """
    if latest is None:
        return _written(legalize, call)
    every = _operands(call)
    names = tuple(str(own.name) if isinstance(own, relax.Var) else "" for own in every)
    found = latest.find((key, names))
    if found is None:
        found = _written(legalize, call) or False
        latest.keep((key, names), found)
    return found if isinstance(found, _Loops) else None


def _written(legalize: Legalization, call: relax.Call) -> _Loops | None:
    """What a call becomes in a module of its own; ``None`` as above."""
    builder = relax.BlockBuilder()
    try:
        found = legalize(builder, call)
    except Exception:  # it writes more than loops, for which it wants a function around it
        return None
    places = _places(found, call)
    if places is None:
        return None
    function = found.args[0]
    func, name = builder.get()[function], str(function.name_hint)
    return _Loops(func, name, tuple(places), found.op, found.attrs, found.ty_args)


def _key_of(call: relax.Call) -> Any:
    """A key that is equal for calls that are alike; ``None`` where operands are looked into."""
    if has_open_extents(call):
        return None
    places = {arg.__chandle__(): n for n, arg in reversed(list(enumerate(_operands(call))))}
    keys = [_operand_key(arg, places) for arg in items_of(call.args)]
    if None in keys:
        return None
    is_placed = Target.current(allow_none=True) is not None  # some loops are a GPU's
    attrs = StructuralKey(call.attrs), StructuralKey(call.ty)
    return call.op.name, is_placed, *attrs, tuple(keys)


def _operand_key(arg: relax.Expr, places: Mapping[int, int]) -> Any:
    """What is to be equal of an operand: its type, the first place that it has, and its numbers if
    it is made of a few; ``None`` where more than that may be looked into."""
    if _is_opaque(arg):
        return places[arg.__chandle__()], StructuralKey(arg.ty)
    if isinstance(arg, relax.Tuple):
        keys = tuple(_operand_key(own, places) for own in items_of(arg.fields))
        return None if None in keys else (-1, keys)
    is_scalar = isinstance(arg, ir.GenericConst) and arg.ty.ndim == 0
    is_known = is_scalar or isinstance(arg, relax.ShapeExpr | tirx.IntImm | tirx.FloatImm)
    return (-2, StructuralKey(arg)) if is_known else None


def _operands(call: relax.Call) -> list[Any]:
    """The operands of a call, those in tuples one by one."""
    found: list[Any] = []
    for arg in items_of(call.args):
        found += items_of(arg.fields) if isinstance(arg, relax.Tuple) else [arg]
    return found


def _is_opaque(arg: relax.Expr) -> bool:
    """Whether no legalization asks more of an operand than its type.

    Some ask for numbers: the value of a scalar, or that of a constant of integers.
    """
    if not isinstance(arg.ty, relax.TensorType) or arg.ty.ndim == 0:
        return False
    is_weight = isinstance(arg, ir.GenericConst) and "float" in str(arg.ty.dtype)
    return is_weight or isinstance(arg, relax.Var)


def _places(found: Any, call: relax.Call) -> list[int] | None:
    """Which operands of a call what it became takes; ``None`` if that is no call of loops alone."""
    if not isinstance(found, relax.Call) or found.op != ir.Op.get("relax.call_tir"):
        return None
    if len(found.args) != 2 or not isinstance(found.args[1], relax.Tuple):
        return None
    places = {arg.__chandle__(): n for n, arg in reversed(list(enumerate(_operands(call))))}
    taken = [places.get(own.__chandle__()) for own in items_of(found.args[1].fields)]
    return None if None in taken else [place for place in taken if place is not None]
