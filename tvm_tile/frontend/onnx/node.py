"""One node of an ONNX graph, as its converter sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from tvm_tile.frontend.ops.values import Value, counted_axis
from tvm_tile.frontend.ops.writer import Writer, known_value
from tvm_tile.frontend.random_state import Draws


@dataclass(frozen=True, slots=True)
class Node(Writer):
    """A node whose inputs are Relax expressions.

    Attributes:
        op_type: its operator.
        builder: where operators and kernels go.
        inputs: in the operator's order; ``None`` for an optional one that is left out.
        attrs: the node's attributes.
        results: how many outputs the node lists.
        opset: version of the operator set that the node is written in.
        in_loops: whether steps of a recurrence are a loop's, for a kernel, or else written out.
        draws: what random numbers are drawn by; ``None`` where none can be drawn.
    """

    op_type: str
    builder: relax.BlockBuilder
    inputs: Sequence[Value]
    attrs: Mapping[str, Any]
    results: int
    opset: int
    in_loops: bool = False
    draws: Draws | None = None

    def input(self, index: int) -> Value:
        """An input, or ``None`` where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def constant(self, index: int) -> np.ndarray | None:
        """The value of an input; ``None`` where it is left out or known only at run time."""
        return known_value(self.input(index))

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

    def numbers(self, name: str, count: int, default: int) -> list[int]:
        """An attribute that has ``count`` numbers.

        Raises:
            ValueError: there are more or fewer.
        """
        values = [int(value) for value in self.attrs.get(name, (default,) * count)]
        if len(values) != count:
            raise ValueError(f"{name} {values} for {count} numbers")
        return values

    def pads(
        self,
        extents: Sequence[int],
        kernel: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
    ) -> list[int]:
        """What is padded before the first element of each dimension, then behind the last one."""
        auto = self.text("auto_pad", "NOTSET")
        if auto == "NOTSET":
            return self.numbers("pads", 2 * len(extents), 0)
        if auto == "VALID":
            return [0] * 2 * len(extents)
        totals = [
            max(0, (-(-e // s) - 1) * s + (k - 1) * d + 1 - e)
            for e, k, s, d in zip(extents, kernel, strides, dilations, strict=True)
        ]
        smaller, larger = [t // 2 for t in totals], [t - t // 2 for t in totals]
        return smaller + larger if auto == "SAME_UPPER" else larger + smaller


#: A converter's answer: a value, a tuple of several, or ``None`` for a form that is not its.
Converter = Callable[[Node], Value | None]


def axis_of(node: Node, default: int, rank: int) -> int:
    """An attribute that is an axis, counted from the first one.

    Raises:
        ValueError: there is no such axis.
    """
    return counted_axis(int(node.attrs.get("axis", default)), rank)
