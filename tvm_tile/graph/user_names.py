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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import tvm
from tvm import ir, relax

from tvm_tile.graph.functions import relax_functions

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
    return _changed(mod, lambda _, flow: _with_others(flow, names))


def names_of_variables(mod: tvm.IRModule) -> dict[Any, Names]:
    """The names that the variables of a module have themselves."""
    functions = relax_functions(mod).values()
    return {var: (str(var.name),) for func in functions for var, _ in bindings_of(func.body)}


def with_named_values(mod: tvm.IRModule, names: Mapping[Any, Names]) -> tvm.IRModule:
    """A module some of whose variables are named, the others as they are."""
    return _changed(mod, lambda _, flow: {**flow.names, **names})


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

    def names(var: Any, flow: _Flow) -> Mapping[Any, Names]:
        func = known[str(var.name_hint)]
        return _inherited(_Flow.of(func, gone) if gone else flows.of(func), flow)

    def is_changed(var: Any) -> bool:
        func = known.get(str(var.name_hint))
        return isinstance(func, relax.Function) and not func.same_as(after[var])

    return _changed(after, names, is_changed, flows)


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
class _Flow:
    """Dataflow of a function: which value is computed of which others.

    Attributes:
        values: variable -> what it is bound to.
        reads: variable -> those that its value is computed of, all in order.
        names: variable -> the names that its value carries, where it carries some.
        results: values that the function returns.
    """

    values: Mapping[Any, Any]
    reads: Mapping[Any, Sequence[Any]]
    names: Mapping[Any, Names]
    results: Sequence[Any]

    @classmethod
    def of(cls, func: relax.Function, gone: Mapping[str, Any] = MappingProxyType({})) -> _Flow:
        """Read the flow of values in a function, named also as what they call of ``gone`` is."""
        bindings = list(bindings_of(func.body))
        reads = {var: list(relax.analysis.free_vars(value)) for var, value in bindings}
        found = ((var, _names_within(value, gone)) for var, value in bindings)
        names = {var: own for var, own in found if own}
        moved = {
            var: value for var, value in bindings if isinstance(value, relax.Var | relax.Tuple)
        }
        result = func.body.body
        while isinstance(result, relax.Var) and result in moved:
            result = moved[result]
        return cls(dict(bindings), reads, names, list(relax.analysis.free_vars(result)))

    def renewed(self, values: Mapping[Any, Any]) -> _Flow:
        """The flow where some variables are bound to the same values with other names."""
        every = {var: values.get(var, value) for var, value in self.values.items()}
        names = {
            var: names_of(value) if var in values else self.names.get(var, ())
            for var, value in every.items()
        }
        named = {var: own for var, own in names.items() if own}
        return _Flow(every, self.reads, named, self.results)

    def has_as_in(self, other: _Flow, var: Any) -> bool:
        """Whether a variable has the value here that it has in another flow."""
        return var in self.values and self.values[var].same_as(other.values.get(var))


class Flows:
    """The flows of functions between two passes, each read once: reading takes most of the time."""

    def __init__(self) -> None:
        self._known: dict[Any, _Flow] = {}

    def of(self, func: relax.Function) -> _Flow:
        """The flow of values in a function, which is one of those that are kept or to be read."""
        found = self._known.get(func)
        return _Flow.of(func) if found is None else found

    def keep(self, mod: tvm.IRModule, read: Mapping[Any, _Flow]) -> None:
        """Keep the flows that were read, and others of this module; those of no other functions."""
        functions = [func for _, func in mod.functions_items()]
        known = self._known | dict(read)
        self._known = {func: known[func] for func in functions if func in known}


def _inherited(before: _Flow, after: _Flow) -> Mapping[Any, Names]:
    """The names of the values behind a pass."""
    every = (name for names in before.names.values() for name in names)
    rank = {name: n for n, name in enumerate(every)}  # of the last of its values
    found = {var: set(names) for var, names in after.names.items()}
    named_anew = {var for var in after.names if var not in before.reads}
    for var, names in before.names.items():
        if var in after.reads:
            found.setdefault(var, set()).update(names)
    for var, heirs in _heirs(before, after).items():
        for heir in heirs - named_anew:
            found.setdefault(heir, set()).update(before.names.get(var, ()))
    ordered = {
        var: tuple(sorted(names, key=lambda name: rank.get(name, -1)))
        for var, names in found.items()
    }
    for known in (before.names, after.names):
        ordered |= {v: own for v, own in known.items() if found.get(v) == set(own)}
    return _with_others(after, ordered)


