"""Put kernels that are too small to fill the device into persistent kernels (Rammer)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tvm_tile import compat
from tvm_tile.device.device import Device
from tvm_tile.errors import BuildError
from tvm_tile.kernel.body import Body, lower_body
from tvm_tile.kernel.persistent import Counters, Kernel
from tvm_tile.passes.merge_calls import merge
from tvm_tile.passes.reorder_calls import reordered
from tvm_tile.passes.task_graph import Node, Place, TaskGraph, read_block
from tvm_tile.plan.groups import partition
from tvm_tile.plan.execution_plan import Choice, ExecutionPlan, Group, ROperator
from tvm_tile.plan.records import count_counters
from tvm_tile.schedule.rule import Resident

_INEFFICIENCY = 1.5  # what a kernel keeps its multiprocessor busy, over the roofline
_USUAL_REGISTERS = 64  # of a thread, where nothing is known


@dataclass(frozen=True, slots=True)
class Variant:
    """One schedule of a function.

    Attributes:
        func: scheduled; memory between its kernels is a parameter.
        seconds: predicted, launches included.
        registers: of a thread, of each of its kernels; ``None`` where not known.
        resident: the same with weights that stay in shared memory, where the rule wrote it.
    """

    func: tirx.PrimFunc
    seconds: float
    registers: tuple[int | None, ...]
    resident: Resident | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a function.

    Attributes:
        variants: ranked; the first is the one that is launched where it stays apart.
        flops: floating-point operations.
        traffic: bytes that it reads and writes.
        slices: of each output, which contiguous part of which argument it is, where it only copies.
    """

    variants: tuple[Variant, ...]
    flops: float
    traffic: float
    slices: tuple[tuple[int, int] | None, ...] = ()


FactsOf = Callable[[str], Facts | None]
"""By the name of a function of the module; ``None`` for one that stays apart."""


@dataclass(frozen=True, slots=True)
class Coscheduled:
    """What became one kernel.

    Attributes:
        name: of the function.
        operators: what was planned.
        plan: for them.
        apart_seconds: predicted, as launches of their own.
    """

    name: str
    operators: tuple[ROperator, ...]
    plan: ExecutionPlan
    apart_seconds: float


@tvm.transform.module_pass(opt_level=0, name="CoscheduleTasks")
class CoscheduleTasks:
    """Many kernels become the rTasks of a persistent one, where the model predicts less time.

    before: ``a = call_tir(f, (x,)); b = call_tir(g, (x,)); c = call_tir(h, (a, b))``
    after:  ``t = call_tir(coscheduled, (x, constants, records, queues)); c = t[0]``

    Only calls within a dataflow block, which have no side effects, are moved; none is moved over
    anything that it depends on. Values that nothing else reads lie in a workspace that belongs to
    the kernel: memory planning gives it a place like any other tensor.

    Args:
        device: that the kernels are for.
        facts: about the functions of the module.
        record: is given each persistent kernel.
        refused: names of persistent kernels that must not be (they did not build, say); their
            functions stay apart.
    """

    def __init__(
        self,
        device: Device,
        facts: FactsOf,
        record: Callable[[Coscheduled], None] | None = None,
        refused: frozenset[str] = frozenset(),
    ) -> None:
        self._device = device
        self._facts = facts
        self._record = record or (lambda _: None)
        self._refused = refused

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        if not self._device.supports_grid_barrier:
            return mod
        result = mod.clone()
        functions = _Functions(self._facts, self._device)
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function) and isinstance(func.body, relax.SeqExpr):
                blocks = [self._rewritten(b, functions, result) for b in func.body.blocks]
                body = relax.SeqExpr(blocks, func.body.body)
                result[var] = relax.Function(
                    func.params, body, func.ret_ty, func.is_pure, func.attrs
                )
        return result

    def _rewritten(self, block: Any, functions: _Functions, result: tvm.IRModule) -> Any:
        """A block with its groups merged; their kernels go to ``result``."""
        if not isinstance(block, relax.DataflowBlock):
            return block
        graph = read_block(block, functions.slices)
        operators = tuple(functions.operator(node, graph) for node in graph.nodes)
        allowed = tuple(bool(operator.choices) for operator in operators)
        taken = []
        for group in partition(operators, self._device, allowed):
            name = f"coscheduled_{_digest(graph, group)}"
            if group.plan is not None and name not in self._refused:
                own = tuple(operators[n] for n in group.operators)
                taken.append((group, Coscheduled(name, own, group.plan, group.apart_seconds)))
        if not taken:
            return block
        counts = [count_counters(made.operators, made.plan) for _, made in taken]
        firsts = accumulate(counts, initial=0)
        merged = [
            merge(m.name, graph, group, operators, functions.kernels, Counters(first, sum(counts)))
            for (group, m), first in zip(taken, firsts, strict=False)
        ]
        for _, made in taken:
            self._record(made)
        return reordered(block, graph, merged, sum(counts), result)


