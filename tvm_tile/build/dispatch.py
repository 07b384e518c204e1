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

_ATTRIBUTE = "tvm_tile.schedules"
_PACKED = "__tvm_ffi_"  # what TVM's packed functions are called
_VALUE = 15  # of an argument, as tvm_struct_get counts its fields


@dataclass(frozen=True, slots=True)
class Version:
    """Extents that one schedule of a function takes.

    Attributes:
        bound: the greatest values that it is for, of the function's scalars, in order.
        schedule: its number; 0 is the function's own.
    """

    bound: tuple[int, ...]
    schedule: int


def with_schedules(func: Any, others: Sequence[Any], branches: Sequence[Version]) -> Any:
    """A scheduled function with further schedules, of the same parameters.

    Args:
        func: the function; its schedule takes what no branch does.
        others: the further ones, from number 1 on.
        branches: further schedules, of which the first whose bound holds is taken.
    """
    if not branches:
        return func
    told = [[list(branch.bound), branch.schedule] for branch in branches]
    return func.with_attr(_ATTRIBUTE, [list(others), told])


def schedules_of(func: Any) -> tuple[Any, ...]:
    """All schedules of a function, its own first."""
    told = (func.attrs or {}).get(_ATTRIBUTE)
    return (func,) if told is None else (func.without_attr(_ATTRIBUTE), *told[0])


def branches_of(func: Any) -> tuple[Version, ...]:
    """Extents that each further schedule of a function takes."""
    told = (func.attrs or {}).get(_ATTRIBUTE, ((), ()))
    return tuple(Version(tuple(map(int, bound)), int(number)) for bound, number in told[1])


def script_of(func: Any) -> str:
    """The TVMScript of a scheduled function, and of its further schedules behind it."""
    own, *others = schedules_of(func)
    texts = [own.script()]
    for number, one in enumerate(others, 1):
        ends = [branch.bound for branch in branches_of(func) if branch.schedule == number]
        told = "; ".join(", ".join(map(str, bound)) for bound in ends)
        texts.append(f"# up to {told}:\n{one.script()}")
    return "\n".join(texts)


def dispatcher(name: str, func: Any, names: Sequence[str], hosts: Sequence[Any]) -> Any:
    """The host's code of a function of several schedules, as an IRModule.

    Args:
        name: name of the function.
        func: the function: says which extents its schedules take.
        names: names of its schedules.
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
    for branch in reversed(branches_of(func)):
        holds = functools.reduce(tirx.And, map(at_most, places, branch.bound))
        body = tirx.IfThenElse(holds, handed_on(found[branch.schedule]), body)
    body = tirx.SeqStmt([body, tirx.Return(tirx.IntImm("int32", 0))])
    made = tirx.PrimFunc(params, body, like.ret_type, like.attrs)
    return tvm.IRModule({name: made.with_attr("global_symbol", f"{_PACKED}{name}")})
