"""Control flow that has a plan becomes a persistent kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx

from tvm_tile.kernel.dispatch import Parameter
from tvm_tile.kernel.persistent import (
    Bound,
    ControlFlow,
    Counters,
    Lowering,
    make_persistent,
)
from tvm_tile.passes.coschedule.merge_calls import (
    Constants,
    arguments_of,
    bind,
    check_count,
    parameter,
)
from tvm_tile.passes.flow.plan import PlannedFlow
from tvm_tile.plan.program_records import counter_words


@dataclass(frozen=True, slots=True)
class MergedFlow:
    """A kernel that stands for control flow.

    Attributes:
        func: itself.
        constants: constants that it is given behind the tensors from outside; counters are last.
        kinds: types of what it writes: the results, the word that says why it ended, of a program
            that may stop, and its workspace.
    """

    func: tirx.PrimFunc
    constants: tuple[Any, ...]
    kinds: tuple[Any, ...]


def merge_flow(
    name: str, planned: PlannedFlow, ways: Callable[[str], tuple[Lowering, ...]]
) -> MergedFlow:
    """The persistent kernel of control flow.

    Args:
        name: name of the kernel.
        planned: itself.
        ways: function that gives the ways to run a function, one a choice.

    Raises:
        BuildError: the control flow has too many tensors, or a kernel that cannot be part of
            another.
    """
    flow = planned.flow
    constants = Constants.of(a for node in flow.nodes for a in node.arguments)
    own, stops = flow.memories.kinds, flow.program.may_stop
    inputs = [parameter(f"in{n}", own[m]) for n, m in enumerate(flow.given)]
    inputs += constants.parameters
    known = {memory: (number, 0) for number, memory in enumerate(flow.given)}
    known |= {memory: (len(inputs) + n, 0) for n, memory in enumerate(flow.outputs)}
    last = len(inputs) + len(flow.outputs) + stops
    check_count(last + 1)
    placed = flow.memories.placed(known, last, flow.program.bounds.depth)
    places = placed.places
    bound = [
        Bound(
            ways(node.function),
            tuple(bind(a, places, constants, len(flow.given)) for a in arguments_of(node)),
        )
        for node in flow.nodes
    ]
    results = [parameter(f"out{n}", own[m]) for n, m in enumerate(flow.outputs)]
    if stops:
        results.append(Parameter("stopped", (1,), "int32"))
    results.append(Parameter("workspace", (placed.size,), "uint8"))
    conditions = ((places[c.value][0], places[c.value][1] + c.offset) for c in flow.conditions)
    control = ControlFlow(flow.program, tuple(conditions), placed.frames)
    counters = Counters(0, counter_words(flow.program))
    given = tuple(inputs), tuple(results), counters, control
    kernel = make_persistent(name, planned.operators, planned.plan, bound, *given)
    table = kernel.table
    tables = (relax.const(array) for array in (table.words.reshape(-1), table.queues))
    kinds = tuple(relax.TensorType(p.shape, p.dtype) for p in results)
    return MergedFlow(kernel.func, (*constants.tensors, *tables), kinds)
