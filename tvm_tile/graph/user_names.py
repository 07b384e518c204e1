"""Names of the user's model, which its values carry through every stage.

A name is what the user knows an operator by: a node of an ONNX graph, the path of a PyTorch module,
a variable of a Relax function, an operator's place in Relay's text. It is kept in the ``span`` of
the call that computes a value:

* Spans change nothing. They are no part of a function's text, its sum or its equality, so kernels
  of equal layers are still one kernel, whatever these are called.
* TVM's mutators hand them on. What they lose, most of them lose with the variable left as it was
  (``LegalizeOps`` writes another call for it), or with the variables of its neighbours:
  :func:`handed_on` compares a function before and after a pass, and gives each name to what now
  computes its value. ``run_passes`` calls it behind every pass.
* Only ``FuseOps`` renews all variables, and makes one function of groups that are alike: see
  :class:`~tvm_tile.passes.weld.fuse_operators.FuseOperators`.

In the end :func:`names_by_function` tells whose value each kernel computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import tvm
from tvm import ir, relax

from tvm_tile.graph.arrays import items_of
from tvm_tile.graph.functions import bindings_of, relax_functions, with_values

_BETWEEN = "\n"  # names in the text of a span

Names = tuple[str, ...]


def names_of(value: Any) -> Names:
    """The names that an expression carries."""
    span = getattr(value, "span", None)
    return tuple(str(span.source_name.name).split(_BETWEEN)) if span is not None else ()


def united(names: Iterable[Sequence[str]]) -> Names:
    """All of several names, each once, in order."""
    return tuple(dict.fromkeys(name for each in names for name in each))


def with_names(call: relax.Call, names: Sequence[str], attrs: Any = None) -> relax.Call:
    """A call that carries names, and has other attributes, if any are given."""
    span = ir.Span(ir.SourceName(_BETWEEN.join(names)), 0, 0, 0, 0) if names else None
    named = relax.Call(call.op, call.args, attrs or call.attrs, call.ty_args, span)
    relax.expr._update_type(named, call.ty)
    return named


def named(mod: tvm.IRModule, names: Mapping[Any, Names]) -> tvm.IRModule:
    """A module as it was written, with names.

    Args:
        mod: a module in Relax.
        names: variable -> the names of what it is the value of. What is computed on the way to
            these values has their names.
    """
    wanted = _by_handle(names)
    return _changed(mod, lambda _, flow: _with_others(flow, wanted))


def names_of_variables(mod: tvm.IRModule) -> dict[Any, Names]:
    """The names that the variables of a module have themselves."""
    functions = relax_functions(mod).values()
    return {var: (str(var.name),) for func in functions for var, _ in bindings_of(func.body)}


def with_named_values(mod: tvm.IRModule, names: Mapping[Any, Names]) -> tvm.IRModule:
    """A module some of whose variables are named, the others as they are."""
    wanted = _by_handle(names)
    return _changed(mod, lambda _, flow: {**flow.names, **wanted})


def handed_on(
    before: tvm.IRModule, after: tvm.IRModule, flows: Flows | None = None
) -> tvm.IRModule:
    """``after``, which a pass made of ``before``, with the names of all values.

    Where passes follow one another, ``flows`` keeps what was read of the one for the next.

    A variable that both have keeps its names. Those of one that is gone go to what its readers read
    now and did not before, or, if that is nothing new, to the readers themselves, which have taken
    it in. What the pass computes on the way to a value has the names of that value, unless the pass
    has named it. A call of a function that is gone has the names within it, too: a kernel of a loop
    is known by all that runs in it.
    """
    if after.same_as(before):
        return after
    flows = flows or Flows()
    known = {str(var.name_hint): func for var, func in before.functions_items()}
    left = {str(var.name_hint) for var, _ in after.functions_items()}
    # Fusion makes one function of groups that are alike: its names are not those of each.
    gone = {
        name: func
        for name, func in known.items()
        if name not in left
        and isinstance(func, relax.Function)
        and "Primitive" not in (func.attrs or {})
    }

    def names(var: Any, flow: _Flow) -> Mapping[int, Names]:
        func = known[str(var.name_hint)]
        return _inherited(_Flow.of(func, gone) if gone else flows.of(func), flow)

    def is_changed(var: Any) -> bool:
        func = known.get(str(var.name_hint))
        return isinstance(func, relax.Function) and not func.same_as(after[var])

    return _changed(after, names, is_changed, flows, known)


def names_by_function(mod: tvm.IRModule) -> dict[str, tuple[Names, ...]]:
    """For each function that is called, the names of the values that its calls compute.

    Each name is there once, in the order of the calls.
    """
    found: dict[str, list[Names]] = {}
    for func in mod.functions.values():
        if not isinstance(func, relax.Function):
            continue
        for _, value in bindings_of(func.body):
            if isinstance(value, relax.Call):
                for used in (value.op, *value.args):
                    if isinstance(used, ir.GlobalVar):
                        found.setdefault(str(used.name_hint), []).append(names_of(value))
    return {name: tuple(filter(None, dict.fromkeys(each))) for name, each in found.items()}


def _names_within(value: Any, gone: Mapping[str, Any], callers: tuple[str, ...] = ()) -> Names:
    """The names that an expression carries, and those within a function of ``gone`` that it calls.

    ``callers`` are functions that it is within, which may call themselves, as loops do.
    """
    called = getattr(value, "op", None)
    name = str(called.name_hint) if isinstance(called, ir.GlobalVar) else ""
    if name not in gone or name in callers:
        return names_of(value)
    within = (value for _, value in bindings_of(gone[name].body))
    inner = (_names_within(own, gone, (*callers, name)) for own in within)
    return united((names_of(value), *inner))


@dataclass(frozen=True, slots=True)
class _Value:
    """What a variable is bound to, with what is read of it.

    Attributes:
        value: the expression.
        reads: handles of the variables that it is computed of, all in order.
        names: those that it carries.
    """

    value: Any
    reads: tuple[int, ...]
    names: Names

    @classmethod
    def of(cls, value: Any, gone: Mapping[str, Any] = MappingProxyType({})) -> _Value:
        """Read an expression, named also as what it calls of ``gone`` is."""
        return cls(value, _read_by(value), _names_within(value, gone))

    def renewed(self, value: Any) -> _Value:
        """The same value with other names."""
        return _Value(value, self.reads, names_of(value))


def _read_by(value: Any) -> tuple[int, ...]:
    """Handles of the variables that an expression reads, in order."""
    return tuple(var.__chandle__() for var in items_of(relax.analysis.free_vars(value)))


@dataclass(frozen=True, slots=True)
class _Flow:
    """Dataflow of a function: which value is computed of which others.

    Variables are known by their handles: that two of Python's objects are the same variable takes
    TVM longer to tell than all else here, and the function keeps its variables.

    Attributes:
        func: the function.
        values: variable -> its value.
        results: values that the function returns.
        names: variable -> the names that its value carries, where it carries some.
    """

    func: relax.Function
    values: dict[int, _Value]
    results: Sequence[int]
    names: Mapping[int, Names]

    @classmethod
    def of(
        cls,
        func: relax.Function,
        gone: Mapping[str, Any] = MappingProxyType({}),
        known: Mapping[int, _Value] = MappingProxyType({}),
    ) -> _Flow:
        """Read the flow of values in a function, named also as what they call of ``gone`` is.

        ``known`` are values by their expressions' handles, that need not be read again.
        """
        values: dict[int, _Value] = {}
        moved: dict[int, Any] = {}
        for var, value in bindings_of(func.body):
            key = var.__chandle__()
            values[key] = known.get(value.__chandle__()) or _Value.of(value, gone)
            if isinstance(value, relax.Var | relax.Tuple):
                moved[key] = value
        result = func.body.body
        while isinstance(result, relax.Var) and result.__chandle__() in moved:
            result = moved[result.__chandle__()]
        return cls(func, values, _read_by(result), _named_among(values))

    @property
    def by_expression(self) -> dict[int, _Value]:
        """Values by their expressions' handles."""
        return {own.value.__chandle__(): own for own in self.values.values()}

    def renewed(self, func: relax.Function, values: Mapping[int, Any]) -> _Flow:
        """The flow of a function where some variables are bound to the same values with other
        names."""
        renewed = {var: self.values[var].renewed(value) for var, value in values.items()}
        every = {**self.values, **renewed}
        return _Flow(func, every, self.results, _named_among(every))

    def has_as_in(self, other: _Flow, var: int) -> bool:
        """Whether a variable has the value here that it has in another flow."""
        own, others = self.values.get(var), other.values.get(var)
        return own is not None and others is not None and own.value.same_as(others.value)


