"""Put kernels that are too small to fill the device into persistent kernels (Rammer)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import tvm
from tvm import relax

from tvm_tile import compat
from tvm_tile.build.early.dependent_launches import step_seconds
from tvm_tile.device.device import Device
from tvm_tile.errors import BuildError
from tvm_tile.kernel.persistent import Counters, Lowering
from tvm_tile.passes.coschedule.merge_calls import merge
from tvm_tile.passes.coschedule.reorder_calls import reordered
from tvm_tile.passes.coschedule.task_graph import TaskGraph, TaskNode, identity, read_block
from tvm_tile.passes.scheduling.schedule_tiles import PREDICTED
from tvm_tile.plan.check_plan import check
from tvm_tile.plan.choices import Launch, make_choice, with_weights_in_place
from tvm_tile.plan.execution_plan import ExecutionPlan, Group, RKernel, ROperator, aligned
from tvm_tile.plan.groups import partition
from tvm_tile.plan.rprogram import RProgram
from tvm_tile.plan.waits import count_counters
from tvm_tile.schedule.rule import Scheduled
from tvm_tile.tile.rules import rule_named

_HALVES = ("float16", "bfloat16")
# Elements whose kernels are no rTasks: what they take inside a persistent kernel is not known.
_NARROW = "float8"
# What lowering raises for a kernel that cannot be part of another.
UNFIT: tuple[type[Exception], ...] = (BuildError, *compat.TVM_ERRORS)


@dataclass(frozen=True, slots=True)
class Variant:
    """One schedule of a function that is one kernel.

    Attributes:
        scheduled: schedule that the rule wrote, memory between its kernels lifted.
        seconds: predicted amid a model, launch included.
        registers: registers of a thread; ``None`` where not known.
        is_for_loops: whether it was made to be rTasks, if its rule's kernels are usually none.
    """

    scheduled: Scheduled
    seconds: float
    registers: int | None
    is_for_loops: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a function that co-scheduling needs.

    Attributes:
        variants: ranked; the first is the one that is launched where it stays apart, if that is
            one kernel. None, where its time is not known.
        flops: floating-point operations.
        traffic: bytes that it reads and writes.
        slices: for each output, the contiguous part of an argument that it is, where it only
            copies.
        seconds: predicted amid a model, of what is launched where it stays apart.
    """

    variants: tuple[Variant, ...]
    flops: float
    traffic: float
    slices: tuple[tuple[int, int] | None, ...]
    seconds: float


FactsOf = Callable[[str], Facts | None]
"""By the name of a function of the module; ``None`` for one that stays apart."""


@dataclass(frozen=True, slots=True)
class Coscheduled:
    """A group of kernels that became one.

    Attributes:
        name: name of the function.
        operators: the operators that were planned.
        plan: their plan.
        apart_seconds: predicted, as launches of their own.
        program: program of loops, branches and calls that they are in; None for a straight line.
    """

    name: str
    operators: tuple[ROperator, ...]
    plan: ExecutionPlan
    apart_seconds: float
    program: RProgram | None = None


@dataclass(frozen=True, slots=True)
class Apart:
    """A call that stays a launch of its own.

    Attributes:
        function: function that it calls.
        reason: why.
    """

    function: str
    reason: str


def is_known_inside(scheduled: Scheduled, device: Device) -> bool:
    """Whether such kernels were measured as parts of persistent ones; all others stay apart."""
    return scheduled.rule.is_task and has_known_types(scheduled, device)


def has_known_types(scheduled: Scheduled, device: Device) -> bool:
    """Whether kernels of its types were measured as parts of persistent ones."""
    dtypes = {str(param.ty.dtype) for param in scheduled.func.params}
    if dtypes & set(_HALVES) and not device.times.persistent.half_precision_pays:
        return False
    return not any(dtype.startswith(_NARROW) for dtype in dtypes)


