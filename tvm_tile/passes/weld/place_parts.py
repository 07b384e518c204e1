"""Parts of a tensor are written where they belong by the kernels that make them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, sym, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.s_tir import SBlock, SBlockRealize

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.expression import number_in, substituted, with_simple_indices
from tvm_tile.graph.extract import extract_operator, is_choice, loads_in, nodes_in
from tvm_tile.passes.scheduling.first_choices import FirstChoices
from tvm_tile.passes.state.separate_in_place import SeparateInPlace
from tvm_tile.passes.weld.fuse_tiles import (
    JoinedCalls,
    Predict,
    Record,
    TirCall,
    overwritten,
    reckoned,
    sites_of,
    with_outputs,
)
from tvm_tile.passes.weld.kinds import kind_of
from tvm_tile.passes.weld.one_function import nest_function
from tvm_tile.schedule.s_tir.normalize import inlined
from tvm_tile.schedule.s_tir.steps import element, loop
from tvm_tile.tile.weld.call_graph import Kind
from tvm_tile.tile.weld.connect import Decision


@tvm.transform.module_pass(opt_level=0, name="PlaceParts")
@dataclass(frozen=True, slots=True)
class PlaceParts:
    """Take functions apart that make parts of a tensor of different ones, such as concatenations.

    before: ``a = call_tir(attention, (q, k, v)); h = call_tir(product, (x, w))``
            ``y = call_tir(concatenate_gelu, (a, h))``
    after:  ``y0 = call_tir(attention_placed, (q, k, v))``, which writes a part of ``y0``
            ``y = call_tir_inplace(product_gelu_placed, (x, w, y0), [2])``, which writes the rest

    What makes a part and is taken by nothing else becomes one kernel with what is to be made of it,
    as :class:`~tvm_tile.passes.FuseTiles` has it; other parts are element-wise kernels. Whether
    that takes less time the model says. The parts are disjoint and cover the tensor, which the
    first call makes: so it is whole behind the last one.

    Args:
        device: the device that the kernels are made for.
        record: called with the decision on each part that became one kernel with its maker.
        predict: scheduler of functions, shared with whoever schedules them afterwards.
        refused: why functions must not be made of others, by their contents.
    """

    device: Device
    record: Record | None = None
    predict: Predict | None = None
    refused: Mapping[Any, str] | None = None

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        predict = self.predict or FirstChoices(self.device)
        changed = False
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                placing = _PartFinder(mod, predict, self.refused or {})
                placed = placing.found(func)
                if placed:
                    mod, changed = _PartCalling(placing.mod, placed).rewritten(var), True
                if self.record:
                    for decision in placing.decisions:
                        self.record(decision)
        # What makes parts is computed with these; views that it takes, others may take, too.
        passes = [relax.transform.DeadCodeElimination(), SeparateInPlace()]
        return tvm.transform.Sequential(passes)(mod) if changed else mod


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a function's output as a function of its own.

    Attributes:
        func: the function, whose last parameter is the whole output.
        taken: places, among the whole function's parameters, of those that it reads.
        is_aligned: whether its rows lie at multiples of what a thread stores at once, as those of a
            tensor of their own do.
    """

    func: tirx.PrimFunc
    taken: tuple[int, ...]
    is_aligned: bool


