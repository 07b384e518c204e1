"""Groups of a dataflow block's calls become one call each, of a persistent kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.ir import GenericConst

from tvm_tile.kernel.assemble import Parameter
from tvm_tile.kernel.persistent import Bound, Counters, Lowering, make_persistent
from tvm_tile.passes.rewriter import size_of
from tvm_tile.passes.task_graph import Location, TaskGraph, TaskNode, identity
from tvm_tile.plan.execution_plan import ExecutionPlan, Group, ROperator
from tvm_tile.plan.workspace import allocate, lifetimes

_ALIGNMENT = 256  # bytes, of constants and of what lies in the workspace
_CONSTANTS = "constants"  # the tensor of all of them


@dataclass(frozen=True, slots=True)
class MergedCalls:
    """A group of calls as one call.

    Attributes:
        name: of the function.
        func: itself.
        nodes: which of the block's nodes it stands for.
        given: values that it reads.
        constants: what it reads besides.
        outputs: values that it makes for others.
        kinds: types of what it writes: these values and its workspace.
    """

    name: str
    func: tirx.PrimFunc
    nodes: frozenset[int]
    given: tuple[int, ...]
    constants: tuple[Any, ...]
    outputs: tuple[int, ...]
    kinds: tuple[Any, ...]


def merge(
    name: str,
    graph: TaskGraph,
    group: Group,
    operators: tuple[ROperator, ...],
    ways: Callable[[str], tuple[Lowering, ...]],
    counters: Counters,
) -> MergedCalls:
    """The persistent kernel of a group that has a plan.

    Args:
        name: for it.
        graph: of the block.
        group: numbers of nodes.
        operators: the nodes as they were planned.
        ways: to run a function, one a choice.
        counters: that it uses.
    """
    plan = group.plan
    assert plan is not None
    nodes = [graph.nodes[n] for n in group.operators]
    own = tuple(operators[n] for n in group.operators)
    made = [value for node in nodes for value in node.outputs]
    own_values, escaping = frozenset(made), _escaping(graph, frozenset(group.operators))
    given = tuple(dict.fromkeys(v for node in nodes for v in node.reads if v not in own_values))
    outputs = tuple(value for value in made if value in escaping)
    inner = [value for value in made if value not in escaping]
    packed, offsets = _pack(a for node in nodes for a in node.arguments)
    spaces, total = _workspace(inner, own, plan, [size_of(graph.kinds[v]) for v in inner])

    tensors: list[int | str] = [*given, *([] if packed is None else [_CONSTANTS]), *outputs]
    places: dict[int | str, tuple[int, int]] = {t: (n, 0) for n, t in enumerate(tensors)}
    last = len(places)
    places |= {value: (last, start) for value, start in zip(inner, spaces, strict=True)}
    bound = [
        Bound(ways(node.function), tuple(_bind(a, places, offsets) for a in _arguments(node)))
        for node in nodes
    ]
    inputs = [_parameter(f"in{n}", graph.kinds[value]) for n, value in enumerate(given)]
    inputs += [] if packed is None else [Parameter(_CONSTANTS, packed.shape, "uint8")]
    results = [_parameter(f"out{n}", graph.kinds[value]) for n, value in enumerate(outputs)]
    results.append(Parameter("workspace", (max(total, _ALIGNMENT),), "uint8"))
    kernel = make_persistent(name, own, plan, bound, tuple(inputs), tuple(results), counters)
    table = kernel.table
    constants = [] if packed is None else [packed]
    constants += [table.words.reshape(-1), table.queues]
    return MergedCalls(
        name,
        kernel.func,
        frozenset(group.operators),
        given,
        tuple(relax.const(array) for array in constants),
        outputs,
        tuple(relax.TensorType(p.shape, p.dtype) for p in results),
    )


def _arguments(node: TaskNode) -> tuple[Location | GenericConst, ...]:
    """The arguments of the node's function: what it is given, then what it writes."""
    return (*node.arguments, *(Location(value, 0) for value in node.outputs))


def _bind(
    argument: Location | GenericConst,
    places: Mapping[int | str, tuple[int, int]],
    offsets: Mapping[Any, int],
) -> tuple[int, int]:
    """The tensor of the persistent kernel in which an argument lies, and bytes from its start."""
    if isinstance(argument, Location):
        tensor, start = places[argument.value]
        return tensor, start + argument.offset
    return places[_CONSTANTS][0], offsets[identity(argument)]


def _parameter(name: str, kind: Any) -> Parameter:
    return Parameter(name, tuple(int(extent) for extent in kind.shape), str(kind.dtype))


def _escaping(graph: TaskGraph, group: frozenset[int]) -> frozenset[int]:
    """Values that are used by others than the group, views of them included.

    A view that only the group reads is not used: its readers know where the value is.
    """
    used = set(graph.used_later)
    for number, node in enumerate(graph.nodes):
        if number not in group:
            used |= set(node.reads)
    return frozenset(used)


def _pack(arguments: Any) -> tuple[Any, dict[Any, int]]:
    """All constants in one array, and where each begins; None where there are none."""
    offsets: dict[Any, int] = {}
    arrays: list[Any] = []
    end = 0
    for argument in arguments:
        if isinstance(argument, Location) or identity(argument) in offsets:
            continue
        data = np.ascontiguousarray(argument.value.numpy()).reshape(-1).view(np.uint8)
        offsets[identity(argument)] = end
        padding = -data.size % _ALIGNMENT
        arrays += [data, np.zeros(padding, np.uint8)]
        end += data.size + padding
    return (np.concatenate(arrays) if arrays else None), offsets


def _workspace(
    inner: Sequence[int],
    operators: tuple[ROperator, ...],
    plan: ExecutionPlan,
    sizes: Sequence[int],
) -> tuple[Sequence[int], int]:
    """The places of values that only the group uses, and the bytes of all."""
    lives = {life.value: life for life in lifetimes(operators, plan)}
    born = [lives[value].born for value in inner]
    dies = [lives[value].dies for value in inner]
    return allocate(sizes, born, dies, _ALIGNMENT)
