"""Write out ONNX loops whose number of iterations is known. Knows ONNX, not TVM.

before: ``y, rows = Loop(2, True, x, body=(i, cond, a) -> (cond, f(a, i), g(a)))``
after:  ``a1 = f(x, 0); r0 = g(x); y = f(a1, 1); r1 = g(a1); rows = Concat(Unsqueeze(r0), ...)``

What an iteration computes from its number is constant then, shapes too, and a sequence that a loop
fills has a known length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_tile.frontend.onnx.rewrite import (
    STANDARD_DOMAINS,
    opset_version,
    renamed,
    replace_nodes,
    walk_nodes,
)

_AXES_ARE_INPUTS = 13  # of Unsqueeze, from this version of the operators on


def unroll_loops(model: onnx.ModelProto, most: int) -> bool:
    """Replace each ``Loop`` of a known count by its iterations, in place.

    Args:
        model: whose constants are initializers.
        most: nodes that a loop may become.

    Returns:
        Whether anything changed.
    """
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    changed = False
    for number, node in enumerate(graph.node):
        loop = _loop(node, constants)
        if loop is None or loop.nodes > most or (loop.count == 0 and loop.rows):
            nodes.append(node)
            continue
        writer = _LoopWriter(
            loop, f"unrolled{number}_{node.output[0]}", graph, opset_version(model)
        )
        nodes.extend(writer.written())
        changed = True
    if changed:
        replace_nodes(graph, nodes)
    return changed


def iterations(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> int | None:
    """How many iterations a node has; None where it is no loop, or that is not known."""
    loop = _loop(node, constants)
    return None if loop is None else loop.count


def known_count(
    count: np.ndarray | None, condition: np.ndarray | None, body: onnx.GraphProto
) -> int | None:
    """How many iterations a loop has, where that is known.

    Args:
        count: the most that it has; ``None`` if that is unknown or not given.
        condition: whether it has any; as ``None`` true.
        body: whose first output says whether it goes on.
    """
    if condition is not None and not condition.all():
        return 0
    return None if count is None or not goes_on_always(body) else max(0, int(count.reshape(())))


def goes_on_always(body: onnx.GraphProto) -> bool:
    """Whether an iteration never ends its loop: its condition is true, or the one that it got."""
    name = body.output[0].name
    makers = {made: node for node in body.node for made in node.output}
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    if name == body.input[1].name:
        return True
    tensors = [tensor for tensor in body.initializer if tensor.name == name]
    if name in makers and makers[name].op_type == "Constant":
        tensors = [attribute.t for attribute in makers[name].attribute if attribute.name == "value"]
    return any(numpy_helper.to_array(tensor).all() for tensor in tensors)


@dataclass(frozen=True, slots=True)
class _CountedLoop:
    """A loop of a known count.

    Attributes:
        node: itself.
        body: of an iteration.
        count: of iterations.
    """

    node: onnx.NodeProto
    body: onnx.GraphProto
    count: int

    @property
    def nodes(self) -> int:
        """How many nodes its iterations have together."""
        return self.count * (1 + sum(1 for _ in walk_nodes(self.body)))

    @property
    def carried(self) -> list[str]:
        """The first values of what is carried."""
        return list(self.node.input[2:])

    @property
    def rows(self) -> int:
        """How many rows an iteration makes."""
        return len(self.body.output) - 1 - len(self.carried)


def _loop(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> _CountedLoop | None:
    if node.op_type != "Loop" or node.domain not in STANDARD_DOMAINS:
        return None
    given = [*node.input[:2], "", ""][:2]
    if any(name and name not in constants for name in given):
        return None
    count, condition = (numpy_helper.to_array(constants[n]) if n else None for n in given)
    body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
    known = known_count(count, condition, body)
    return None if known is None else _CountedLoop(node, body, known)


@dataclass(frozen=True, slots=True)
class _LoopWriter:
    """Writes a loop out.

    Attributes:
        loop: the loop.
        prefix: of new names.
        graph: takes constants.
        opset: version of the operators.
    """

    loop: _CountedLoop
    prefix: str
    graph: onnx.GraphProto
    opset: int

    def written(self) -> Iterator[onnx.NodeProto]:
        """The iterations' nodes, then those that give results their names."""
        loop, body = self.loop, self.loop.body
        carried = loop.carried
        rows: list[list[str]] = [[] for _ in range(loop.rows)]
        going_on = self._constant("true", np.array(True))
        for turn in range(loop.count):
            number = self._constant(f"{turn}", np.array(turn, np.int64))
            given = [number, going_on, *carried]
            names = {v.name: name for v, name in zip(body.input, given, strict=True)}
            own = {name for node in body.node for name in node.output if name}
            own |= {tensor.name for tensor in body.initializer}
            names |= {name: f"{self.prefix}/{turn}/{name}" for name in own}
            for tensor in body.initializer:
                self._constant(f"{turn}/{tensor.name}", numpy_helper.to_array(tensor))
            yield from (renamed(node, names) for node in body.node)
            made = [names.get(value.name, value.name) for value in body.output][1:]
            carried = made[: len(carried)]
            for row, name in zip(rows, made[len(carried) :], strict=True):
                row.append(name)
        for inner, outer in zip(carried, loop.node.output, strict=False):
            if outer:
                yield helper.make_node("Identity", [inner], [outer])
        for row, outer in zip(rows, loop.node.output[len(carried) :], strict=False):
            yield from self._stacked(row, outer)

    def _stacked(self, rows: list[str], result: str) -> Iterator[onnx.NodeProto]:
        parts = [f"{result}/row{turn}" for turn in range(len(rows))]
        if self.opset >= _AXES_ARE_INPUTS:
            axes = self._constant("axes", np.array([0], np.int64))
            for row, part in zip(rows, parts, strict=True):
                yield helper.make_node("Unsqueeze", [row, axes], [part])
        else:
            for row, part in zip(rows, parts, strict=True):
                yield helper.make_node("Unsqueeze", [row], [part], axes=[0])
        if result:
            yield helper.make_node("Concat", parts, [result], axis=0)

    def _constant(self, name: str, value: np.ndarray) -> str:
        name = f"{self.prefix}/{name}"
        if all(tensor.name != name for tensor in self.graph.initializer):
            self.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name
