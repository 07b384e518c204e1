"""A dataflow block as rOperators: who makes which value, and where values are views of others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GenericConst

from tvm_tile.graph.tile_graph import Access, Operator, TileGraph
from tvm_tile.passes.ir.rewriter import is_call_tir, is_in_place, size_of, written_over

Slices = Callable[[str], tuple[tuple[int, int] | None, ...]]
"""Of each output of a function, by its name, the position of the argument that it is a contiguous
part of, and how many bytes from its start; ``None`` where it is no such part."""

_LEAST_WEIGHTS = 16 << 10  # bytes: about a line for every multiprocessor
_ALIGNMENT = 16  # bytes: kernels load and store vectors of so many


@dataclass(frozen=True, slots=True)
class Location:
    """Place of a tensor: its memory, and the distance from the memory's start.

    Attributes:
        value: the number of the memory that it is in.
        offset: bytes from its start.
    """

    value: int
    offset: int


@dataclass(frozen=True, slots=True)
class TaskNode:
    """A binding of a dataflow block that is no view.

    Attributes:
        binding: itself.
        function: name of the PrimFunc it calls; empty for anything else.
        arguments: arguments of the kernel: each a place, or a constant.
        reads: numbers of the values that it reads.
        outputs: numbers of the values that it makes.
        changes: numbers of the values, among those that it reads, that it changes in place.
    """

    binding: Any
    function: str
    arguments: tuple[Location | GenericConst, ...]
    reads: tuple[int, ...]
    outputs: tuple[int, ...]
    changes: tuple[int, ...] = ()

    @property
    def items(self) -> tuple[int, ...]:
        """Where among the call's results those stand that it makes: others lie where they did."""
        call = self.binding.value
        if not is_in_place(call):
            return tuple(range(len(self.outputs)))
        return tuple(n for n, home in enumerate(written_over(call)) if home is None)

    @property
    def weights(self) -> dict[int, int]:
        """Bytes of the constants among its arguments that take long to read, by their position."""
        constants = ((n, a) for n, a in enumerate(self.arguments) if not isinstance(a, Location))
        sizes = {number: size_of(constant.ty) for number, constant in constants}
        return {number: size for number, size in sizes.items() if size >= _LEAST_WEIGHTS}


@dataclass(frozen=True, slots=True)
class View:
    """A binding whose value lies in another's memory, or would, if those who read it knew."""

    binding: Any


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """The kernels of a dataflow block, and the values between them.

    Attributes:
        nodes: nodes in program order.
        views: views in program order.
        given: numbers of the values from outside -> the expression.
        kinds: the type of each value.
        used_later: values that are used behind the block.
    """

    nodes: tuple[TaskNode, ...]
    views: tuple[View, ...]
    given: Mapping[int, Any]
    kinds: Mapping[int, Any]
    used_later: frozenset[int]


def identity(argument: Location | GenericConst) -> Hashable:
    """A key of an argument: equal for places, and for constants in the same memory."""
    if isinstance(argument, Location):
        return argument
    return argument.value.data_ptr(), str(argument.ty)


def read_block(block: relax.DataflowBlock, slices: Slices) -> TaskGraph:
    """The graph of a block.

    Args:
        block: block whose calls of kernels are ``call_tir``.
        slices: about the functions that it calls.
    """
    return BindingReader(slices).read(block)