@tvm.transform.module_pass(opt_level=0, name="CoscheduleTasks")
@dataclass(frozen=True, slots=True)
class CoscheduleTasks:
    """Many kernels become the rTasks of a persistent one, where the model predicts less time.

    before: ``a = call_tir(f, (x,)); b = call_tir(g, (x,)); c = call_tir(h, (a, b))``
    after:  ``t = call_tir(coscheduled, (x, constants, records, queues)); c = t[0]``

    Only calls within a dataflow block, which have no side effects, are moved; none is moved over
    anything that it depends on. Values that nothing else reads lie in a workspace that belongs to
    the kernel: memory planning gives it a place like any other tensor.

    Args:
        device: the device that the kernels are made for.
        facts: about the functions of the module; by default what ScheduleTiles has left in their
            attributes, with registers unknown. Workspaces must be lifted (LiftWorkspaces).
        record: called with each persistent kernel.
        refused: name of a persistent kernel that must not be -> why (it did not build, say); its
            functions stay apart.
        left: called with each call that stays apart.
    """

    device: Device
    facts: FactsOf | None = None
    record: Callable[[Coscheduled], None] | None = None
    refused: Mapping[str, str] | None = None
    left: Callable[[Apart], None] | None = None

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        if not self.device.supports_grid_barrier:
            return mod
        result = mod.clone()
        facts = self.facts or (lambda name: _predicted(mod[name]))
        functions = TaskFunctions(facts, self.device)
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function) and isinstance(func.body, relax.SeqExpr):
                blocks = [
                    self._rewritten(block, f"{var.name_hint}.{number}", functions, result)
                    for number, block in enumerate(func.body.blocks)
                ]
                body = relax.SeqExpr(blocks, func.body.body)
                relax.expr._update_type(body, func.body.ty)
                result[var] = relax.Function(
                    func.params, body, func.ret_ty, func.is_pure, func.attrs
                )
        return result

    def _rewritten(
        self, block: Any, place: str, functions: TaskFunctions, result: tvm.IRModule
    ) -> Any:
        """The block at ``place`` with its groups merged; their kernels go to ``result``.

        Raises:
            PlanError: a group's plan would not run rightly.
        """
        if not isinstance(block, relax.DataflowBlock):
            return block
        graph = read_block(block, functions.slices)
        operators = tuple(functions.operator(node) for node in graph.nodes)
        allowed = tuple(bool(operator.choices) for operator in operators)
        refused = self.refused or {}
        taken = []
        for group in partition(operators, self.device, allowed):
            name = f"coscheduled_{_digest(place, graph, group)}"
            if group.plan is None or name in refused:
                self._leave(group, graph, refused.get(name, group.reason))
            else:
                own = tuple(operators[n] for n in group.operators)
                check(own, group.plan, self.device)
                taken.append((group, Coscheduled(name, own, group.plan, group.apart_seconds)))
        if not taken:
            return block
        counts = [count_counters(made.operators, made.plan) for _, made in taken]
        firsts = accumulate(counts, initial=0)
        merged = []
        for (group, made), first in zip(taken, firsts, strict=False):
            counters = Counters(first, sum(counts))
            try:
                merged.append(merge(made.name, graph, group, operators, functions.ways, counters))
                if self.record:
                    self.record(made)
            except UNFIT as error:
                self._leave(group, graph, f"its persistent kernel cannot be written: {error}")
        return reordered(block, graph, merged, sum(counts), result) if merged else block

    def _leave(self, group: Group, graph: TaskGraph, reason: str) -> None:
        """Tell of the calls of a group; what else it has is no kernel."""
        for number in group.operators:
            if self.left and (function := graph.nodes[number].function):
                self.left(Apart(function, reason))


def _predicted(func: Any) -> Facts | None:
    """The facts that ScheduleTiles has left with a function, if a rule of ours scheduled it."""
    found = (func.attrs or {}).get(PREDICTED)
    rule = None if found is None else rule_named(str(found["rule"]))
    if found is None or rule is None:
        return None
    seconds = float(found["seconds"])
    size = int(found["grid"]), int(found["block"])
    scheduled = Scheduled(func, rule, str(found["tile"]), *size, seconds)
    variant = Variant(scheduled, seconds, None)
    traffic = float(found["traffic"])
    return Facts((variant,), float(found["flops"]), traffic, (), variant.seconds)


