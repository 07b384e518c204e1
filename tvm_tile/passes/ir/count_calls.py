"""Number of calls of each function in a run, with loops on the host whose count is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax, tirx

from tvm_tile.frontend.loops import COUNTED
from tvm_tile.graph.functions import (
    calls_in,
    calls_of,
    expressions_in,
    global_vars,
    reached,
    relax_functions,
)


@dataclass(frozen=True, slots=True)
class _Site:
    """A place where a Relax function names another one.

    Attributes:
        caller: the one that names it.
        callee: the one that is named.
        turns: number of its iterations for each call from there, if it is a loop.
        in_turn: whether it is named in each iteration of the caller, if that is a loop.
    """

    caller: Any
    callee: Any
    turns: int
    in_turn: bool


def count_calls(mod: tvm.IRModule) -> Counter[str]:
    """How often each function of a module is called in a run, in whatever way.

    What a loop of a known count calls, it calls as often as it has iterations. Both sides of a
    branch are counted, and one iteration of any other loop.
    """
    sites = _sites(mod)
    by_callee: dict[Any, list[_Site]] = {}
    for site in sites:
        if not site.callee.same_as(site.caller):
            by_callee.setdefault(site.callee, []).append(site)
    known: dict[Any, tuple[int, int]] = {}

    def runs(var: Any) -> tuple[int, int]:
        """Calls of a function from outside of it, and its iterations, in all of these together."""
        if var not in known:
            known[var] = 0, 0  # of functions that call each other, one way round counts
            times = [
                (calls * site.turns, calls)
                for site in by_callee.get(var, ())
                for calls in [runs(site.caller)[int(site.in_turn)]]
            ]
            is_root = var not in by_callee
            called = sum(calls for _, calls in times) + is_root
            known[var] = called, sum(turns for turns, _ in times) + is_root
        return known[var]

    counts: Counter[str] = Counter()
    for callee in by_callee:
        counts[str(callee.name_hint)] = max(1, runs(callee)[0])
    return counts


def conditional_calls(mod: tvm.IRModule) -> tuple[str, ...]:
    """Notes on kernels that the host launches as often as the data say, if there are any."""
    calls, counted = calls_of(mod), _counted(mod)
    looped: set[Any] = set()
    branched: set[Any] = set()
    for var in calls:
        here: set[Any] = set()
        for branch in _branches(mod[var], is_counted=var in counted):
            here.update(global_vars(branch.true_branch), global_vars(branch.false_branch))
        (looped if var in reached(var, calls) else branched).update(here)
    notes = []
    for places, how in ((looped, _IN_LOOPS), (branched - looped, _IN_BRANCHES)):
        there = places.union(*(reached(var, calls) for var in places))
        if kernels := [var for var in there if var not in calls]:
            notes.append(f"{len(kernels)} kernels are in {how}")
    return tuple(notes)


def has_open_loops(mod: tvm.IRModule) -> bool:
    """Whether the host has loops that have as many iterations as the data say."""
    calls, counted = calls_of(mod), _counted(mod)
    return any(var in reached(var, calls) and var not in counted for var in calls)


_IN_LOOPS = (
    "loops of the host that end when the data say so: a run is counted with one iteration of each, "
    "so that it takes at least as long as is predicted"
)
_IN_BRANCHES = "branches of the host: a run is counted with each of their calls once"


def _branches(func: relax.Function, *, is_counted: bool) -> list[relax.If]:
    """The branches of a function, but for that which ends a loop of a known count."""
    head = _head(func) if is_counted else None
    return [branch for branch in expressions_in(func, relax.If) if not branch.same_as(head)]


def _counted(mod: tvm.IRModule) -> Mapping[Any, int]:
    """Loops that count their iterations, if all calls from outside say the same number."""
    numbers: dict[Any, set[int]] = {}
    for var, func in relax_functions(mod).items():
        for call in calls_in(func):
            if isinstance(call.op, ir.GlobalVar) and not call.op.same_as(var):
                numbers.setdefault(call.op, set()).add(turns_of(mod, call))
    return {var: own.pop() for var, own in numbers.items() if len(own) == 1 and own != {0}}


def turns_of(mod: tvm.IRModule, call: relax.Call) -> int:
    """Iterations of a call of a counted loop; 0 where it is none, or the number is not known."""
    func = mod[call.op]
    if not isinstance(func, relax.Function) or COUNTED not in (func.attrs or {}):
        return 0
    count = getattr(call.args[0], "value", call.args[0])
    return int(count) if isinstance(count, int | tirx.IntImm) else 0


def _head(func: relax.Function) -> relax.If | None:
    """The branch that goes on with a loop or ends it."""
    for block in func.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.If):
                return binding.value
    return func.body.body if isinstance(func.body.body, relax.If) else None


def _sites(mod: tvm.IRModule) -> list[_Site]:
    """All places where Relax functions name others."""
    found = []
    for var, func in relax_functions(mod).items():
        head = _head(func) if COUNTED in (func.attrs or {}) else None
        turns = [] if head is None else calls_in(head.true_branch)
        for call in calls_in(func):
            is_turn = any(call.same_as(own) for own in turns)
            for named in (call.op, *call.args):
                if isinstance(named, ir.GlobalVar):
                    own = turns_of(mod, call) if named.same_as(call.op) else 0
                    found.append(_Site(var, named, max(1, own), is_turn))
    return found
