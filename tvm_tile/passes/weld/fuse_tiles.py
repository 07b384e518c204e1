"""Join functions whose tiles can be handed over on chip, where the model says that it pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_tile.device.device import Device
from tvm_tile.passes.ir.rewriter import is_call_tir, is_in_place, size_of, written_over
from tvm_tile.passes.scheduling.first_choices import FirstChoices, Rules, content_of
from tvm_tile.passes.state.separate_in_place import with_blocks
from tvm_tile.passes.weld.kinds import is_reshape, kind_of
from tvm_tile.passes.weld.limit_fusion import expression_size
from tvm_tile.passes.weld.one_function import as_one, joined_name, outer_values
from tvm_tile.passes.weld.parallel_products import is_static
from tvm_tile.schedule import Scheduled
from tvm_tile.schedule.s_tir.row_axes import keeps_order, stay_in_order
from tvm_tile.schedule.s_tir.rows import holds_rows
from tvm_tile.tile.rules import JOINING, ROWS, Level
from tvm_tile.tile.weld.call_graph import Call, Group, Kind, taken_beyond
from tvm_tile.tile.weld.connect import Decision, Edge, connect_calls, decide

Predict = Callable[[tirx.PrimFunc, Rules], Scheduled | None]
"""A function as one kernel; ``None`` where no rule takes it, of all or of these."""

Record = Callable[[Decision], None]


@tvm.transform.module_pass(opt_level=0, name="FuseTiles")
@dataclass(frozen=True, slots=True)
class FuseTiles:
    """Join what stock fusion leaves apart: products behind products (Welder, section 4).

    before: ``s = call_tir(product, (q, k)); p = call_tir(softmax, (s,)); o = call_tir(product,
            (p, v))``
    after:  ``o = call_tir(joined, (q, k, v))``

    And rows behind which elements get another shape: ``relu(reshape(softmax(x)))``.

    Stock fusion stops at a product or a reduction. Whether a group of functions becomes one is a
    matter of time, not of kinds: each is scheduled, alone and together, and the model compares.

    Args:
        device: the device that the kernels are made for.
        record: called with the decision on each group that was asked about, for ``explain()``.
        predict: scheduler of functions, shared with whoever schedules them afterwards.
        refused: why functions must not be made of others (their kernels did not build, say), by
            :func:`~tvm_tile.passes.scheduling.first_choices.content_of` them.
    """

    device: Device
    record: Record | None = None
    predict: Predict | None = None
    refused: Mapping[Any, str] | None = None

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        predict = self.predict or FirstChoices(self.device)
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                mod, decisions = _joined(mod, var, func, predict, self.refused or {})
                if self.record:
                    for decision in decisions:
                        self.record(decision)
        return mod


@dataclass(frozen=True, slots=True)
class TirCall:
    """A ``call_tir`` in a function's dataflow.

    Attributes:
        var: the value it makes.
        call: itself.
        func: the function that is called.
        args: its arguments.
        kind: type of its output.
        place: number of the binding in the function.
        block: number of its block.
    """

    var: Any
    call: Any
    func: Any
    args: tuple[Any, ...]
    kind: Any
    place: int
    block: int

    @property
    def is_local(self) -> bool:
        """Whether only its block knows the value: there a reshape is a view, else a copy."""
        return isinstance(self.var, relax.DataflowVar)


@dataclass(frozen=True, slots=True)
class JoinedCalls:
    """Calls that become one.

    Attributes:
        members: the calls, in order.
        stored: those whose values others take, too, but for the last one.
    """

    members: Sequence[TirCall]
    stored: Sequence[TirCall]

    @property
    def name(self) -> str:
        """The name of the function of all of them."""
        return joined_name([str(site.func.name_hint) for site in self.members])

    @property
    def outer(self) -> list[Any]:
        """The values that they are given."""
        return outer_values(_calls(self.members))

    def func(self, mod: tvm.IRModule) -> tirx.PrimFunc:
        """The function of all of them."""
        return as_one(mod, _calls(self.members), self.outer, [site.var for site in self.stored])


def _joined(
    mod: tvm.IRModule,
    var: Any,
    func: Any,
    predict: Predict,
    refused: Mapping[Any, str],
) -> tuple[tvm.IRModule, tuple[Decision, ...]]:
    """``mod`` with the groups of one of its functions joined, and what became of every group."""
    sites, outputs = sites_of(func)
    made = {site.var: str(number) for number, site in enumerate(sites)}
    kinds = {func: kind_of(mod[func]) for func in dict.fromkeys(site.func for site in sites)}
    reshapes = {func: is_reshape(mod[func]) for func in kinds}
    calls = [
        Call(made[s.var], _among(s.args, made), kinds[s.func], reshapes[s.func] and s.is_local)
        for s in sites
    ]
    asked: dict[Group, Decision] = {}
    known: dict[Any, Decision] = {}  # the layers of a model are alike

    written = overwritten(func)

    def gain(group: Group, stored: int = 0) -> float | None:
        members = [sites[number] for number in group]
        is_written = not stored or all(is_static(site.kind) for site in members)
        if not (is_written and _may_wait(members, written)):
            return None
        wiring = stored, *_wiring(members)
        if wiring not in known:
            own = [kinds[site.func] for site in members]
            joined = JoinedCalls(members, members[:stored])
            known[wiring] = reckoned(mod, joined, own, predict, refused)
        asked[group] = known[wiring]
        return asked[group].gain

    def alone(number: int) -> float:
        found = predict(mod[sites[number].func], None)
        return math.inf if found is None else found.seconds

    used = frozenset(made[output] for output in outputs if output in made)
    joined = connect_calls(calls, used, gain, alone, partial(gain, stored=1))
    taken = taken_beyond(calls, joined)
    groups = [
        JoinedCalls([sites[n] for n in group], [sites[n] for n in group[:-1] if n in taken])
        for group in joined
    ]
    over = [value for _, value in written]
    free = [s for s in sites if reshapes[s.func] and not any(s.args[0].same_as(v) for v in over)]
    mod = _Joining(mod, groups, free).rewritten(mod, var) if groups else mod
    return mod, decide(asked, joined)


def reckoned(
    mod: tvm.IRModule,
    group: JoinedCalls,
    kinds: Sequence[Kind],
    predict: Predict,
    refused: Mapping[Any, str],
) -> Decision:
    """The decision on functions alone and as one; with the reason, if they cannot become one."""
    members = group.members
    names = tuple(str(site.func.name_hint) for site in members)
    edges = _edges(members, kinds)
    alone = [predict(mod[site.func], None) for site in members]
    if None in alone:
        return Decision(names, edges, reason=f"no rule takes {names[alone.index(None)]} alone")
    apart = sum(found.seconds for found in alone if found is not None)
    joined = group.func(mod)
    if expression_size(joined)[0].is_too_large:
        return Decision(names, edges, reason="an element would be too large an expression")
    together = predict(joined, JOINING)
    if together is None:
        return Decision(names, edges, apart, reason="no rule writes them as one kernel")
    rule = together.rule
    reason = refused.get(content_of(joined), "")
    if rule is ROWS and not (stay_in_order(joined) or holds_rows(joined)):
        reason = "elements of rows are stored in another order than they are read"
    stays = rule.stores_elsewhere or kinds[-1] is Kind.PRODUCT
    if kinds[-1] is Kind.SPATIAL and not stays:
        inner = [own.var for own in members]
        places = [n for n, a in enumerate(members[-1].args) if any(a.same_as(v) for v in inner)]
        stays = keeps_order(mod[members[-1].func], places)
    if rule.hands_over is None or not stays:
        reason = f"{rule.name}, which would write them, stores no sums elsewhere"
    # What is made of single values is made where these are, and what codes stand for where they are
    # multiplied: in registers.
    shared = rule.hands_over is Level.SHARED

    def is_shared(edge: Edge) -> bool:
        is_inside = kinds[edge.taker] is Kind.SPATIAL or kinds[edge.maker] is Kind.DECODING
        return shared and not is_inside

    edges = tuple(replace(edge, is_shared=is_shared(edge)) for edge in edges)
    return Decision(names, edges, apart, together.seconds, rule.name, reason)


def _wiring(members: Sequence[TirCall]) -> tuple[Any, ...]:
    """The functions of a group, and of which value each argument is: equal where they compute the
    same."""
    values = [site.var for site in members] + outer_values(_calls(members))
    return tuple(
        (site.func, *(next(n for n, v in enumerate(values) if v.same_as(a)) for a in site.args))
        for site in members
    )


def _edges(members: Sequence[TirCall], kinds: Sequence[Kind]) -> tuple[Edge, ...]:
    """The values that functions of a group hand to each other."""
    return tuple(
        Edge(maker, taker, size_of(made.kind), kinds[maker] is Kind.VIEW)
        for maker, made in enumerate(members)
        for taker, site in enumerate(members)
        if any(made.var.same_as(argument) for argument in site.args)
    )


def sites_of(func: relax.Function) -> tuple[list[TirCall], list[Any]]:
    """Calls of a function's dataflow blocks, and the values that anything else uses."""
    sites: list[TirCall] = []
    others: list[Any] = list(relax.analysis.free_vars(func.body.body))
    numbers = {block: number for number, block in enumerate(func.body.blocks)}
    for place, (block, binding) in enumerate(bindings_of(func)):
        value = binding.value
        if isinstance(block, relax.DataflowBlock) and is_plain_call(value):
            arguments = tuple(value.args[1].fields)
            kind = value.ty_args[0]
            found = (value.args[0], arguments, kind, place, numbers[block])
            sites.append(TirCall(binding.var, value, *found))
        else:
            # Not ``+=``, which TVM's array takes over: it would copy itself each time.
            others.extend(relax.analysis.free_vars(value))
    return sites, others


