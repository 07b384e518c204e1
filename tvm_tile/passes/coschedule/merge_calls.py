"""Groups of a dataflow block's calls become one call each, of a persistent kernel."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.ir import GenericConst

from tvm_tile.errors import BuildError
from tvm_tile.graph.constant_tensors import elements_of
from tvm_tile.kernel.dispatch import Parameter
from tvm_tile.kernel.persistent import Bound, Counters, Lowering, make_persistent
from tvm_tile.passes.coschedule.task_graph import Location, TaskGraph, TaskNode, identity
from tvm_tile.passes.ir.rewriter import size_of
from tvm_tile.plan.check_plan import check_extents
from tvm_tile.plan.execution_plan import ExecutionPlan, Group, ROperator
from tvm_tile.plan.workspace import Extent, allocate, lifetimes

ALIGNMENT = 256  # bytes, of constants and of what lies in the workspace
_CONSTANTS = "constants"  # the tensor of those that lie in one
# Bytes of a constant that is a tensor of its own, the very one that the model has: smaller ones are
# copied behind one another, so that the kernel has few parameters.
_LARGE = 1 << 20
_MOST_TENSORS = 500  # pointers are eight bytes, and parameters of a kernel 4 KiB together


@dataclass(frozen=True, slots=True)
class MergedCalls:
    """A group of calls as one call.

    Attributes:
        name: name of the function.
        func: itself.
        nodes: numbers of the block's nodes that it stands for.
        given: values that it reads.
        constants: constants that it reads besides.
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
        name: name of the kernel.
        graph: graph of the block.
        group: numbers of nodes.
        operators: the nodes as they were planned.
        ways: function that gives the ways to run a function, one a choice.
        counters: counters that it uses.

    Raises:
        PlanError: two values that are needed at once lie in one place.
        BuildError: the group has too many tensors, or a kernel that cannot be part of another.
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
    constants = Constants.of(a for node in nodes for a in node.arguments)
    spaces, total = _workspace(inner, own, plan, [size_of(graph.kinds[v]) for v in inner])
    check_extents(own, plan, spaces)

    inputs = [parameter(f"in{n}", graph.kinds[value]) for n, value in enumerate(given)]
    inputs += constants.parameters
    first, last = len(given), len(inputs) + len(outputs)
    check_count(last + 1)
    places = {value: (number, 0) for number, value in enumerate(given)}
    places |= {value: (len(inputs) + number, 0) for number, value in enumerate(outputs)}
    places |= {space.value: (last, space.offset) for space in spaces}
    arguments = ([bind(a, places, constants, first) for a in arguments_of(node)] for node in nodes)
    bound = [
        Bound(ways(node.function), tuple(to), tuple(node.weights)[: len(one.constants)])
        for node, one, to in zip(nodes, own, arguments, strict=True)
    ]
    results = [parameter(f"out{n}", graph.kinds[value]) for n, value in enumerate(outputs)]
    results.append(Parameter("workspace", (max(total, ALIGNMENT),), "uint8"))
    kernel = make_persistent(name, own, plan, bound, tuple(inputs), tuple(results), counters)
    arrays = kernel.table.words.reshape(-1), kernel.table.queues
    return MergedCalls(
        name,
        kernel.func,
        frozenset(group.operators),
        given,
        (*constants.tensors, *map(relax.const, arrays)),
        outputs,
        tuple(relax.TensorType(p.shape, p.dtype) for p in results),
    )


def check_count(tensors: int) -> None:
    """Check that a persistent kernel has no more tensors than it can be given.

    Raises:
        BuildError: the kernel has more.
    """
    if tensors > _MOST_TENSORS:
        raise BuildError(
            f"a persistent kernel has at most {_MOST_TENSORS} tensors",
            f"{tensors}",
            "leave the kernels to launches of their own",
        )


def arguments_of(node: TaskNode) -> tuple[Location | GenericConst, ...]:
    """The arguments of the node's function: what it is given, then what it writes."""
    return (*node.arguments, *(Location(value, 0) for value in node.outputs))


def bind(
    argument: Location | GenericConst,
    places: Mapping[int, tuple[int, int]],
    constants: Constants,
    first: int,
) -> tuple[int, int]:
    """The tensor of the persistent kernel in which an argument lies, and bytes from its start.

    Constants are the tensors from ``first`` on.
    """
    if isinstance(argument, Location):
        tensor, start = places[argument.value]
        return tensor, start + argument.offset
    tensor, start = constants.places[identity(argument)]
    return first + tensor, start


def parameter(name: str, kind: Any) -> Parameter:
    """A parameter for a tensor of static shape."""
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


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants that a kernel reads, each memory once.

    Attributes:
        tensors: tensors that the kernel is given: the small ones as one, then the large ones.
        parameters: parameter of the kernel for each of these tensors.
        places: identity of a constant -> which of these tensors, and bytes from its start.
    """

    tensors: tuple[Any, ...]
    parameters: tuple[Parameter, ...]
    places: Mapping[Hashable, tuple[int, int]]

    @classmethod
    def of(cls, arguments: Iterable[Location | GenericConst]) -> Constants:
        """Place the constants of a group's arguments: small ones in one tensor, others alone."""
        found = {identity(a): a for a in arguments if not isinstance(a, Location)}
        small = {key: a for key, a in found.items() if size_of(a.ty) < _LARGE}
        large = {key: a for key, a in found.items() if key not in small}
        pieces: list[Any] = []
        places: dict[Hashable, tuple[int, int]] = {}
        end = 0
        for key, constant in small.items():
            data = np.ascontiguousarray(elements_of(constant)).reshape(-1).view(np.uint8)
            places[key] = 0, end
            padding = -data.size % ALIGNMENT
            pieces += [data, np.zeros(padding, np.uint8)]
            end += data.size + padding
        tensors = [relax.const(np.concatenate(pieces))] if pieces else []
        parameters = [Parameter(_CONSTANTS, (end,), "uint8")] if pieces else []
        for number, (key, constant) in enumerate(large.items()):
            places[key] = len(tensors), 0
            tensors.append(constant)
            parameters.append(parameter(f"weights{number}", constant.ty))
        return cls(tuple(tensors), tuple(parameters), places)


def _workspace(
    inner: Sequence[int],
    operators: tuple[ROperator, ...],
    plan: ExecutionPlan,
    sizes: Sequence[int],
) -> tuple[tuple[Extent, ...], int]:
    """The places of values that only the group uses, and the bytes of all."""
    lives = {life.value: life for life in lifetimes(operators, plan)}
    born = [lives[value].born for value in inner]
    dies = [lives[value].dies for value in inner]
    offsets, total = allocate(sizes, born, dies, ALIGNMENT)
    return tuple(map(Extent, inner, offsets, sizes)), total
