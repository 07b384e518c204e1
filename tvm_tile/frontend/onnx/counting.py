"""Count the iterations of ONNX loops that end by a count of their own. Knows ONNX, not TVM.

before: ``y = Loop("", 0 < n, 0, x, body=(i, c, k, a) -> (k + 1 < n, k + 1, f(a)))``, n is known
after:  ``y = Loop(n, "", 0, x, body=(i, c, k, a) -> (c, k + 1, f(a)))``

Exporters of TensorFlow's write every loop so, whether or not its count is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_tile.frontend.onnx.fold import computes_the_same
from tvm_tile.frontend.onnx.rewrite import STANDARD_DOMAINS, opset_version
from tvm_tile.frontend.onnx.unrolling import goes_on_always

_MOST = 1 << 14  # iterations that are counted


def count_loops(model: onnx.ModelProto) -> bool:
    """Give loops whose conditions follow from constants their number of iterations, in place.

    Args:
        model: whose constants are initializers.

    Returns:
        Whether anything changed.
    """
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    changed = False
    for node in graph.node:
        if node.op_type != "Loop" or node.domain not in STANDARD_DOMAINS:
            continue
        body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
        condition = None if goes_on_always(body) else _Condition.of(node, body, constants)
        count = condition and condition.holds_for(opset_version(model))
        if count is not None:
            name = f"{next(filter(None, node.output))}#count"
            graph.initializer.append(numpy_helper.from_array(np.array(count, np.int64), name))
            node.input[0], node.input[1] = name, ""
            body.output[0].name = body.input[1].name
            changed = True
    return changed


@dataclass(frozen=True, slots=True)
class _Condition:
    """A loop's condition, with the nodes and carried values that it follows from.

    Attributes:
        body: the body's nodes that it takes, in order.
        results: name of the condition behind an iteration, then those of the carried values.
        number: name of the iteration's number.
        state: first values of the carried values, by the names that the body has for them.
        fixed: values that stay, by name.
        most: iterations that the loop has at most; None where that is not said.
    """

    body: Sequence[onnx.NodeProto]
    results: Sequence[str]
    number: str
    state: Mapping[str, np.ndarray]
    fixed: Mapping[str, np.ndarray]
    most: int | None

    @classmethod
    def of(
        cls, node: onnx.NodeProto, body: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto]
    ) -> _Condition | None:
        """The condition of a loop; None where it follows from more than constants."""
        number, going_on, *carried = (value.name for value in body.input)
        updates = {
            name: (begin, value.name)
            for name, begin, value in zip(carried, node.input[2:], body.output[1:], strict=False)
        }
        known = {**constants, **{tensor.name: tensor for tensor in body.initializer}}
        makers = {name: inner for inner in body.node for name in inner.output}
        fixed = {going_on: np.array(True)}
        wanted, seen, state = [body.output[0].name], {"", number, going_on}, {}
        begins = [name for name in node.input[:2] if name]
        while wanted:
            name = wanted.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in makers and computes_the_same(makers[name]):
                wanted += makers[name].input
            elif name in updates:
                begin, after = updates[name]
                begins.append(begin)
                state[name] = begin, after
                wanted.append(after)
            elif name in known:
                fixed[name] = numpy_helper.to_array(known[name])
            else:
                return None
        if any(name not in constants for name in begins):
            return None
        first = {name: numpy_helper.to_array(constants[name]) for name in begins}
        most, begin = (first[name] if name else None for name in [*node.input, "", ""][:2])
        if begin is not None and not begin.all():
            most = np.array(0)
        return cls(
            [inner for inner in body.node if not seen.isdisjoint(inner.output)],
            [body.output[0].name, *(after for _, after in state.values())],
            number,
            {name: first[begin] for name, (begin, _) in state.items()},
            fixed,
            None if most is None else int(most.reshape(())),
        )

    def holds_for(self, opset: int) -> int | None:
        """How many iterations it lets the loop have; None where these are too many to count."""
        from onnx.reference import ReferenceEvaluator

        names = [self.number, *self.state, *self.fixed]
        versions = [helper.make_opsetid("", opset)]
        evaluator = ReferenceEvaluator(
            helper.make_function("", "next", names, self.results, self.body, versions)
        )
        state, going_on, count = dict(self.state), True, 0
        while going_on and (self.most is None or count < self.most):
            if count == _MOST:
                return None
            number = np.array(count, np.int64)
            given = {self.number: number, **state, **self.fixed}
            condition, *after = evaluator.run(None, given, attributes={})
            state = dict(zip(state, after, strict=True))
            going_on, count = bool(np.all(condition)), count + 1
        return count