class _Functions:
    """What there is to know about each PrimFunc of a module, found out once."""

    def __init__(self, facts: FactsOf, device: Device) -> None:
        self._device = device
        self._facts = facts
        self._known: dict[str, tuple[tuple[Kernel, ...], tuple[Choice, ...], float]] = {}
        self._bodies: dict[Any, int] = {}

    def slices(self, name: str) -> tuple[tuple[int, int] | None, ...]:
        """Of each output of a function, which contiguous part of an argument it is."""
        facts = self._facts(name)
        return () if facts is None else facts.slices

    def operator(self, node: Node, graph: TaskGraph) -> ROperator:
        """A node as it is planned; without choices, if it must stay apart."""
        name = node.function or str(node.binding.var.name)
        if node.function and node.function not in self._known:
            self._known[node.function] = self._find(node.function)
        kernels, choices, seconds = self._known.get(node.function, ((), (), 0.0))
        body = self._bodies.setdefault(name, len(self._bodies))
        weights = None
        if any(kernel.load is not None for kernel in kernels):
            places = next(k.load_arguments for k in kernels if k.load is not None)
            weights = self._bodies.setdefault(
                (name, *(_identity(node.arguments[n]) for n in places)), len(self._bodies)
            )
        return ROperator(name, choices, node.reads, node.outputs, seconds, weights, body)

    def kernels(self, name: str) -> tuple[Kernel, ...]:
        """Those of a function, one a choice."""
        return self._known[name][0]

    def _find(self, name: str) -> tuple[tuple[Kernel, ...], tuple[Choice, ...], float]:
        facts = self._facts(name)
        if facts is None or not facts.variants:
            return (), (), 0.0
        ways = [way for v in facts.variants for way in _ways(v, facts, self._device)]
        kernels, choices = (tuple(each) for each in zip(*ways, strict=True)) if ways else ((), ())
        return kernels, choices, facts.variants[0].seconds


def _ways(variant: Variant, facts: Facts, device: Device) -> list[tuple[Kernel, Choice]]:
    """A schedule as something that a vEU can run, without and with its weights in place."""
    try:
        body = lower_body(variant.func, device)
    except (BuildError, *compat.TVM_ERRORS):
        return []
    places = tuple(range(len(variant.func.params)))
    ways = [(Kernel(body, places), _choice(body, variant, facts, device))]
    resident = variant.resident
    if resident is not None:
        run, load = lower_body(resident.run, device), lower_body(resident.load, device)
        names = [str(p.name) for p in variant.func.params]
        given = [
            tuple(names.index(str(p.name)) for p in f.params) for f in (resident.run, resident.load)
        ]
        kernel = Kernel(run, given[0], load, given[1])
        ways.append((kernel, _choice(run, variant, facts, device)))
    return ways


def _choice(body: Body, variant: Variant, facts: Facts, device: Device) -> Choice:
    """What a block of a kernel takes of a multiprocessor."""
    processors = device.multi_processor_count
    work = max(facts.flops / device.flops("float32"), facts.traffic / device.l2_bandwidth)
    busy = work * _INEFFICIENCY * processors / body.blocks
    (registers,) = variant.registers or (None,)
    registers = registers or _USUAL_REGISTERS
    warps = device.max_threads_per_multi_processor // device.warp_size
    fits = min(
        warps // -(-body.threads // device.warp_size),
        device.registers_per_multi_processor // (registers * body.threads),
        device.shared_memory_per_multi_processor // max(1, body.scratch_bytes),
    )
    own = -(-body.blocks // processors)
    turns = -(-own // max(1, fits))
    seconds = max(variant.seconds - device.launch_latency, busy) / turns
    return Choice(
        body.blocks,
        body.threads,
        body.scratch_bytes,
        registers,
        seconds,
        busy,
        body.resident_bytes,
        body.waits,
    )


def _identity(argument: Any) -> Any:
    """What constants are known by: equal for those that lie in the same memory."""
    if isinstance(argument, Place):
        return argument
    return np.from_dlpack(argument.value).ctypes.data, str(argument.ty)


def _digest(graph: TaskGraph, group: Group) -> str:
    """A name for what a group computes and how, the same in the next compilation."""
    names = [graph.nodes[number].function for number in group.operators]
    return hashlib.sha256(repr((group.operators, names, group.plan)).encode()).hexdigest()[:16]
