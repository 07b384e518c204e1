"""Values that are written in place are computed by the kernel that writes them, and read by it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.s_tir import SBlock

from tvm_tile.device.device import Device
from tvm_tile.graph.functions import with_relax_functions
from tvm_tile.passes.ir.rewriter import is_in_place, written_over
from tvm_tile.passes.scheduling.first_choices import FirstChoices, content_of
from tvm_tile.passes.state.separate_in_place import SeparateInPlace, writes_in_place
from tvm_tile.passes.weld.fuse_tiles import (
    Predict,
    bindings_of,
    is_plain_call,
    overwritten,
    with_outputs,
)
from tvm_tile.passes.weld.kinds import kind_of
from tvm_tile.passes.weld.one_function import JoinedFunctions, in_turn, joined_name, outer_values
from tvm_tile.passes.weld.parallel_products import is_static
from tvm_tile.schedule.s_tir.normalize import inlined
from tvm_tile.schedule.s_tir.steps import replace_parts
from tvm_tile.tile.rules import DECODE
from tvm_tile.tile.weld.call_graph import Kind


@tvm.transform.module_pass(opt_level=0, name="JoinWrites")
@dataclass(frozen=True, slots=True)
class JoinWrites:
    """Join calls that write in place with what makes their operands, with each other, and with
    attention that reads what they write, such as a layer's caches of keys and of values.

    before: ``k = call_tir(rotated, (y,)); v = call_tir(slice, (y,))``
            ``keys2 = call_tir_inplace(f, (keys, position, k), [0])``
            ``values2 = call_tir_inplace(g, (values, position, v), [0])``
            ``o = call_tir(attention, (q, keys2, values2))``
    after:  ``all = call_tir_inplace(joined, (y, keys, position, values, q), [1, 3, -1])``
            ``keys2 = all[0]; values2 = all[1]; o = all[2]``

    or the writes alone, if that is faster. What makes an operand is joined where nothing else takes
    it, but for views, which cost nothing: these are made anew. Of calls that become one none may
    take what another one writes over, and nothing that they take may be written over before the
    last one, where they all are: no thread would know whether others have read it. Tensors that
    are written in place are parameters or made by kernels, so that no two share memory; nor does an
    operand, as reshapes are no views where such calls are.

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
        joining = _Reckoning(mod, self.predict or FirstChoices(self.device), self.refused or {})

        def joined(func: relax.Function) -> relax.Function:
            return _Joined(func, joining).result() if writes_in_place(func) else func

        changed = with_relax_functions(mod, joined)
        joining.added.add_to(changed)
        passes = [SeparateInPlace(), relax.transform.DeadCodeElimination()]
        return tvm.transform.Sequential(passes)(changed)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a kernel in a function.

    Attributes:
        var: the variable of what it makes.
        call: itself.
        place: number of the binding.
    """

    var: Any
    call: Any
    place: int

    @property
    def home(self) -> Any | None:
        """The tensor that it writes over, if any."""
        return written_over(self.call)[0] if is_in_place(self.call) else None

    @property
    def taken(self) -> list[Any]:
        """Operands of the call."""
        return list(self.call.args[1].fields)


@dataclass(frozen=True, slots=True)
class _Group:
    """Calls that become one.

    Attributes:
        calls: in the order of the program.
        func: function of all of them; ``None`` where it is a single call as it stands.
        seconds: predicted time.
    """

    calls: tuple[_Call, ...]
    func: tirx.PrimFunc | None
    seconds: float


class _Reckoning:
    """What calls become as one, and the time that it takes: the layers of a model are alike.

    Attributes:
        added: the joined functions.
    """

    def __init__(self, mod: tvm.IRModule, predict: Predict, refused: Mapping[Any, str]) -> None:
        self._mod, self._predict, self._refused = mod, predict, refused
        self._known: dict[Any, tuple[tirx.PrimFunc | None, float]] = {}
        self._kinds: dict[Any, Kind] = {}
        self.added = JoinedFunctions()

    def kind(self, call: _Call) -> Kind:
        """Kind of a call's computation."""
        name = call.call.args[0]
        if name not in self._kinds:
            self._kinds[name] = kind_of(self._mod[name])
        return self._kinds[name]

    def alone(self, call: _Call) -> _Group:
        """A call as it stands."""
        found = self._predict(self._mod[call.call.args[0]], None)
        is_free = self.kind(call) is Kind.VIEW
        seconds = math.inf if found is None else 0.0 if is_free else found.seconds
        return _Group((call,), None, seconds)

    def one(self, calls: Sequence[_Call]) -> _Group | None:
        """Calls as one kernel, attention if the last one writes nothing in place, else element by
        element; ``None`` where no rule writes that."""
        outer = _outer(calls)
        if not all(is_static(value.ty) for value in outer):
            return None
        values = [*outer, *(own.var for own in calls)]
        key = tuple(
            (own.call.args[0], *(_number(value, values) for value in own.taken)) for own in calls
        )
        key += (tuple(isinstance(value, tvm.ir.Constant) for value in outer),)
        if key not in self._known:
            self._known[key] = self._written(calls, outer)
        func, seconds = self._known[key]
        return None if func is None else _Group(tuple(calls), func, seconds)

    def _written(
        self, calls: Sequence[_Call], outer: Sequence[Any]
    ) -> tuple[tirx.PrimFunc | None, float]:
        """The function of some calls, and its time; none where no rule takes it."""
        func: tirx.PrimFunc | None
        func = in_turn(self._mod, [(own.var, own.call) for own in calls], outer)
        writes = sum(own.home is not None for own in calls)
        is_attention = calls[-1].home is None
        func = func if is_attention else _as_blocks(func, writes)
        if func is None or content_of(func) in self._refused:
            return None, math.inf
        found = self._predict(func, (DECODE,) if is_attention else None)
        return (None, math.inf) if found is None else (func, found.seconds)

    def bindings(self, group: _Group) -> list[Any]:
        """The bindings of one call for a group."""
        outer, calls = _outer(group.calls), group.calls
        ends = [own for own in calls if own.home is not None or own is calls[-1]]
        names = [str(own.call.args[0].name_hint) for own in calls]
        name = self.added.named(group.func, joined_name(names))
        homes = [-1 if own.home is None else _number(own.home, outer) for own in ends]
        types = [own.var.ty for own in ends]
        if len(ends) == 1:
            call = relax.call_tir_inplace(name, outer, homes, types[0])
            return [relax.VarBinding(ends[0].var, call)]
        results = relax.Var("written", relax.TupleType(types))
        call = relax.call_tir_inplace(name, outer, homes, types)
        items = (relax.TupleGetItem(results, number) for number in range(len(ends)))
        own = [relax.VarBinding(end.var, item) for end, item in zip(ends, items, strict=True)]
        return [relax.VarBinding(results, call), *own]