class TaskFunctions:
    """Knows each PrimFunc of a module; what it is asked for is found out once.

    Args:
        facts: about the functions.
        device: the device that they are made for.
        are_amid_flow: whether they are to be parts of kernels with loops and branches.
    """

    def __init__(self, facts: FactsOf, device: Device, *, are_amid_flow: bool = False) -> None:
        self._device = device
        self._are_amid_flow = are_amid_flow
        self._facts = facts
        self._known: dict[str, tuple[tuple[Lowering, ...], tuple[RKernel, ...], float]] = {}
        self._numbers: dict[Any, int] = {}  # of bodies and of weights

    def slices(self, name: str) -> tuple[tuple[int, int] | None, ...]:
        """For each output of a function, the contiguous part of an argument that it is, if any."""
        facts = self._facts(name)
        return () if facts is None else facts.slices

    def operator(self, node: TaskNode) -> ROperator:
        """A node as a rOperator; without choices, if it must stay apart."""
        name = node.function or str(node.binding.var.name)
        if node.function and node.function not in self._known:
            self._known[node.function] = self._find(node)
        ways, choices, seconds = self._known.get(node.function, ((), (), 0.0))
        body = self._numbers.setdefault(name, len(self._numbers))
        weights = None
        kept = next((way.kept for way in ways if way.kept), ())
        if kept:
            key = (name, *(identity(node.arguments[n]) for n in kept))
            weights = self._numbers.setdefault(key, len(self._numbers))
        own = (node.reads, node.outputs, seconds, weights, body)
        return ROperator(name, choices, *own, self._constants(node) if choices else ())

    def ways(self, name: str) -> tuple[Lowering, ...]:
        """How to lower each of a function's choices."""
        return self._known[name][0]

    def _constants(self, node: TaskNode) -> tuple[int, ...]:
        """Bytes of the weights that a node reads; none of a table of which it takes some rows."""
        facts, sizes = self._facts(node.function), tuple(node.weights.values())
        return sizes if facts is not None and sum(sizes) <= facts.traffic else ()

    def _is_known(self, variant: Variant) -> bool:
        """Whether a schedule's kernel can be rTasks, of types that were measured so."""
        is_task = variant.is_for_loops or variant.scheduled.rule.is_task
        return is_task and has_known_types(variant.scheduled, self._device)

    def _find(self, node: TaskNode) -> tuple[tuple[Lowering, ...], tuple[RKernel, ...], float]:
        """Ways to run a node's kernel, their choices, and its seconds as a launch of its own."""
        facts = self._facts(node.function)
        variants = tuple(filter(self._is_known, facts.variants)) if facts else ()
        if facts is None or not variants:
            return (), (), 0.0
        of = sum(self._constants(node)), self._are_amid_flow
        found = [pair for v in variants for pair in _ways(v, facts, *of, self._device)]
        ways, choices = tuple(way for way, _ in found), tuple(choice for _, choice in found)
        # What it would take where kernels start early, if it is one of those.
        early = step_seconds(facts.variants[0].scheduled.func)
        return ways, choices, max(0.0, facts.seconds - early)


def _ways(
    variant: Variant, facts: Facts, weights: int, is_amid_flow: bool, device: Device
) -> list[tuple[Lowering, RKernel]]:
    """A schedule as something that a vEU can run, without and with its weights in place.

    Args:
        variant: the schedule.
        facts: about its function.
        weights: bytes of the constants that the function reads.
        is_amid_flow: whether it is to be part of a kernel with loops and branches.
        device: the device that it is made for.
    """
    scheduled = variant.scheduled
    way = Lowering(device, scheduled.func, tuple(range(len(scheduled.func.params))))
    if variant is facts.variants[0] or not scheduled.rule.has_fewer_blocks:
        # Rules that write several for this predict well what they take.
        try:
            body = way.lowered().body
        except UNFIT:
            return []
        shared, waits = body.scratch_bytes, body.waits
    else:
        shared, waits = aligned(scheduled.shared_bytes), True
    launch = Launch(
        scheduled.rule,
        scheduled.grid,
        scheduled.block,
        shared,
        variant.registers,
        variant.seconds,
        facts.flops,
        facts.traffic,
        weights,
        is_amid_flow,
    )
    plain = make_choice(launch, device, barriers=waits)
    resident = scheduled.resident
    if resident is None:
        return [(way, plain)]
    names = [str(p.name) for p in scheduled.func.params]
    run, kept = (
        tuple(names.index(str(p.name)) for p in f.params) for f in (resident.run, resident.load)
    )
    held = with_weights_in_place(plain, resident.bytes, facts.flops, device)
    return [(way, plain), (Lowering(device, resident.run, run, resident.load, kept), held)]


def _digest(place: str, graph: TaskGraph, group: Group) -> str:
    """A name for what a group of a block computes and how, the same in the next compilation."""
    names = [graph.nodes[number].function for number in group.operators]
    return hashlib.sha256(repr((place, group.operators, names, group.plan)).encode()).hexdigest()[
        :16
    ]
