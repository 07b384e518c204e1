"""One call of a Relay operator, as its converter sees it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import Parameter, signature
from typing import Any

import numpy as np
from tvm import relax, te
from tvm.relax import op

from tvm_tile.frontend.evaluate import static_shape
from tvm_tile.frontend.ops.values import constant, dtype_of, shape_of
from tvm_tile.frontend.ops.writer import Writer, known_value
from tvm_tile.frontend.relay.program import Attribute
from tvm_tile.frontend.relay.values import require_floats, wide_type

Value = Any
"""A Relax tensor expression with a static type, or a tuple of values."""


@dataclass(frozen=True, slots=True)
class OperatorCall(Writer):
    """A call whose arguments are converted.

    Attributes:
        name: of the operator, such as ``nn.conv2d``.
        arguments: tensors are Relax variables or constants of static types; a tuple of Relay is a
            Python tuple of such.
        attributes: all of the operator's, defaults filled in.
        builder: where operators and kernels go.
    """

    name: str
    arguments: tuple[Value, ...]
    attributes: Mapping[str, Attribute]
    builder: relax.BlockBuilder

    def known(self, index: int) -> np.ndarray | None:
        """The value of an argument that is known while the model is compiled; else ``None``."""
        return known_value(self.arguments[index])

    def parameter(self, index: int, name: str) -> np.ndarray:
        """The value of an argument that has to be known.

        Raises:
            NotImplementedError: the argument, called ``name``, is known only at run time.
        """
        array = self.known(index)
        if array is None:
            raise NotImplementedError(f"{name} that is known only at run time")
        return array

    def emit(self, value: Value) -> Value:
        """Bind an expression to a variable, so that it is computed once and has a type.

        A tensor without elements is one of zeros: not all operators can be built without any.
        """
        value = self.builder.normalize(value)
        shape = static_shape(value.ty) or () if isinstance(value, relax.Call) else ()
        return self.builder.emit(op.zeros(shape, dtype_of(value)) if 0 in shape else value)

    def compute(self, function: Callable[..., te.Tensor], *arguments: Value, name: str) -> Value:
        """What a tensor expression makes of the arguments, as a kernel called ``name``."""
        bound = [self.builder.emit(argument) for argument in arguments]
        return self.emit(self.builder.call_te(function, *bound, primfunc_name_hint=name))

    def filled(self, shape: Sequence[int], value: float | bool, dtype: str) -> Value:
        """A tensor all of whose elements are ``value``."""
        return self.emit(op.full(tuple(shape), constant(value, dtype)))

    def cast(self, value: Value, dtype: str) -> Value:
        """The value in another element type; numbers are true where they are not zero."""
        found = dtype_of(value)
        if found == dtype:
            return value
        if dtype == "bool":  # TVM would cut 0.5 off to 0.
            return self.emit(op.not_equal(value, constant(0, found)))
        return self.emit(op.astype(value, dtype))

    def widened(self, function: Callable[..., Value], *values: Value) -> Value:
        """A function of floating-point numbers; of halves computed in float32, as C's libraries do.

        Raises:
            NotImplementedError: the elements are integers or truth values.
        """
        require_floats(*values)
        dtype = dtype_of(values[0])
        wide = [self.cast(value, wide_type(dtype)) for value in values]
        return self.cast(self.emit(function(*wide)), dtype)

    def clipped(self, value: Value, low: float, high: float) -> Value:
        """The nearest numbers between two bounds of the value's type; NaN stays."""
        dtype = dtype_of(value)
        if low > -math.inf:
            value = self.emit(op.maximum(value, constant(low, dtype)))
        if high < math.inf:
            value = self.emit(op.minimum(value, constant(high, dtype)))
        return value

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """The same elements in the same order.

        Raises:
            ValueError: another number of elements.
        """
        own, wanted = shape_of(value), tuple(int(extent) for extent in shape)
        if own == wanted:
            return value
        if math.prod(own) != math.prod(wanted) or min(wanted, default=0) < 0:
            raise ValueError(f"a tensor of {list(own)} as one of {list(wanted)}")
        if 0 in wanted:  # TVM reads 0 as "the extent that was there".
            return self.filled(wanted, 0, dtype_of(value))
        return self.emit(op.reshape(value, wanted))

    def permuted(self, value: Value, axes: Sequence[int]) -> Value:
        """The tensor with its axes in another order; they are counted from the first one."""
        if list(axes) == list(range(len(axes))):
            return value
        return self.emit(op.permute_dims(value, list(axes)))

    def sliced(self, value: Value, parts: Sequence[range]) -> Value:
        """The elements at the places of a range along each axis, all within the extents."""
        shape = shape_of(value)
        counts = tuple(len(part) for part in parts)
        if 0 in counts:
            return self.filled(counts, 0, dtype_of(value))
        changed = [i for i, part in enumerate(parts) if part != range(shape[i])]
        if not changed:
            return value
        begins = [parts[i].start for i in changed]
        # TVM reads -1 as the last element: what ends before the first one ends at -extent - 1.
        last = [parts[i][-1] + (1 if parts[i].step > 0 else -1) for i in changed]
        ends = [end if end >= 0 else -shape[i] - 1 for i, end in zip(changed, last, strict=True)]
        strides = [parts[i].step for i in changed]
        return self.emit(op.strided_slice(value, changed, begins, ends, strides))

    def part(self, value: Value, axis: int, places: range) -> Value:
        """The elements at the places of a range along one axis."""
        parts = [range(extent) for extent in shape_of(value)]
        return self.sliced(value, [*parts[:axis], places, *parts[axis + 1 :]])


Converter = Callable[..., Value]
"""Makes a call's result of the call, its arguments and, by name, those attributes that it names.

It raises ValueError or NotImplementedError, which say what it does not take.
"""


def converted(convert: Converter, call: OperatorCall) -> Value:
    """What a converter makes of a call."""
    given = call.attributes
    wanted = {name: given[name] for name in _attributes_of(convert) if name in given}
    return convert(call, *call.arguments, **wanted)


@cache
def _attributes_of(convert: Converter) -> tuple[str, ...]:
    """The attributes that a converter names: its parameters that have to be given by name."""
    named = signature(convert).parameters.values()
    return tuple(each.name for each in named if each.kind is Parameter.KEYWORD_ONLY)
