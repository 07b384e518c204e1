"""One node of ONNX with random attributes, shapes and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import helper, numpy_helper

T = TypeVar("T")

#: Opsets that forms are written in, unless an attribute needs another.
OPSET = 21


@dataclass(frozen=True, slots=True)
class Form:
    """A node with its inputs.

    Attributes:
        op_type: an operator, a standard one where it has no ``domain``.
        inputs: arrays in the operator's order; ``None`` for one that is left out.
        constants: positions of inputs that the model holds as constants.
        attrs: the node's attributes.
        results: how many outputs are asked for.
        opset: version of the operator set.
        tolerance: of the results, relative to the largest of the expected ones.
        domain: of the operator; ONNX infers no types in one of its own.
        dtypes: element types of the results in such a domain; float32 where it lists none.
    """

    op_type: str
    inputs: tuple[np.ndarray | None, ...]
    constants: frozenset[int]
    attrs: dict[str, Any]
    results: int = 1
    opset: int = OPSET
    tolerance: float = 2e-5
    domain: str = ""
    dtypes: tuple[str, ...] = ()

    def model(self) -> onnx.ModelProto:
        """The node as a model."""
        names = ["" if array is None else f"x{i}" for i, array in enumerate(self.inputs)]
        node = helper.make_node(
            self.op_type,
            names,
            [f"y{i}" for i in range(self.results)],
            domain=self.domain,
            **self.attrs,
        )
        graph = helper.make_graph(
            [node],
            self.op_type,
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                )
                for i, (name, array) in enumerate(zip(names, self.inputs, strict=True))
                if array is not None and i not in self.constants
            ],
            [onnx.ValueInfoProto(name=f"y{i}") for i in range(self.results)],
            [
                numpy_helper.from_array(array, name)
                for i, (name, array) in enumerate(zip(names, self.inputs, strict=True))
                if array is not None and i in self.constants
            ],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        if self.domain:
            opsets.append(helper.make_opsetid(self.domain, 1))
        model = onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=opsets, ir_version=10)
        )
        for i, output in enumerate(model.graph.output):
            if not output.type.HasField("tensor_type"):
                dtype = np.dtype(self.dtypes[i] if i < len(self.dtypes) else "float32")
                output.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(dtype)
        return model

    def arguments(self) -> tuple[np.ndarray, ...]:
        """What a caller gives: the inputs that are no constants."""
        return tuple(
            array
            for i, array in enumerate(self.inputs)
            if array is not None and i not in self.constants
        )

    @property
    def is_quantized(self) -> bool:
        """Whether rounding may fall either way."""
        return "Quant" in self.op_type or "QLinear" in self.op_type

    def __str__(self) -> str:
        shown = ", ".join(
            "-"
            if array is None
            else f"{array.dtype}{list(array.shape)}"
            + (f"={array.tolist()}" if i in self.constants and array.size < 12 else "")
            for i, array in enumerate(self.inputs)
        )
        attrs = ", ".join(f"{name}={value}" for name, value in self.attrs.items())
        return f"{self.op_type}-{self.opset}({shown}; {attrs}) -> {self.results}"


class Draw:
    """Random choices, reproducible from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def int(self, low: int, high: int) -> int:
        """An integer of [low, high]."""
        return int(self.rng.integers(low, high + 1))

    def ints(self, low: int, high: int, count: int) -> list[int]:
        """So many integers of [low, high]."""
        return [self.int(low, high) for _ in range(count)]

    def choose(self, *options: T) -> T:
        """One of the options."""
        return options[self.int(0, len(options) - 1)]

    def maybe(self, chance: float = 0.5) -> bool:
        """True with the given chance."""
        return bool(self.rng.random() < chance)

    def shape(self, rank: int, most: int = 6) -> tuple[int, ...]:
        """Extents from 1 on."""
        return tuple(self.ints(1, most, rank))

    def normal(self, shape: tuple[int, ...] | list[int], dtype: str = "float32") -> np.ndarray:
        """Numbers around zero."""
        return np.asarray(self.rng.normal(size=tuple(shape))).astype(dtype)

    def axis(self, rank: int) -> int:
        """An axis, counted from either end."""
        return self.int(-rank, rank - 1)

    def axes(self, rank: int, least: int = 0) -> list[int]:
        """Different axes in any order, counted from either end."""
        count = self.int(min(least, rank), rank)
        return [
            int(a) - (rank if self.maybe(0.3) else 0)
            for a in self.rng.permutation(rank)[:count].tolist()
        ]

    def some(self, attrs: dict[str, Any], chance: float = 0.5) -> dict[str, Any]:
        """Each attribute with the given chance; those that are ``None`` never."""
        return {k: v for k, v in attrs.items() if v is not None and self.maybe(chance)}


def form(
    op_type: str,
    *inputs: np.ndarray | None,
    constants: tuple[int, ...] = (),
    results: int = 1,
    opset: int = OPSET,
    tolerance: float = 2e-5,
    domain: str = "",
    dtypes: tuple[str, ...] = (),
    **attrs: Any,
) -> Form:
    """A form, its attributes given by name."""
    held = frozenset(constants)
    return Form(op_type, inputs, held, attrs, results, opset, tolerance, domain, dtypes)