class _Joined:
    """One function, while its calls are joined."""

    def __init__(self, func: relax.Function, kernels: _Reckoning) -> None:
        self._func, self._kernels = func, kernels
        bindings = bindings_of(func)
        self._over = overwritten(func)
        self._calls = {
            place: _Call(own.var, own.value, place)
            for place, (block, own) in enumerate(bindings)
            if _is_write(own.value)
            or (isinstance(block, relax.DataflowBlock) and is_plain_call(own.value))
        }
        self._makers = {own.var: own for own in self._calls.values()}
        self._variables = [_variables(own.value) for _, own in bindings]
        self._variables.append(_variables(func.body.body))
        self._uses: dict[Any, list[int]] = {}
        for place, used in enumerate(self._variables):
            for var in used:
                self._uses.setdefault(var, []).append(place)

    def result(self) -> relax.Function:
        """The function with its writes joined."""
        instead: dict[int, list[Any]] = {}
        for group in self._groups():
            if group.func is not None:
                instead |= {own.place: [] for own in group.calls if own.home is not None}
                instead[group.calls[-1].place] = self._kernels.bindings(group)
        blocks, place = [], 0
        for block in self._func.body.blocks:
            found: list[Any] = []
            for binding in block.bindings:
                found += instead.get(place, [binding])
                place += 1
            if found:
                blocks.append(type(block)(found))
        func, body = self._func, relax.SeqExpr(blocks, self._func.body.body)
        joined = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
        return with_outputs(joined)

    def _groups(self) -> Iterator[_Group]:
        """The groups of writes that take the least time."""
        left = {place for place, own in self._calls.items() if own.home is not None}
        for reader in self._calls.values():
            writes = [own for own in self._writes_of(reader) if own.place in left]
            group = self._with_reader(reader, writes) if writes else None
            if group is not None:
                yield group
                left -= {own.place for own in writes}
        for run in self._runs(sorted(left)):
            yield from self._apart(run)

    def _writes_of(self, reader: _Call) -> list[_Call]:
        """The writes whose results a call takes, and nothing before it, in order."""
        found = {
            own.place: own
            for own in (self._makers.get(value) for value in _variables(reader.call))
            if own is not None and own.home is not None and reader.home is None
        }
        first = {place: min(self._uses[own.var]) for place, own in found.items()}
        return [found[place] for place in sorted(found) if first[place] >= reader.place]

    def _with_reader(self, reader: _Call, writes: Sequence[_Call]) -> _Group | None:
        """Attention with its writes and what feeds them as one, if that takes the least time."""
        kinds = (Kind.VIEW, Kind.SPATIAL, Kind.ROWS)
        fed = self._feeding(writes, kinds)
        views = self._feeding([*fed, *writes, reader], (Kind.VIEW,))
        apart = [
            group for run in self._runs([w.place for w in writes]) for group in self._apart(run)
        ]
        known = {own.place for group in apart for own in group.calls}
        others = [self._kernels.alone(own) for own in (*fed, reader) if own.place not in known]
        least = sum(group.seconds for group in (*apart, *others))
        for feeding in ([*fed, *views], views) if fed else (views,):
            calls = _in_order(*feeding, *writes, reader)
            group = self._kernels.one(calls) if self._may_wait(calls) else None
            if group is not None and group.seconds < least:
                return group
        return None

    def _runs(self, places: Sequence[int]) -> Iterator[list[_Call]]:
        """Writes at some places, those together that stand behind each other before anything takes
        their results, and none of which takes what another one writes or makes."""
        run: list[_Call] = []
        for call in (self._calls[place] for place in places):
            is_behind = all(call.place < min(self._uses.get(own.var, [math.inf])) for own in run)
            if run and not (is_behind and all(_is_apart(call, other) for other in run)):
                yield run
                run = []
            run.append(call)
        if run:
            yield run

    def _apart(self, run: Sequence[_Call]) -> list[_Group]:
        """Writes without what reads them: each with what feeds it, or all as one."""
        alone = [self._fed([write]) or self._kernels.alone(write) for write in run]
        whole = self._fed(run) if len(run) > 1 else None
        is_faster = whole is not None and whole.seconds < sum(own.seconds for own in alone)
        return [whole] if whole is not None and is_faster else alone

    def _fed(self, writes: Sequence[_Call]) -> _Group | None:
        """Writes as one with what feeds them; ``None`` where no rule writes that."""
        fed = self._feeding(writes, (Kind.VIEW, Kind.SPATIAL))
        for feeding in (fed, []) if fed else ([],):
            calls = _in_order(*feeding, *writes)
            if len(calls) > 1 and self._may_wait(calls):
                group = self._kernels.one(calls)
                if group is not None:
                    return group
        return None

    def _feeding(self, calls: Sequence[_Call], kinds: Sequence[Kind]) -> list[_Call]:
        """Views that feed some calls, and others of some kinds that nothing else takes."""
        within, found = {own.place for own in calls}, dict[int, _Call]()
        left = [value for own in calls for value in own.taken]
        while left:
            made = self._makers.get(value) if isinstance(value := left.pop(), relax.Var) else None
            if made is None or made.place in (*within, *found) or made.home is not None:
                continue
            is_alone = within.issuperset(self._uses[value])
            kind = self._kernels.kind(made)
            if kind in kinds and (is_alone or kind is Kind.VIEW):
                found[made.place] = made
                within |= {made.place} if is_alone else set()
                left += made.taken
        return list(found.values())

    def _may_wait(self, calls: Sequence[_Call]) -> bool:
        """Whether all may be made where the last one is: nothing that they take is written over
        before, and nothing takes what they write behind their places."""
        gone = {own.place for own in calls}
        last = calls[-1]
        for own in calls:
            over = [v for at, v in self._over if own.place < at <= last.place and at not in gone]
            behind = [p for p in range(own.place + 1, last.place) if p not in gone]
            if not _variables(own.call).isdisjoint(over):
                return False
            ends = {own.home, own.var} if own.home is not None else set()
            if not all(ends.isdisjoint(self._variables[place]) for place in behind):
                return False
        homes = {own.home for own in calls if own.home is not None}
        return all(own.home is not None or homes.isdisjoint(own.taken) for own in calls)


