"""A Relax function with its control flow, as what its kernels read and write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GenericConst

from tvm_tile.passes.coschedule.task_graph import BindingReader, Location, Slices, TaskNode

_NO_VALUE = -1

Source = Any
"""A value: where it lies (a Location), or a constant (a GenericConst)."""


class UnfitFlowError(Exception):
    """Control flow that no persistent kernel can run, and why."""


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a Relax function.

    Attributes:
        function: its name in the module.
        arguments: tensors, or integers of the host.
        outputs: numbers of the values that it makes.
    """

    function: Any
    arguments: tuple[Source | int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """One of two sides.

    Attributes:
        condition: a bool that says which.
        then: the side where it holds.
        otherwise: the other one.
        outputs: numbers of the values that each makes.
    """

    condition: Location
    then: Flow
    otherwise: Flow
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Allocated:
    """Memory of any content, which kernels write in place."""

    outputs: tuple[int, ...]


Action = TaskNode | Called | Chosen | Allocated


@dataclass(frozen=True, slots=True)
class Flow:
    """A function, or a side of a branch.

    Attributes:
        actions: actions in their order.
        parameters: numbers of the values that it is given; a side knows those around it.
        results: places of the returned values.
        result_kinds: the type of each of these.
        kinds: the type of each value.
    """

    actions: tuple[Action, ...]
    parameters: tuple[int, ...]
    results: tuple[Source, ...]
    result_kinds: tuple[Any, ...]
    kinds: Mapping[int, Any]


def read_flow(func: relax.Function, slices: Slices) -> Flow:
    """A function's kernels and control flow.

    Args:
        func: after it was scheduled.
        slices: about the functions that it calls.

    Raises:
        UnfitFlowError: the function has anything else.
    """
    reader = _FlowReader(slices)
    return reader.flow(func.body, tuple(reader.parameter(param) for param in func.params))


def read_run(
    bindings: Sequence[Any], wanted: Sequence[Any], slices: Slices
) -> tuple[Flow, Mapping[int, Any]]:
    """Bindings of a function, and by value what they are given from outside.

    Args:
        bindings: bindings in their order.
        wanted: variables that they bind; their tensors are the results.
        slices: about the functions that they call.

    Raises:
        UnfitFlowError: one of the bindings is neither a kernel nor control flow.
    """
    reader = _FlowReader(slices)
    read = relax.SeqExpr([relax.BindingBlock(list(bindings))], relax.Tuple(list(wanted)))
    flow = reader.flow(read)
    own = {binding.var for binding in bindings}
    if any(expr in own for expr in reader.given.values()):
        raise UnfitFlowError("it has another name for a constant")
    return replace(flow, parameters=tuple(reader.given)), dict(reader.given)


class _FlowReader(BindingReader):
    """Reads a function; the actions of a sequence are those behind where it began."""

    def __init__(self, slices: Slices) -> None:
        super().__init__(slices)
        self._actions: list[Action] = []
        self._mixed: dict[Any, tuple[Source, ...]] = {}  # variables of tuples with constants

    def parameter(self, param: Any) -> int:
        """The number of a parameter; no value's for one that is no tensor."""
        return self.of(param)[0].value if isinstance(param.ty, relax.TensorType) else _NO_VALUE

    def flow(self, sequence: Any, parameters: tuple[int, ...] = ()) -> Flow:
        """A sequence of bindings, and what it returns."""
        around, self._actions = self._actions, []
        for block in sequence.blocks if isinstance(sequence, relax.SeqExpr) else ():
            for binding in block.bindings:
                self._act(binding)
        body = sequence.body if isinstance(sequence, relax.SeqExpr) else sequence
        made, self._actions = tuple(self._actions), around
        return Flow(made, parameters, self._sources(body), tuple(_kinds(body.ty)), self.kinds)

    def _act(self, binding: Any) -> None:
        """Read a binding as an action: a branch, a call, or a kernel."""
        var, value = binding.var, binding.value
        if isinstance(value, relax.Var | relax.Tuple):
            self._name(var, self._sources(value))
        elif isinstance(value, relax.TupleGetItem) and value.tuple_value in self._mixed:
            self._name(var, (self._mixed[value.tuple_value][value.index],))
        elif isinstance(value, relax.If):
            (condition,) = self._sources(value.cond)
            if not isinstance(condition, Location):
                raise UnfitFlowError("a constant decides in it")
            sides = self.flow(value.true_branch), self.flow(value.false_branch)
            self._actions.append(Chosen(condition, *sides, self.make(var)))
        elif isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
            arguments = tuple(self._argument(argument) for argument in value.args)
            self._actions.append(Called(value.op, arguments, self.make(var)))
        elif is_allocation(value):
            self._actions.append(Allocated(self.make(var)))
        else:
            self._kernel_or_view(binding)

    def _name(self, var: Any, sources: tuple[Source, ...]) -> None:
        """Let a variable be what has another name already."""
        places = tuple(source for source in sources if isinstance(source, Location))
        if len(places) == len(sources):
            self.places[var] = places
        else:
            self._mixed[var] = sources

    def given_to_kernel(self, field: Any) -> Location | GenericConst:
        """The one value that a kernel gets for a field: a location, or a constant itself."""
        (source,) = self._sources(field)
        return source

    def _kernel_or_view(self, binding: Any) -> None:
        """Read a binding as a kernel or a view; raises where it is neither."""
        known = len(self.nodes)
        self.bind(binding)
        for node in self.nodes[known:]:
            if not node.function:
                value = binding.value
                raise UnfitFlowError(f"it holds {getattr(value, 'op', type(value).__name__)}")
            self._actions.append(node)

    def _argument(self, argument: Any) -> Source | int:
        """Where an argument lies, or the number that it is."""
        number = whole_number(argument)
        if number is not None:
            return number
        sources = self._sources(argument)
        if len(sources) != 1:
            raise UnfitFlowError("a function in it takes a tuple")
        return sources[0]

    def _sources(self, value: Any) -> tuple[Source, ...]:
        """Places of a value's tensors."""
        if isinstance(value, relax.Tuple):
            return tuple(source for field in value.fields for source in self._sources(field))
        if isinstance(value, GenericConst):
            return (value,)
        if not isinstance(value, relax.Var):
            raise UnfitFlowError(f"it holds {type(value).__name__}")
        return self._mixed[value] if value in self._mixed else self.of(value)


def _kinds(kind: Any) -> Iterator[Any]:
    """The types of the tensors of a value."""
    if isinstance(kind, relax.TupleType):
        for field in kind.fields:
            yield from _kinds(field)
    else:
        yield kind


def whole_number(value: Any) -> int | None:
    """The integer that an argument is on the host, if it is one and known."""
    value = getattr(value, "value", None)
    value = getattr(value, "value", value)
    return value if isinstance(value, int) else None


def is_allocation(value: Any) -> bool:
    """Whether a value is memory of any content."""
    allocates = tvm.ir.Op.get("relax.builtin.alloc_tensor")
    return isinstance(value, relax.Call) and value.op == allocates
