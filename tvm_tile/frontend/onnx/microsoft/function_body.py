"""Write the standard operators that a node of ONNX Runtime's domain stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_tile.frontend.onnx.types import static_extents

_SINCE = {"ReduceMean": 18, "ReduceSum": 13}  # opsets from which on axes are an input


class NotYetKnown(Exception):
    """A type or a value that a definition needs is not known, but may be later."""


@dataclass(frozen=True, slots=True)
class FunctionBody:
    """The definition of one node by standard operators, in the making.

    Attributes:
        node: what is defined.
        types: element types and shapes of tensors, by name, as far as they are inferred.
        constants: tensors whose values are known, by name.
        opset: version of the standard operators.
        nodes: what was written so far, in order.
    """

    node: onnx.NodeProto
    types: Mapping[str, onnx.TypeProto.Tensor]
    constants: Mapping[str, onnx.TensorProto]
    opset: int
    nodes: list[onnx.NodeProto]

    def __call__(self, op_type: str, *operands: Any, results: int = 1, **attributes: Any) -> Any:
        """Write an operator.

        Args:
            op_type: a standard operator's.
            operands: names of tensors, empty ones where an input is left out; numbers, of the
                node's own element type; arrays; or lists of integers, which are int64 tensors.
            results: how many outputs are needed.
            attributes: the operator's; those that are ``None`` are left out.

        Returns:
            The name of the result, or a tuple of several.
        """
        names = [
            operand if isinstance(operand, str) else self.constant(operand) for operand in operands
        ]
        while names and not names[-1]:
            names.pop()
        own = next(filter(None, self.node.output))
        made = [f"{own}#{len(self.nodes)}.{number}" for number in range(results)]
        given = {name: value for name, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(op_type, names, made, **given))
        return made[0] if results == 1 else tuple(made)

    def constant(self, value: Any) -> str:
        """The name of a constant; see ``operands`` of a call."""
        if isinstance(value, list):
            value = np.array(value, np.int64)
        elif not isinstance(value, np.ndarray | np.generic):
            value = np.array(value, self.real)
        name: str = self("Constant", value=numpy_helper.from_array(np.asarray(value)))
        return name

    def input(self, place: int) -> str:
        """The name of an input; empty where it is left out."""
        return str(self.node.input[place]) if place < len(self.node.input) else ""

    def inputs(self, count: int) -> list[str]:
        """The names of the first inputs; empty ones where one is left out."""
        return [self.input(place) for place in range(count)]

    def returns(self, place: int) -> bool:
        """Whether the node has an output that somebody may read."""
        return place < len(self.node.output) and self.node.output[place] != ""

    def require_absent(self, what: Mapping[str, Any]) -> None:
        """Refuse what is given of forms that are not known, by the names that they have.

        Raises:
            NotImplementedError: one of them is neither empty nor false.
        """
        given = [name for name, value in what.items() if value]
        if given:
            raise NotImplementedError(f"{' and '.join(given)}")

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute; text is decoded."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                value = helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def integer(self, name: str) -> int:
        """The value of an attribute that must be given.

        Raises:
            NotImplementedError: it is left out.
        """
        if self.attribute(name) is None:
            raise NotImplementedError(f"no {name}")
        return int(self.attribute(name))

    def attributes(self, *names: str) -> dict[str, Any]:
        """Attributes by their names, ``None`` where one is not given."""
        return {name: self.attribute(name) for name in names}

    def shape(self, name: str) -> tuple[int, ...]:
        """The extents of a tensor that the node reads.

        Raises:
            NotYetKnown: they are not inferred.
        """
        extents = static_extents(self.types.get(name))
        if extents is None:
            raise NotYetKnown(f"the shape of {name!r}")
        return extents

    def dtype(self, name: str) -> np.dtype[Any]:
        """The element type of a tensor that the node reads.

        Raises:
            NotYetKnown: it is not inferred.
        """
        tensor = self.types.get(name)
        if tensor is None or not tensor.elem_type:
            raise NotYetKnown(f"the element type of {name!r}")
        return helper.tensor_dtype_to_np_dtype(tensor.elem_type)

    def value(self, name: str) -> np.ndarray | None:
        """The value of a tensor that is a constant, or ``None``."""
        return numpy_helper.to_array(self.constants[name]) if name in self.constants else None

    @property
    def real(self) -> np.dtype[Any]:
        """The element type of the node's numbers: its first input's that is no integer."""
        dtypes = (self.dtype(name) for name in self.node.input if name)
        return next((dtype for dtype in dtypes if dtype.kind not in "iub"), np.dtype(np.float32))

    def cast(self, x: str, dtype: Any) -> str:
        """A tensor in another element type."""
        name: str = self("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        return name

    def add(self, x: str, other: str) -> str:
        """The sum of two tensors, the second of which may be left out."""
        return str(self("Add", x, other)) if other else x

    def reduced(self, op_type: str, x: str, axes: list[int], keepdims: int = 1) -> str:
        """A reduction along axes, which are an attribute or an input."""
        is_input = self.opset >= _SINCE[op_type]
        operands, attribute = ((x, axes), None) if is_input else ((x,), axes)
        name: str = self(op_type, *operands, axes=attribute, keepdims=keepdims)
        return name

    def part(self, x: str, first: int, last: int, axis: int = -1) -> str:
        """The elements of an axis from ``first`` on and before ``last``."""
        name: str = self("Slice", x, [first], [last], [axis])
        return name


#: Writes a node's definition, and answers with the results' names, empty where it has none.
Definition = Callable[[FunctionBody], tuple[str, ...]]