def _named_among(values: Mapping[int, _Value]) -> dict[int, Names]:
    return {var: own.names for var, own in values.items() if own.names}


class Flows:
    """The flows of functions between two passes, each read once: reading takes most of the time."""

    def __init__(self) -> None:
        self._known: dict[int, _Flow] = {}

    def of(self, func: relax.Function, former: relax.Function | None = None) -> _Flow:
        """The flow of values in a function, which is one of those that are kept or to be read;
        what it has of a ``former`` one is known of that."""
        found = self._known.get(func.__chandle__())
        if found is not None:
            return found
        before = None if former is None else self._known.get(former.__chandle__())
        return _Flow.of(func, known={} if before is None else before.by_expression)

    def keep(self, mod: tvm.IRModule, read: Sequence[_Flow]) -> None:
        """Keep the flows that were read, and others of this module; those of no other functions."""
        functions = {func.__chandle__() for _, func in mod.functions_items()}
        known = self._known | {flow.func.__chandle__(): flow for flow in read}
        self._known = {func: flow for func, flow in known.items() if func in functions}


def _by_handle(names: Mapping[Any, Names]) -> dict[int, Names]:
    """Names of variables, by their handles."""
    return {var.__chandle__(): own for var, own in names.items()}


def _inherited(before: _Flow, after: _Flow) -> Mapping[int, Names]:
    """The names of the values behind a pass."""
    named, already = before.names, after.names
    every = (name for names in named.values() for name in names)
    rank = {name: n for n, name in enumerate(every)}  # of the last of its values
    found = {var: set(names) for var, names in already.items()}
    named_anew = {var for var in already if var not in before.values}
    for var, names in named.items():
        if var in after.values:
            found.setdefault(var, set()).update(names)
    for var, heirs in _heirs(before, after).items():
        for heir in heirs - named_anew:
            found.setdefault(heir, set()).update(named.get(var, ()))
    ordered = {
        var: tuple(sorted(names, key=lambda name: rank.get(name, -1)))
        for var, names in found.items()
    }
    for known in (named, already):
        ordered |= {v: own for v, own in known.items() if found.get(v) == set(own)}
    return _with_others(after, ordered)


