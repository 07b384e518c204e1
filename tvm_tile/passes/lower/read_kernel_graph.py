"""A scheduled module as the graph of its kernels' calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tvm
from tvm import ir, relax, tirx
from tvm.ir import GenericConst

from tvm_tile.graph.functions import bindings_of, relax_functions
from tvm_tile.graph.user_names import names_of
from tvm_tile.passes.ir.rewriter import is_in_place, size_of, written_over
from tvm_tile.report.kernel_graph import CallValue, KernelCall, KernelGraph

_MAIN = "main"
# What gives a tensor another shape, or memory of any content, and runs no kernel.
_NO_CALLS = ("relax.reshape", "relax.memory.view", "relax.builtin.alloc_tensor")

Place = frozenset[int]
"""Numbers of tensors that a value may be: of two sides of a branch, one of two."""


def read_kernel_graphs(mod: tvm.IRModule) -> tuple[KernelGraph, ...]:
    """The graph of each Relax function of a module, ``main`` first.

    Args:
        mod: module whose kernels are called by ``call_tir`` and its like.
    """
    functions = {str(var.name_hint): func for var, func in relax_functions(mod).items()}
    ordered = sorted(functions, key=lambda name: (name != _MAIN, name))
    return tuple(_Follower().read(name, functions[name]) for name in ordered)


class _Follower:
    """Reads one function."""

    def __init__(self) -> None:
        self._tensors: list[CallValue] = []
        self._calls: list[KernelCall] = []
        self._fields: dict[Any, tuple[Place, ...]] = {}  # of variables

    def read(self, name: str, func: relax.Function) -> KernelGraph:
        """Read the graph of a function."""
        inputs = []
        for param in func.params:
            for number in self._make(param):
                inputs.append((str(param.name), number))
        for var, value in bindings_of(func.body):
            self._bind(var, value)
        outputs = [tuple(sorted(place)) for place in self._of(func.body.body)]
        return KernelGraph(
            name, tuple(self._calls), tuple(self._tensors), tuple(inputs), tuple(outputs)
        )

    def _bind(self, var: Any, value: Any) -> None:
        """Follow a binding: a branch, a view, or a call."""
        if isinstance(value, relax.If):
            sides = (self._of(side.body) for side in (value.true_branch, value.false_branch))
            self._fields[var] = tuple(a | b for a, b in zip(*sides, strict=True))
        elif not isinstance(value, relax.Call):
            self._fields[var] = self._of(value)
        elif _op_name(value) in _NO_CALLS:
            given = [place for arg in value.args for place in self._of(arg)]
            self._fields[var] = (given[0],) if given else (frozenset(),)
        else:
            self._call(var, value)

    def _call(self, var: Any, call: relax.Call) -> None:
        """Note a call with the tensors that it reads and writes."""
        callee, given = _callee(call)
        reads = dict.fromkeys(
            tensor for arg in given for place in self._of(arg) for tensor in sorted(place)
        )
        homes = self._homes(call) if is_in_place(call) else None
        writes = self._make(var, homes)
        constants = sum(_size(c.ty) or 0 for c in _constants(given))
        self._calls.append(
            KernelCall(callee, names_of(call), tuple(reads), tuple(writes), constants)
        )

    def _homes(self, call: relax.Call) -> list[int | None]:
        """Over which tensor each output of a call in place is written."""
        given = (() if own is None else self._of(own)[0] for own in written_over(call))
        return [min(place, default=None) for place in given]

    def _make(self, var: Any, homes: Sequence[int | None] | None = None) -> list[int]:
        """New tensors for a variable, and their numbers."""
        types = _tensor_types(var.ty)
        first = len(self._tensors)
        for ty, home in zip(types, homes or [None] * len(types), strict=True):
            extents = tuple(map(_extent, ty.shape if ty.shape is not None else ()))
            self._tensors.append(CallValue(extents, str(ty.dtype), _size(ty), home))
        made = list(range(first, len(self._tensors)))
        self._fields[var] = tuple(frozenset([number]) for number in made)
        return made

    def _of(self, value: Any) -> tuple[Place, ...]:
        """Tensors of a value's fields; a constant is none."""
        if isinstance(value, relax.Tuple):
            return tuple(place for field in value.fields for place in self._of(field))
        if isinstance(value, relax.TupleGetItem):
            types = value.tuple_value.ty.fields
            start = sum(len(_tensor_types(ty)) for ty in types[: value.index])
            end = start + len(_tensor_types(types[value.index]))
            return self._of(value.tuple_value)[start:end]
        if isinstance(value, relax.Var):
            return self._fields.get(value, ())
        return tuple(frozenset() for _ in _tensor_types(getattr(value, "ty", None)))


def _callee(call: relax.Call) -> tuple[str, list[Any]]:
    """The name of what is called, and what it is given."""
    arguments = list(call.args)
    if isinstance(call.op, ir.GlobalVar):
        return str(call.op.name_hint), arguments
    first = arguments[0] if arguments else None
    if isinstance(first, ir.GlobalVar):
        return str(first.name_hint), arguments[1:]
    if isinstance(first, relax.ExternFunc):
        return str(first.global_symbol), arguments[1:]
    return _op_name(call), arguments


def _op_name(call: relax.Call) -> str:
    """Name of the operator or external function that is called."""
    if isinstance(call.op, relax.ExternFunc):
        return str(call.op.global_symbol)
    return str(getattr(call.op, "name", ""))


def _constants(given: Iterable[Any]) -> Iterator[GenericConst]:
    """Constants among arguments, in tuples, too."""
    for value in given:
        if isinstance(value, relax.Tuple):
            yield from _constants(value.fields)
        elif isinstance(value, GenericConst):
            yield value


def _tensor_types(ty: Any) -> list[Any]:
    """The types of the tensors of a value, in order."""
    if isinstance(ty, relax.TupleType):
        return [own for field in ty.fields for own in _tensor_types(field)]
    return [ty] if isinstance(ty, relax.TensorType) else []


def _size(ty: Any) -> int | None:
    """Bytes of a tensor; ``None`` where an extent is not known."""
    if not isinstance(ty, relax.TensorType) or ty.shape is None or not ty.dtype:
        return None
    if not all(isinstance(extent, tirx.IntImm) for extent in ty.shape):
        return None
    return size_of(ty)


def _extent(extent: Any) -> str:
    """An extent for people."""
    return str(int(extent)) if isinstance(extent, tirx.IntImm) else str(extent)
