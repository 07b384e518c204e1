"""Functions of several schedules, of which the host takes one by the call's extents.

before: ``f(x, n, y)`` with a schedule for ``n <= 64`` besides
after, on the host::

    f(args): if args[1] <= 64: return f_of_0(args)
             return f_of_all(args)

All of them take what ``f`` takes, so that it hands on what it was given.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm_tile.graph.functions import is_tensor

_ATTRIBUTE = "tvm_tile.alternatives"
_PACKED = "__tvm_ffi_"  # what TVM's packed functions are called
_VALUE = 15  # of an argument, as tvm_struct_get counts its fields


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another schedule of a function.

    Attributes:
        bound: the greatest values that it is for, of the function's scalars, in order.
        func: scheduled, with the function's parameters.
    """

    bound: tuple[int, ...]
    func: Any


def with_alternatives(func: Any, alternatives: Sequence[Alternative]) -> Any:
    """A scheduled function that takes the first of some others whose bound holds; else itself."""
    if not alternatives:
        return func
    return func.with_attr(_ATTRIBUTE, [[list(one.bound), one.func] for one in alternatives])


def alternatives_of(func: Any) -> tuple[Alternative, ...]:
    """What :func:`with_alternatives` was told."""
    told = (func.attrs or {}).get(_ATTRIBUTE, ())
    return tuple(Alternative(tuple(map(int, bound)), other) for bound, other in told)


def without_alternatives(func: Any) -> Any:
    """The schedule that a function has itself."""
    return func.without_attr(_ATTRIBUTE)


def script_of(func: Any) -> str:
    """The TVMScript of a scheduled function, and of its alternatives behind it."""
    texts = [without_alternatives(func).script()]
    for one in alternatives_of(func):
        texts.append(f"# up to {', '.join(map(str, one.bound))}:\n{one.func.script()}")
    return "\n".join(texts)


def dispatcher(name: str, func: Any, names: Sequence[str], hosts: Sequence[Any]) -> Any:
    """The host's code of a function of several schedules, as an IRModule.

    Args:
        name: of the function.
        func: the function: says which alternatives it has.
        names: of its own schedule, and of its alternatives.
        hosts: the host's code of each, IRModules of packed functions.
    """
    import tvm
    from tvm import tirx

    pairs = list(zip(names, hosts, strict=True))
    found = [next(v for v in host.get_global_vars() if v.name_hint == n) for n, host in pairs]
    like = hosts[0][found[0]]
    params = [tirx.Var(p.name, p.ty) for p in like.params]
    places = [at for at, param in enumerate(func.params) if not is_tensor(param)]

    def handed_on(to: Any) -> Any:
        failed = tirx.NE(tvm.ir.Call(to, params, ret_ty=like.ret_type), tirx.IntImm("int32", 0))
        # Which returns, as TVM's code does where a function that it has called has failed.
        leave = tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_throw_last_error"))
        return tirx.IfThenElse(failed, leave, None)

    def at_most(place: int, bound: int) -> Any:
        value = tirx.call_intrin("int64", "tirx.tvm_struct_get", params[1], place, _VALUE)
        return tirx.LE(value, tirx.IntImm("int64", bound))

    body: Any = handed_on(found[0])
    for alternative, to in reversed(list(zip(alternatives_of(func), found[1:], strict=True))):
        holds = map(at_most, places, alternative.bound)
        body = tirx.IfThenElse(functools.reduce(tirx.And, holds), handed_on(to), body)
    body = tirx.SeqStmt([body, tirx.Return(tirx.IntImm("int32", 0))])
    made = tirx.PrimFunc(params, body, like.ret_type, like.attrs)
    return tvm.IRModule({name: made.with_attr("global_symbol", f"{_PACKED}{name}")})