def _heirs(before: _Flow, after: _Flow) -> Mapping[Any, set[Any]]:
    """For each variable that is gone, and no constant, the variables that now hold its value.

    What was constant is folded: nothing computes it in a run.
    """
    readers: dict[Any, list[Any]] = {}
    for var, read in before.reads.items():
        for other in read:
            readers.setdefault(other, []).append(var)
    constant: set[Any] = set()
    for var, read in before.reads.items():
        if constant.issuperset(read):
            constant.add(var)
    heirs: dict[Any, set[Any]] = {}
    outputs = dict(zip(before.results, after.results, strict=False))
    for var in reversed(before.reads):
        if var in after.reads or var in constant:
            continue
        heirs[var] = {outputs[var]} if outputs.get(var) in after.reads else set()
        for reader in readers.get(var, ()):
            if reader in heirs:
                heirs[var] |= heirs[reader]
            elif reader in after.reads:
                new = set(after.reads[reader]) - set(before.reads[reader])
                # What it was made of, and is as it was, does not hold it.
                new -= {v for v in before.reads[var] if after.has_as_in(before, v)}
                heirs[var] |= {v for v in new if v in after.reads} or {reader}
    return heirs


def _with_others(flow: _Flow, names: Mapping[Any, Names]) -> Mapping[Any, Names]:
    """Names of values, those without any named as what reads them, or else as what they read."""
    found: dict[Any, Names] = {}
    claims: dict[Any, list[Names]] = {}
    for var in reversed(flow.reads):
        found[var] = names.get(var) or united(reversed(claims.get(var, [])))
        for read in flow.reads[var]:
            claims.setdefault(read, []).append(found[var])
    for var, read in flow.reads.items():
        found[var] = found[var] or united(found.get(other, ()) for other in read)
    return found


def _changed(
    mod: tvm.IRModule,
    names: Any,
    is_meant: Callable[[Any], bool] = lambda _: True,
    flows: Flows | None = None,
) -> tvm.IRModule:
    """A module whose functions' values carry the names that ``names`` tells of their flow, those of
    functions that are meant."""
    changed, flows = None, flows or Flows()
    behind: dict[Any, _Flow] = {}
    for var, func in mod.functions_items():
        if not isinstance(func, relax.Function) or not is_meant(var):
            continue
        flow = flows.of(func)
        wanted = names(var, flow)
        if any(flow.names.get(value, ()) != own for value, own in wanted.items()):
            changed = changed or mod.clone()
            values: dict[Any, Any] = {}
            body = _renewed(func.body, wanted, values)
            func = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
            changed[var], flow = func, flow.renewed(values)
        behind[func] = flow
    flows.keep(changed or mod, behind)
    return changed or mod


def bindings_of(body: relax.SeqExpr) -> Iterator[tuple[Any, Any]]:
    """Variables and what they are bound to, in order, those within branches included."""
    for block in body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.If):
                yield from bindings_of(binding.value.true_branch)
                yield from bindings_of(binding.value.false_branch)
            yield binding.var, binding.value


def _renewed(
    body: relax.SeqExpr, names: Mapping[Any, Names], values: dict[Any, Any]
) -> relax.SeqExpr:
    """A body whose bindings carry the names given; ``values`` gets those that were written anew."""
    blocks = [
        type(block)([_renewed_binding(binding, names, values) for binding in block.bindings])
        for block in body.blocks
    ]
    renewed = relax.SeqExpr(blocks, body.body)
    relax.expr._update_type(renewed, body.ty)
    return renewed


def _renewed_binding(binding: Any, names: Mapping[Any, Names], values: dict[Any, Any]) -> Any:
    """A binding that carries the names given, branches of an If included."""
    value = binding.value
    if isinstance(value, relax.If):
        both = value.true_branch, value.false_branch
        renewed = relax.If(value.cond, *(_renewed(branch, names, values) for branch in both))
        relax.expr._update_type(renewed, value.ty)
    elif isinstance(value, relax.Call) and names_of(value) != names.get(binding.var, ()):
        renewed = with_names(value, names.get(binding.var, ()))
    else:
        return binding
    values[binding.var] = renewed
    if isinstance(binding, relax.MatchCast):
        return relax.MatchCast(binding.var, renewed, binding.ty)
    return relax.VarBinding(binding.var, renewed)