def bindings_of(func: relax.Function) -> list[tuple[Any, Any]]:
    """The bindings of a function, each with its block, in order."""
    return [(block, binding) for block in func.body.blocks for binding in block.bindings]


def overwritten(func: relax.Function) -> list[tuple[int, Any]]:
    """The values whose memory calls write over, each with the place of the call's binding."""
    return [
        (place, home)
        for place, (_, binding) in enumerate(bindings_of(func))
        if is_in_place(binding.value)
        for home in written_over(binding.value)
        if home is not None
    ]


def _may_wait(members: Sequence[TirCall], written: Sequence[tuple[int, Any]]) -> bool:
    """Whether all of a group may be computed where its last member is: nothing that they take is
    written over in between."""
    last = members[-1].place
    return not any(
        site.place < place < last and argument.same_as(value)
        for site in members
        for place, value in written
        for argument in site.args
    )


def is_plain_call(value: Any) -> bool:
    """Whether a value is a ``call_tir`` of one output."""
    if not is_call_tir(value):
        return False
    return len(value.args) == 2 and isinstance(value.ty_args[0], relax.TensorType)


def _among(args: Sequence[Any], made: Mapping[Any, str]) -> tuple[str, ...]:
    """Functions that made some arguments, each once."""
    return tuple(dict.fromkeys(made[a] for a in args if isinstance(a, relax.Var) and a in made))