def _as_blocks(func: tirx.PrimFunc, count: int) -> tirx.PrimFunc | None:
    """All that a function computes as the blocks that write, so many; ``None`` where that cannot
    be.

    What a block reads of the tensor that it writes is the element that the same thread writes:
    as :mod:`tvm_tile.frontend.torch.operators.rows_in_place` has it, schedules need not know.
    """
    sch, form = inlined(func, keep_producers=False)
    if form is None or form.producers or form.reductions or len(form.outputs) != count:
        return None

    def without_own(block: SBlock) -> SBlock:
        own = [region.source for region in block.writes]
        reads = [r for r in block.reads if not any(r.source.same_as(o) for o in own)]
        return replace_parts(block, reads=reads)

    whole = sch.mod["main"]
    body = tvm_ffi.structural_map(whole.body, [(SBlock, without_own)], order="post")
    written = tirx.PrimFunc(whole.params, body, whole.ret_type, func.attrs)
    return written.without_attr("global_symbol")


def _is_write(value: Any) -> bool:
    """Whether an expression is a call that writes one tensor in place, and makes nothing else."""
    if not is_in_place(value) or not isinstance(value.ty_args[0], relax.TensorType):
        return False
    homes = written_over(value)
    return len(value.ty_args) == len(homes) == 1 and homes[0] is not None


def _is_apart(later: _Call, earlier: _Call) -> bool:
    """Whether neither of two writes takes what the other one writes or makes."""
    mine, others = later.home, (earlier.var, earlier.home)
    return not _is_one_of(mine, earlier.taken) and not any(
        _is_one_of(own, later.taken) for own in others
    )


def _in_order(*calls: _Call) -> list[_Call]:
    """Calls in the order of the program, each once."""
    return [own for _, own in sorted({own.place: own for own in calls}.items())]


def _variables(value: Any) -> frozenset[Any]:
    """The variables of an expression."""
    return frozenset(relax.analysis.free_vars(value))


def _outer(calls: Sequence[_Call]) -> list[Any]:
    """The values that calls are given and do not make, each once."""
    return outer_values([(own.var, own.call) for own in calls])


def _is_one_of(value: Any, values: Sequence[Any]) -> bool:
    """Whether a value is one of several, by identity."""
    return any(value.same_as(known) for known in values)


def _number(value: Any, values: Sequence[Any]) -> int:
    """Place of a value among others, by identity."""
    return next(number for number, own in enumerate(values) if value.same_as(own))