class _PartFinder:
    """Finds calls of one module whose parts are better written where they belong.

    Attributes:
        mod: the module, with functions of parts.
        decisions: on parts that became one kernel with what makes them.
    """

    def __init__(self, mod: tvm.IRModule, predict: Predict, refused: Mapping[Any, str]) -> None:
        self.mod = mod.clone()
        self.decisions: list[Decision] = []
        self._predict, self._refused = predict, refused
        self._parts: dict[Any, list[tuple[Any, _Part]]] = {}

    def found(self, func: relax.Function) -> dict[Any, list[JoinedCalls]]:
        """The calls that write the parts of a call's value, by its variable."""
        sites, others = sites_of(func)
        makers = {site.var: site for site in sites}
        taken = [a for site in sites for a in site.args if isinstance(a, relax.Var)]
        uses = Counter([*taken, *others])
        over = overwritten(func)
        placed: dict[Any, list[JoinedCalls]] = {}
        for site in sites:
            near = {
                var: maker
                for var, maker in makers.items()
                if maker.block == site.block
                and not any(maker.place < at < site.place for at, _ in over)
            }
            own = {var: near[var] for var in site.args if var in near and uses[var] == 1}
            writes = self._writes(site, own, near) if own else []
            if writes:
                placed[site.var] = writes
        return placed

    def _writes(
        self, site: TirCall, own: Mapping[Any, TirCall], near: Mapping[Any, TirCall]
    ) -> list[JoinedCalls]:
        """The calls that write the parts of a call's value; none where that takes more time.

        Args:
            site: the call.
            own: calls whose values only it takes.
            near: all calls that may be where it is.
        """
        parts = self._parts_of(site.func)
        whole = self._predict(self.mod[site.func], None) if parts else None
        if whole is None:
            return []
        left, decisions, calls = whole.seconds, list[Decision](), list[JoinedCalls]()
        for var, part in parts:
            args = tuple(site.args[number] for number in part.taken)
            call = relax.call_tir(var, list(args), site.kind)
            made = relax.Var("part", site.kind)
            last = TirCall(made, call, var, args, site.kind, site.place, site.block)
            alone = self._predict(part.func, None)
            if alone is None:
                return []
            group, decision = self._grown(last, own if part.is_aligned else {}, near)
            left -= alone.seconds - (decision.gain or 0.0 if decision else 0.0)
            calls.append(group)
            decisions += [decision] if decision else []
        if left <= 0 or not decisions:  # else the same copies, by more kernels
            return []
        self.decisions += decisions
        return calls

    def _grown(
        self, last: TirCall, own: Mapping[Any, TirCall], near: Mapping[Any, TirCall]
    ) -> tuple[JoinedCalls, Decision | None]:
        """A part with what makes it, and with views that feed both, as far as that saves time."""
        best, found = JoinedCalls([last], []), None
        waiting = [own[var] for var in last.args if var in own]
        while waiting:
            members = sorted([waiting.pop(), *best.members], key=lambda site: site.place)
            group = JoinedCalls(members, [])
            kinds = [kind_of(self.mod[site.func]) for site in members[:-1]]
            decision = reckoned(
                self.mod, group, [*kinds, Kind.SPATIAL], self._predict, self._refused
            )
            if decision.gain is None or decision.gain <= (found.gain or 0.0 if found else 0.0):
                continue
            best, found = group, decision
            views = (near[value] for value in group.outer if value in near)
            waiting += [view for view in views if kind_of(self.mod[view.func]) is Kind.VIEW]
        return best, found

    def _parts_of(self, func: Any) -> list[tuple[Any, _Part]]:
        """The parts of a function's output, each with its function's variable in the module."""
        if func not in self._parts:
            found = []
            for number, part in enumerate(parts_of(self.mod[func])):
                var = tvm.ir.GlobalVar(f"{func.name_hint}_part{number}")
                relax.expr._update_type(var, part.func.ty)
                self.mod[var] = part.func
                found.append((var, part))
            self._parts[func] = found
        return self._parts[func]


@mutator
class _PartCalling(PyExprMutator):
    """Calls what writes parts in the place of what makes the whole."""

    def __init__(self, mod: tvm.IRModule, placed: Mapping[Any, Sequence[JoinedCalls]]) -> None:
        super().__init__(mod)
        self._mod, self._placed = mod, placed

    def rewritten(self, var: Any) -> tvm.IRModule:
        """The module with the function at ``var`` rewritten."""
        self.builder_.update_func(var, with_outputs(self.visit_expr(self._mod[var])))
        return self.builder_.get()

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var not in self._placed:
            super().visit_var_binding_(binding)
            return
        value: Any = None
        for group in self._placed[binding.var]:
            if value is not None:
                value = self.builder_.emit(value)
            value = self._written(group, value)
        self.set_var_remap(binding.var, self.builder_.emit(value))

    def _written(self, group: JoinedCalls, whole: Any) -> relax.Call:
        """The call that writes a part; ``whole`` has those that are written."""
        args = [self.visit_expr(value) for value in group.outer]
        var, kind = group.members[-1].func, group.members[-1].kind
        if len(group.members) > 1:
            var = self.builder_.add_func(group.func(self._mod), group.name)
        if whole is None:
            return relax.call_tir(var, args, kind)
        return relax.call_tir_inplace(var, [*args, whole], [len(args)], kind)


def parts_of(func: tirx.PrimFunc) -> tuple[_Part, ...]:
    """The parts of an element-wise function's output that are made of different tensors, along one
    axis; none where there are not several."""
    if kind_of(func) not in (Kind.SPATIAL, Kind.VIEW):
        return ()
    sch, form = inlined(func, keep_producers=False)
    if form is None or form.producers or len(form.outputs) != 1:
        return ()
    block = sch.get(sch.get_sblock(form.outputs[0]))
    ends = _ends(block)
    if len({axis for axis, _ in ends}) != 1:
        return ()
    axis = ends[0][0]
    extent = int(block.iter_vars[axis].dom.extent)
    bounds = [0, *sorted({at for _, at in ends if 0 < at < extent}), extent]
    if len(bounds) == 2:
        return ()
    return tuple(_part(sch.mod["main"], block, axis, own) for own in pairwise(bounds))