def _calls(members: Sequence[TirCall]) -> list[tuple[Any, Any]]:
    """Variables and calls of a group."""
    return [(site.var, site.call) for site in members]


def with_outputs(func: relax.Function) -> relax.Function:
    """A function whose dataflow blocks hand out what other blocks use."""
    home = {binding.var: block for block, binding in bindings_of(func)}
    renamed = {
        var: relax.Var(var.name, var.ty)
        for block, binding in bindings_of(func)
        for var in relax.analysis.free_vars(binding.value)
        if isinstance(var, relax.DataflowVar) and not home[var].same_as(block)
    }
    return with_blocks(func, list(func.body.blocks), renamed) if renamed else func


@mutator
class _Joining(PyExprMutator):
    """Calls a group's last member in place of all of them.

    Reshapes, which cost nothing within a block but a copy where another block takes them, are
    written anew for a group in another block.
    """

    def __init__(
        self, mod: tvm.IRModule, groups: Sequence[JoinedCalls], reshapes: Sequence[TirCall]
    ) -> None:
        super().__init__(mod)
        self._mod = mod
        self._groups = {group.members[-1].call.__chandle__(): group for group in groups}
        self._functions: dict[Any, tirx.PrimFunc] = {}  # the layers of a model are alike
        self._reshapes = {s.var: s for s in reshapes if s.is_local}
        self._inner = {site.var for group in groups for site in group.members[:-1]}

    def rewritten(self, mod: tvm.IRModule, var: Any) -> tvm.IRModule:
        """``mod`` with the function at ``var`` rewritten."""
        self.builder_.update_func(var, with_outputs(self.visit_expr(mod[var])))
        return self.builder_.get()

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self._inner:
            return
        super().visit_var_binding_(binding)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        group = self._groups.get(call.__chandle__())
        if group is None:
            return super().visit_call_(call)
        args = [self._taken(value, group.members[-1]) for value in group.outer]
        var = self.builder_.add_func(self._function(group), group.name)
        types = [site.kind for site in (*group.stored, group.members[-1])]
        made = relax.call_tir(var, args, types if group.stored else types[0])
        if not group.stored:
            return made
        made = self.builder_.emit(made)
        for number, site in enumerate(group.stored):
            own = self.builder_.emit(relax.TupleGetItem(made, number))
            self.set_var_remap(site.var, own)
        return relax.TupleGetItem(made, len(group.stored))

    def _function(self, group: JoinedCalls) -> tirx.PrimFunc:
        """The function of a group, which groups that compute the same have in common."""
        stored = [own.place for own in group.stored]
        key = tuple(own.place in stored for own in group.members), *_wiring(group.members)
        if key not in self._functions:
            self._functions[key] = group.func(self._mod)
        return self._functions[key]

    def _taken(self, value: Any, by: TirCall) -> Any:
        """A value as a call can take it."""
        made = self._reshapes.get(value) if isinstance(value, relax.Var) else None
        if made is None or made.block == by.block:
            return self.visit_expr(value)
        return self.builder_.emit(super().visit_call_(made.call))