class BindingReader:
    """Reads bindings one after the other.

    Args:
        slices: about the functions that are called.

    Attributes:
        nodes: nodes in program order.
        places: places of each variable's fields.
        given: numbers of the values from outside -> the expression.
        kinds: the type of each value.
    """

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self.nodes: list[TaskNode] = []
        self._views: list[View] = []
        self.places: dict[Any, tuple[Location, ...]] = {}
        self._tuples: dict[Any, tuple[Location, ...]] = {}  # from outside, each one value
        self.given: dict[int, Any] = {}
        self.kinds: dict[int, Any] = {}
        self._later: set[int] = set()
        self._count = 0

    def read(self, block: relax.DataflowBlock) -> TaskGraph:
        """The graph of a block."""
        for binding in block.bindings:
            self.bind(binding)
            if not isinstance(binding.var, relax.DataflowVar):
                self._later |= {place.value for place in self.places.get(binding.var, ())}
        return TaskGraph(
            tuple(self.nodes),
            tuple(self._views),
            self.given,
            self.kinds,
            frozenset(self._later),
        )

    def bind(self, binding: Any) -> None:
        """Read a binding."""
        value = binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in self.places:
            place = self.places[value.tuple_value][value.index]
            self.places[binding.var] = (place,)
            self._views.append(View(binding))
            return
        if _is_reshape(value):
            (place,) = self.of(value.args[0])
            self.places[binding.var] = (place,)
            self._views.append(View(binding))
            return
        if is_in_place(value):
            self._change(binding)
            return
        if _is_kernel(value):
            self._kernel(binding)
            return
        reads = self._values(relax.analysis.free_vars(value))
        self.nodes.append(TaskNode(binding, "", (), reads, self.make(binding.var)))

    def _kernel(self, binding: Any) -> None:
        """Read a kernel's call; one that only copies contiguous parts is a view."""
        name, arguments, reads = self._called(binding.value)
        parts = self._slices(name)
        moved = [None if part is None else _part(arguments[part[0]], part[1]) for part in parts]
        if moved and None not in moved:
            self.places[binding.var] = tuple(place for place in moved if place is not None)
            self._views.append(View(binding))
            return
        made = self.make(binding.var)
        self.nodes.append(TaskNode(binding, name, arguments, reads, made))

    def _change(self, binding: Any) -> None:
        """A kernel that changes arguments: what it makes lies where these do."""
        name, arguments, reads = self._called(binding.value)
        written = written_over(binding.value)
        homes = [None if home is None else self.of(home)[0] for home in written]
        changes = tuple(home.value for home in homes if home is not None)
        made = self.make(binding.var)
        self.places[binding.var] = tuple(
            Location(value, 0) if home is None else home
            for value, home in zip(made, homes, strict=True)
        )
        outputs = tuple(value for value, home in zip(made, homes, strict=True) if home is None)
        self.nodes.append(TaskNode(binding, name, arguments, reads, outputs, changes))

    def _called(
        self, call: Any
    ) -> tuple[str, tuple[Location | GenericConst, ...], tuple[int, ...]]:
        """The function of a kernel, what it is given, and which values it reads of that."""
        arguments = tuple(map(self.given_to_kernel, call.args[1].fields))
        reads = tuple(dict.fromkeys(a.value for a in arguments if isinstance(a, Location)))
        return str(call.args[0].name_hint), arguments, reads

    def given_to_kernel(self, field: Any) -> Location | GenericConst:
        """Argument of a kernel: the place of a tensor, or a constant."""
        return field if isinstance(field, GenericConst) else self.of(field)[0]

    def make(self, var: Any) -> tuple[int, ...]:
        """New values for a variable, one for each tensor."""
        kinds = list(var.ty.fields) if isinstance(var.ty, relax.TupleType) else [var.ty]
        made = tuple(range(self._count, self._count + len(kinds)))
        self._count += len(kinds)
        self.places[var] = tuple(Location(value, 0) for value in made)
        self.kinds.update(zip(made, kinds, strict=True))
        return made

    def of(self, expr: Any) -> tuple[Location, ...]:
        """Places of an expression's tensors; tensors that nobody has made are given from outside.

        A tuple from outside is one value: where its fields are is not known.
        """
        known = self._tuples if isinstance(expr.ty, relax.TupleType) else self.places
        if expr in self.places:
            return self.places[expr]
        if expr in known:
            return known[expr]
        self.given[self._count] = expr
        self.kinds[self._count] = expr.ty
        known[expr] = (Location(self._count, 0),)
        self._count += 1
        return known[expr]

    def _values(self, variables: Sequence[Any]) -> tuple[int, ...]:
        """Numbers of the tensors of several variables."""
        return tuple(dict.fromkeys(p.value for v in variables for p in self.of(v)))


def _part(argument: Any, offset: int) -> Location | None:
    """A part of an argument, if it begins where kernels may load vectors."""
    if not isinstance(argument, Location) or (argument.offset + offset) % _ALIGNMENT:
        return None
    return Location(argument.value, argument.offset + offset)


def _is_kernel(value: Any) -> bool:
    """Whether a value is a call of a kernel on variables and constants."""
    if not is_call_tir(value) or len(value.args) != 2:
        return False
    return all(isinstance(field, GenericConst | relax.Var) for field in value.args[1].fields)


def _is_reshape(value: Any) -> bool:
    """Whether a value is a reshape of a variable."""
    is_call = isinstance(value, relax.Call) and value.op == tvm.ir.Op.get("relax.reshape")
    return is_call and isinstance(value.args[0], relax.Var)


def contiguous_parts(
    graph: TileGraph, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[tuple[int, int] | None, ...]:
    """For each output of a function that only copies, the contiguous part of an input that it is.

    Args:
        graph: graph of the function.
        inputs: names of the parameters that it reads.
        outputs: names of the parameters that it writes.

    Returns:
        Of each output, the position among ``inputs`` and bytes from its start; ``None`` where it is
        no such part.
    """
    parts: dict[str, tuple[int, int] | None] = {n: (i, 0) for i, n in enumerate(inputs)}
    for operator in graph.operators:
        parts[operator.write.tensor.name] = _copied_part(operator, parts)
    return tuple(parts.get(name) for name in outputs)


def _copied_part(
    operator: Operator, parts: Mapping[str, tuple[int, int] | None]
) -> tuple[int, int] | None:
    """The contiguous part of an input that an operator copies; ``None`` where it does not."""
    if not operator.is_copy or operator.reduce_axes:
        return None
    (read,), write = operator.reads, operator.write
    part = parts.get(read.tensor.name)
    if part is None or read.tensor.dtype != write.tensor.dtype:
        return None
    if read.is_computed or not (_walks_forward(read) and _walks_forward(write)) or _start(write):
        return None
    long = [axis.name for axis in operator.axes if axis.extent > 1]
    if any(read.strides.get(name, 0) != write.strides.get(name, 0) for name in long):
        return None
    return part[0], part[1] + _start(read) * read.tensor.element_size


def _walks_forward(access: Access) -> bool:
    """Whether an access goes forward along all axes."""
    terms = [term for index in access.indices for term in index.terms]
    return access.is_exact and all(coefficient > 0 for _, coefficient in terms)


def _start(access: Access) -> int:
    """The number of elements before the first that is accessed."""
    start, stride = 0, 1
    for index, extent in zip(reversed(access.indices), reversed(access.tensor.shape), strict=True):
        start += index.offset * stride
        stride *= extent
    return start