def _ends(block: SBlock) -> list[tuple[int, int]]:
    """Where choices between tensors change along an axis: the axis's number, and the place."""
    found = []
    variables = [v.var for v in block.iter_vars]
    for choice in filter(is_choice, nodes_in(block.body.value, ir.Call)):
        test, *values = choice.args
        first, second = ({load.source for load in loads_in(value)} for value in values)
        is_between_tensors = bool(first and second) and first.isdisjoint(second)
        if not (is_between_tensors and isinstance(test, tirx.LT | tirx.LE | tirx.GT | tirx.GE)):
            continue
        for own, other, is_second in ((test.a, test.b, False), (test.b, test.a, True)):
            number = number_in(other)
            axis = next((n for n, var in enumerate(variables) if own.same_as(var)), None)
            if axis is not None and number is not None:
                # ``v < n``, ``v >= n``, ``n <= v`` and ``n > v`` change at n, others behind it.
                is_at = isinstance(test, tirx.LT | tirx.GE) != is_second
                found.append((axis, int(number) + (not is_at)))
    return found


def _part(whole: tirx.PrimFunc, block: SBlock, axis: int, bounds: tuple[int, int]) -> _Part:
    """A part of what a function's only block makes, between two places along an axis."""
    (first, end), params = bounds, list(whole.params)
    iters = list(block.iter_vars)
    own = iters[axis]
    dtype = str(own.var.ty.dtype)
    ranges = sym.Analyzer()
    for number, v in enumerate(iters):
        within = ir.Range(tirx.const(first, dtype), tirx.const(end, dtype))
        ranges.bind(v.var, within if number == axis else v.dom)

    def resolved(expr: Any) -> Any:
        return tvm_ffi.structural_map(expr, ((ir.Call, chosen),), order="pre")

    def chosen(node: Any) -> Any:
        test = ranges.simplify(node.args[0]) if is_choice(node) else None
        return (
            resolved(node.args[1 if test.value else 2]) if isinstance(test, tirx.IntImm) else node
        )

    value = resolved(block.body.value)
    variables = [tirx.Var(str(v.var.name), v.var.ty) for v in iters]
    shifted = {v.var: new for v, new in zip(iters, variables, strict=True)}
    shifted[own.var] = variables[axis] + tirx.const(first, dtype)
    extents = [int(v.dom.extent) for v in iters]
    extents[axis] = end - first
    inner = sym.Analyzer()
    domains = [ir.Range(tirx.const(0, dtype), tirx.const(n, dtype)) for n in extents]
    for var, domain in zip(variables, domains, strict=True):
        inner.bind(var, domain)
    value = with_simple_indices(substituted(value, shifted), inner)
    indices = [inner.simplify(substituted(index, shifted)) for index in block.body.indices]
    store = tirx.BufferStore(block.body.buffer, value, indices)
    read = [load.source for load in loads_in(value)]
    taken = tuple(n for n, p in enumerate(params[:-1]) if any(p.same_as(own) for own in read))
    regions = [element(load.source, load.indices) for load in loads_in(value)]
    written = element(block.body.buffer, indices)
    axes = [
        tirx.IterVar(domain, var, tirx.IterVar.DataPar)
        for domain, var in zip(domains, variables, strict=True)
    ]
    inside = SBlock(axes, regions, [written], str(block.name_hint), store, None, [])
    loops = [tirx.Var(f"i{n}", var.ty) for n, var in enumerate(variables)]
    body: Any = SBlockRealize(loops, True, inside)
    for var, count in reversed(list(zip(loops, extents, strict=True))):
        body = loop(var, count, tirx.ForKind.SERIAL, body)
    func = nest_function([*(params[n] for n in taken), params[-1]], body, whole.attrs)
    return _Part(func, taken, _is_aligned(inside))


def _is_aligned(block: SBlock) -> bool:
    """Whether rows of what a block writes begin at multiples of the widest vector."""
    operator = extract_operator(block)
    if operator is None or not operator.write.is_exact:
        return False
    write = operator.write
    places = zip(write.indices, write.tensor.strides, strict=True)
    first = sum(index.offset * stride for index, stride in places)
    wide = VECTOR_BYTES // write.tensor.element_size
    steps = (write.strides.get(name, 0) for name in operator.long_axes)
    return first % wide == 0 and all(step == 1 or step % wide == 0 for step in steps)