def _heirs(before: _Flow, after: _Flow) -> Mapping[int, set[int]]:
    """For each variable that is gone, and no constant, the variables that now hold its value.

    What was constant is folded: nothing computes it in a run.
    """
    readers: dict[int, list[int]] = {}
    constant: set[int] = set()
    for var, own in before.values.items():
        for other in own.reads:
            readers.setdefault(other, []).append(var)
        if constant.issuperset(own.reads):
            constant.add(var)
    heirs: dict[int, set[int]] = {}
    outputs = dict(zip(before.results, after.results, strict=False))
    for gone in reversed(before.values):
        if gone in after.values or gone in constant:
            continue
        heirs[gone] = {outputs[gone]} if outputs.get(gone) in after.values else set()
        for reader in readers.get(gone, ()):
            if reader in heirs:
                heirs[gone] |= heirs[reader]
            elif reader in after.values:
                new = set(after.values[reader].reads) - set(before.values[reader].reads)
                # What it was made of, and is as it was, does not hold it.
                new -= {v for v in before.values[gone].reads if after.has_as_in(before, v)}
                heirs[gone] |= {v for v in new if v in after.values} or {reader}
    return heirs


def _with_others(flow: _Flow, names: Mapping[int, Names]) -> Mapping[int, Names]:
    """Names of values, those without any named as what reads them, or else as what they read."""
    found: dict[int, Names] = {}
    claims: dict[int, list[Names]] = {}
    for var, own in reversed(flow.values.items()):
        found[var] = names.get(var) or united(reversed(claims.get(var, [])))
        for read in own.reads:
            claims.setdefault(read, []).append(found[var])
    for var, own in flow.values.items():
        found[var] = found[var] or united(found.get(other, ()) for other in own.reads)
    return found


def _renewed(flow: _Flow, names: Mapping[int, Names]) -> dict[int, Any]:
    """Calls of other names in the places of those that have not the names given."""
    pairs = ((var, own, names.get(var, ())) for var, own in flow.values.items())
    return {
        var: with_names(own.value, given)
        for var, own, given in pairs
        if isinstance(own.value, relax.Call) and own.names != given
    }


def _changed(
    mod: tvm.IRModule,
    names: Any,
    is_meant: Callable[[Any], bool] = lambda _: True,
    flows: Flows | None = None,
    former: Mapping[str, Any] = MappingProxyType({}),
) -> tvm.IRModule:
    """A module whose functions' values carry the names that ``names`` tells of their flow, those of
    functions that are meant.

    ``former`` are the functions of which these were made, by their names.
    """
    changed, flows = None, flows or Flows()
    behind: list[_Flow] = []
    for var, func in mod.functions_items():
        if not isinstance(func, relax.Function) or not is_meant(var):
            continue
        flow = flows.of(func, former.get(str(var.name_hint)))
        wanted = names(var, flow)
        if any(own.names != wanted.get(var, own.names) for var, own in flow.values.items()):
            changed = changed or mod.clone()
            values = _renewed(flow, wanted)
            func = with_values(func, values)
            changed[var], flow = func, flow.renewed(func, values)
        behind.append(flow)
    flows.keep(changed or mod, behind)
    return changed or mod
