"""Attention writes the new rows of its caches itself, before it reads these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from tvm_tile.device.device import Device
from tvm_tile.graph.functions import with_relax_functions
from tvm_tile.passes.ir.rewriter import is_in_place, written_over
from tvm_tile.passes.scheduling.first_choices import FirstChoices, content_of
from tvm_tile.passes.state.separate_in_place import SeparateInPlace, writes_in_place
from tvm_tile.passes.weld.fuse_tiles import Predict, bindings_of, is_plain_call, kind_of
from tvm_tile.passes.weld.one_function import JoinedFunctions, in_turn, joined_name, outer_values
from tvm_tile.passes.weld.parallel_products import is_static
from tvm_tile.tile.rules import DECODE
from tvm_tile.tile.weld.connect import Kind

_FEEDING = (Kind.VIEW, Kind.SPATIAL, Kind.ROWS)


@tvm.transform.module_pass(opt_level=0, name="AppendRows")
@dataclass(frozen=True, slots=True)
class AppendRows:
    """Join attention with the calls that write its caches, and with what makes the new rows.

    before: ``k = call_tir(norm, (y,))``
            ``keys2 = call_tir_inplace(f, (keys, position, k), [0])``
            ``o = call_tir(attention, (q, keys2))``
    after:  ``both = call_tir_inplace(joined, (keys, position, y, q), [0, -1])``
            ``keys2 = both[0]; o = both[1]``

    The writes are made as late as attention is: nothing in between may take what they write, nor
    write over what they take. What makes new rows is joined where nothing else takes it.

    Args:
        device: the device that the kernels are made for.
        predict: scheduler of functions, shared with whoever schedules them afterwards.
        refused: why functions must not be made of others, by their contents.
    """

    device: Device
    predict: Predict | None = None
    refused: Mapping[Any, str] | None = None

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        predict = self.predict or FirstChoices(self.device)
        added = JoinedFunctions()

        def appended(func: relax.Function) -> relax.Function:
            if not writes_in_place(func):
                return func
            return _Appending(mod, func, predict, self.refused or {}, added).result()

        changed = with_relax_functions(mod, appended)
        added.add_to(changed)
        return SeparateInPlace()(changed)


@dataclass(frozen=True, slots=True)
class _Member:
    """A call that becomes part of another one.

    Attributes:
        made: the variables of what it makes.
        call: itself.
        places: numbers of the bindings that are left out for it.
    """

    made: tuple[Any, ...]
    call: Any
    places: tuple[int, ...]


class _Appending:
    """One function, while its calls are joined."""

    def __init__(
        self,
        mod: tvm.IRModule,
        func: relax.Function,
        predict: Predict,
        refused: Mapping[Any, str],
        added: JoinedFunctions,
    ) -> None:
        self._mod, self._func, self._predict, self._refused = mod, func, predict, refused
        self._added = added
        self._bindings = [binding for _, binding in bindings_of(func)]
        self._places = {binding.var: n for n, binding in enumerate(self._bindings)}
        self._uses: dict[Any, list[int]] = {}
        values = [*(binding.value for binding in self._bindings), func.body.body]
        for place, value in enumerate(values):
            for var in relax.analysis.free_vars(value):
                self._uses.setdefault(var, []).append(place)
        self._known: dict[Any, bool] = {}

    def result(self) -> relax.Function:
        """The function with its attention joined with what writes its caches."""
        instead: dict[int, list[Any]] = {}
        for place, binding in enumerate(self._bindings):
            members = self._members(place) if is_plain_call(binding.value) else []
            if members:
                gone = [p for own in members for p in own.places]
                instead |= {key: [] for key in gone} | {place: self._joined(members, place)}
        if not instead:
            return self._func
        blocks, place = [], 0
        for block in self._func.body.blocks:
            found: list[Any] = []
            for binding in block.bindings:
                found += instead.get(place, [binding])
                place += 1
            if found:
                blocks.append(type(block)(found))
        func, body = self._func, relax.SeqExpr(blocks, self._func.body.body)
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)

    def _members(self, place: int) -> list[_Member]:
        """What becomes one with the call at a place: its writes, what feeds these; or nothing."""
        call = self._bindings[place].value
        writes = [self._write(value, place) for value in call.args[1].fields]
        known = {own.places[0]: own for own in writes if own is not None}
        own = [known[first] for first in sorted(known)]
        fed = self._feeding(own) if own else []
        for members in ([*fed, *own], own) if fed else ([own] if own else []):
            if self._may_wait(members, place) and self._pays(members, place):
                return members
        return []

    def _write(self, value: Any, place: int) -> _Member | None:
        """The call that writes in place and makes a value, if nothing needs it before a place."""
        if not isinstance(value, relax.Var) or value not in self._places:
            return None
        first = self._places[value]
        made = self._bindings[first].value
        if isinstance(made, relax.TupleGetItem):
            first = self._places.get(made.tuple_value, first)
        var, call = self._bindings[first].var, self._bindings[first].value
        if not is_in_place(call) or None in written_over(call):
            return None
        parts, places = (var,), (first,)
        if not isinstance(var.ty, relax.TensorType):
            places = (first, *self._uses[var])
            items = [self._bindings[p] for p in places[1:] if p < len(self._bindings)]
            by_number = {
                b.value.index: b.var for b in items if isinstance(b.value, relax.TupleGetItem)
            }
            if len(items) != len(var.ty.fields) or len(by_number) != len(items):
                return None
            parts = tuple(by_number[number] for number in range(len(items)))
        is_early = any(use < place for own in parts for use in self._uses.get(own, ()))
        return None if is_early else _Member(parts, call, places)

    def _feeding(self, writes: Sequence[_Member]) -> list[_Member]:
        """Calls that only feed some writes, in the order of the program."""
        within = {place for own in writes for place in own.places}
        found: list[int] = []
        left = [value for own in writes for value in own.call.args[1].fields]
        while left:
            value = left.pop()
            first = self._places.get(value) if isinstance(value, relax.Var) else None
            made = None if first is None else self._bindings[first].value
            if first is None or first in within or not is_plain_call(made):
                continue
            if kind_of(self._mod[made.args[0]]) in _FEEDING and within.issuperset(
                self._uses[value]
            ):
                within.add(first)
                found.append(first)
                left.extend(made.args[1].fields)  # not ``+=``, which TVM's array takes over
        own = [self._bindings[first] for first in sorted(found)]
        return [_Member((b.var,), b.value, (self._places[b.var],)) for b in own]

    def _may_wait(self, members: Sequence[_Member], place: int) -> bool:
        """Whether all may be computed at a place: nothing that they take is written over before,
        and nothing in between, nor they themselves, takes what they write over."""
        gone = {p for own in members for p in own.places}
        homes = {h for own in members if is_in_place(own.call) for h in written_over(own.call)}
        for other in range(min(gone) + 1, place):
            value = self._bindings[other].value
            over = [] if other in gone or not is_in_place(value) else written_over(value)
            taken = {a for own in members if own.places[0] < other for a in _variables(own.call)}
            if not taken.isdisjoint(over) or (other not in gone and homes & _variables(value)):
                return False
        others = [own.call for own in members if not is_in_place(own.call)]
        others.append(self._bindings[place].value)
        return not any(homes & _variables(call) for call in others)

    def _pays(self, members: Sequence[_Member], place: int) -> bool:
        """Whether one kernel takes less time than those of all members, and of the call."""
        whole = self._with_last(members, place)
        outer = _outer(whole)
        if not all(is_static(value.ty) for value in outer):
            return False
        values = [*outer, *(var for own in whole for var in own.made)]
        key = tuple(
            (own.call.args[0], *(_number(value, values) for value in own.call.args[1].fields))
            for own in whole
        )
        if key not in self._known:
            func = in_turn(self._mod, [(own.made, own.call) for own in whole], outer)
            self._known[key] = self._is_faster([own.call.args[0] for own in whole], func)
        return self._known[key]

    def _is_faster(self, names: Sequence[Any], func: Any) -> bool:
        """Whether a function takes less time than those that it is made of."""
        alone = [self._predict(self._mod[name], None) for name in names]
        together = None if content_of(func) in self._refused else self._predict(func, (DECODE,))
        seconds = sum(math.inf if own is None else own.seconds for own in alone)
        return together is not None and together.seconds < seconds

    def _with_last(self, members: Sequence[_Member], place: int) -> list[_Member]:
        """The members, and the call at a place."""
        binding = self._bindings[place]
        return [*members, _Member((binding.var,), binding.value, (place,))]

    def _joined(self, members: Sequence[_Member], place: int) -> list[Any]:
        """The bindings of one call for all members and the call at a place."""
        whole = self._with_last(members, place)
        outer = _outer(whole)
        func = in_turn(self._mod, [(own.made, own.call) for own in whole], outer)
        names = [str(own.call.args[0].name_hint) for own in whole]
        var = self._added.named(func, joined_name(names))
        pairs = [
            (home, var)
            for own in members
            if is_in_place(own.call)
            for home, var in zip(written_over(own.call), own.made, strict=True)
        ]
        made = [*(var for _, var in pairs), *whole[-1].made]
        homes = [*(_number(home, outer) for home, _ in pairs), -1]
        types = [own.ty for own in made]
        results = relax.Var("appended", relax.TupleType(types))
        call = relax.call_tir_inplace(var, outer, homes, types)
        items = (relax.TupleGetItem(results, number) for number in range(len(made)))
        own = [relax.VarBinding(v, item) for v, item in zip(made, items, strict=True)]
        return [relax.VarBinding(results, call), *own]


def _variables(value: Any) -> set[Any]:
    """The variables of an expression."""
    return set(relax.analysis.free_vars(value))


def _outer(members: Sequence[_Member]) -> list[Any]:
    """The values that members are given and do not make, each once."""
    return outer_values([(var, own.call) for own in members for var in own.made])


def _number(value: Any, values: Sequence[Any]) -> int:
    """Place of a value among others, by identity."""
    return next(number for number, own in enumerate(values) if value.same_as(own))
