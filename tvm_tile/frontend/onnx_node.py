"""One node of an ONNX graph, as its converter sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import GenericConst
from tvm.relax import op

Value = Any  # a Relax expression with a known type


@dataclass(frozen=True, slots=True)
class Node:
    """A node whose inputs are Relax expressions.

    Attributes:
        op_type: its operator.
        builder: where operators and kernels go.
        inputs: in the operator's order; ``None`` for an optional one that is left out.
        attrs: the node's attributes.
        results: how many outputs the node lists.
        opset: version of the operator set that the node is written in.
        in_loops: whether steps of a recurrence are a loop's, for a kernel, or else written out.
    """

    op_type: str
    builder: relax.BlockBuilder
    inputs: Sequence[Value]
    attrs: Mapping[str, Any]
    results: int
    opset: int
    in_loops: bool = False

    def input(self, index: int) -> Value:
        """An input, or ``None`` where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def constant(self, index: int) -> np.ndarray | None:
        """The value of an input; ``None`` where it is left out or known only at run time."""
        value = self.input(index)
        if not isinstance(value, GenericConst):
            return None
        array: np.ndarray = value.value.numpy()
        return array

    def parameter(self, index: int, name: str) -> np.ndarray | None:
        """The value of an input that has to be a constant; ``None`` where it is left out.

        Raises:
            NotImplementedError: the input, called ``name``, is known only at run time.
        """
        array = self.constant(index)
        if array is None and self.input(index) is not None:
            raise NotImplementedError(f"{name} that is no constant")
        return array

    def text(self, name: str, default: str) -> str:
        """An attribute that is a string."""
        value = self.attrs.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def emit(self, value: Value) -> Value:
        """Bind an expression to a variable, so that it is computed once and has a type."""
        return self.builder.emit(value)

    def compute(self, function: Callable[..., te.Tensor], *arguments: Value, name: str) -> Value:
        """What a tensor expression makes of the arguments, as a kernel called ``name``."""
        bound = [self.builder.emit(argument) for argument in arguments]
        return self.builder.emit_te(function, *bound, primfunc_name_hint=name)


#: A converter's answer: a value, a tuple of several, or ``None`` for a form that is not its.
Converter = Callable[[Node], Value | None]


def shape_of(value: Value) -> tuple[int, ...]:
    """The extents of a value.

    Raises:
        NotImplementedError: one of them is known only at run time.
    """
    shape = value.ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        raise NotImplementedError("a shape that is known only at run time")
    if not all(isinstance(extent, tirx.IntImm) for extent in shape):
        raise NotImplementedError("an extent that is known only at run time")
    return tuple(int(extent) for extent in shape)


def dtype_of(value: Value) -> str:
    """The element type of a value."""
    return str(value.ty.dtype)


def axis_of(node: Node, default: int, rank: int, name: str = "axis") -> int:
    """An attribute that is an axis, counted from the first one.

    Raises:
        ValueError: there is no such axis.
    """
    return counted_axis(int(node.attrs.get(name, default)), rank, name)


def counted_axis(axis: int, rank: int, name: str = "axis") -> int:
    """An axis, which may be counted from the last one, counted from the first one.

    Raises:
        ValueError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"{name} {axis} of a tensor of {rank} dimensions")
    return axis % rank


def constant(array: Any, dtype: str) -> Value:
    """A constant of a type."""
    return relax.const(np.ascontiguousarray(array).reshape(np.shape(array)), dtype)


def along(value: Value, axis: int, rank: int) -> Value:
    """A vector as a tensor of ``rank`` dimensions that lies along ``axis``."""
    return op.reshape(value, [-1 if i == axis else 1 for i in range(rank)])
