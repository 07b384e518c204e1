"""ONNX's Loop and Scan, as far as they are not written out, and how bodies are settled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax import op

from tvm_tile.frontend.loops import Values, repeat_while, written
from tvm_tile.frontend.onnx.fold import fold
from tvm_tile.frontend.onnx.model import SHAPE_ELEMENTS
from tvm_tile.frontend.onnx.node import Node
from tvm_tile.frontend.onnx.rewrite import free_names, walk_nodes
from tvm_tile.frontend.onnx.unrolling import goes_on_always, known_count
from tvm_tile.frontend.ops.values import Value, counted_axis, dtype_of, shape_of
from tvm_tile.frontend.scan import scan

Write = Callable[[onnx.GraphProto, Mapping[str, Value]], Values]
"""From a graph, and the values of names in it, to those of its outputs, which it writes."""

_BATCHED = 8  # the version of Scan that has a batch of sequences
_NEVER_UNROLLED = 1 << 30


@dataclass(frozen=True, slots=True)
class Loops:
    """Converts nodes that have a body.

    Attributes:
        builder: within the function that has the node.
        names: values of what is named around the body.
        write: writes a graph.
        opset: version of the operators.
    """

    builder: relax.BlockBuilder
    names: Mapping[str, Value]
    write: Write
    opset: int

    def convert_loop(self, node: Node) -> Value:
        """A loop that ends as the data say, or after a known number of iterations.

        Raises:
            NotImplementedError: only the data decide how many rows it makes.
            ValueError: what is carried changes its type.
        """
        count, condition, *given = [*node.inputs, None, None][: max(2, len(node.inputs))]
        state = [self.builder.emit(value) for value in map(_tensor, given)]
        place = relax.const(0, "int64")
        true = relax.const(np.array(True), "bool")
        body, captured = self._settled(node.attrs["body"], [place, true, *state])
        known = known_count(node.constant(0), node.constant(1), body)
        if condition is not None and node.constant(1) is None:
            known = None
        rows = len(body.output) - 1 - len(state)
        if known is None and rows:
            raise NotImplementedError("a loop that makes as many rows as only the data decide")
        if known is not None:
            made = self._counted(node, body, captured, known, state)
        else:
            made = self._while(count, condition, body, captured, state)
        return made[0] if len(made) == 1 else relax.Tuple(made)

    def _counted(
        self,
        node: Node,
        body: onnx.GraphProto,
        captured: Mapping[str, Value],
        count: int,
        state: Values,
    ) -> Values:
        place = relax.const(0, "int64")
        outer, fixed = _variables(captured)

        def iteration(own: Values, _: Values, inner: Values) -> tuple[Values, Values]:
            at, *carried = own
            going_on = relax.const(np.array(True), "bool")
            names = {**captured, **dict(zip(outer, inner, strict=True))}
            names |= _named(body.input, [at, going_on, *carried])
            _, *made = self.write(body, names)
            after = self.builder.emit(op.add(at, relax.const(1, "int64")))
            return [after, *made[: len(carried)]], made[len(carried) :]

        values: tuple[Values, Values, Values] = [place, *state], [], fixed
        operators = _operators(body)
        ended, rows = scan(self.builder, "loop", count, values, iteration, operators=operators)
        return [*ended[1:], *rows]

    def _while(
        self,
        count: Value | None,
        condition: Value | None,
        body: onnx.GraphProto,
        captured: Mapping[str, Value],
        state: Values,
    ) -> Values:
        """Carries, beside the state, the number of the iteration."""
        builder = self.builder
        most = None if count is None else _scalar(builder, count)
        if isinstance(most, GenericConst) and int(most.value.numpy()) == np.iinfo(np.int64).max:
            most = None
        first = relax.const(np.array(True), "bool")
        if condition is not None:
            first = _scalar(builder, condition)
        place = relax.const(0, "int64")
        outer, fixed = _variables(captured)
        if isinstance(most, relax.Var):
            fixed = [*fixed, most]
        size = 1 + len(state)

        def goes_on(going_on: Value, at: Value, most: Value | None) -> Value:
            if most is None:
                return going_on
            return builder.emit(op.logical_and(going_on, builder.emit(op.less(at, most))))

        def iteration(parameters: Values) -> Values:
            (at, *carried), inner = parameters[:size], parameters[size:]
            limit = inner[-1] if isinstance(most, relax.Var) else most
            names = {**captured, **dict(zip(outer, inner, strict=False))}
            true = relax.const(np.array(True), "bool")
            names |= _named(body.input, [at, true, *carried])
            going_on, *made = self.write(body, names)
            going_on = true if goes_on_always(body) else _scalar(builder, going_on)
            after = builder.emit(op.add(at, relax.const(1, "int64")))
            return [goes_on(going_on, after, limit), after, *made]

        whole = [place, *state]
        once = written(builder, "loop_body", [*whole, *fixed], iteration)
        begins = builder.emit(goes_on(first, place, most))
        return repeat_while(builder, "loop", once, [begins, *whole], fixed)[1:]

    def convert_scan(self, node: Node) -> Value:
        """A loop over the parts of tensors along an axis.

        Raises:
            NotImplementedError: sequences of a batch of other lengths than the tensor's.
        """
        if node.opset <= _BATCHED:
            return self._batched_scan(node)
        body: onnx.GraphProto = node.attrs["body"]
        count = int(node.attrs["num_scan_inputs"])
        carried = len(node.inputs) - count
        state, tensors = list(node.inputs[:carried]), list(node.inputs[carried:])
        results = len(body.output) - carried
        tensors = [
            self._turned(tensor, axis, 0, is_backwards)
            for tensor, axis, is_backwards in zip(
                tensors,
                _integers(node, "scan_input_axes", count),
                _integers(node, "scan_input_directions", count),
                strict=True,
            )
        ]
        ended, rows = self._scanned(body, state, tensors)
        rows = [
            self._turned(row, 0, axis, is_backwards)
            for row, axis, is_backwards in zip(
                rows,
                _integers(node, "scan_output_axes", results),
                _integers(node, "scan_output_directions", results),
                strict=True,
            )
        ]
        made = [*ended, *rows]
        return made[0] if len(made) == 1 else relax.Tuple(made)

    def _batched_scan(self, node: Node) -> Value:
        """Scan each sequence of a batch by itself."""
        lengths, *given = node.inputs
        if lengths is not None:
            raise NotImplementedError("a Scan of sequences of several lengths")
        count = int(node.attrs["num_scan_inputs"])
        if any(_integers(node, "directions", count)):
            raise NotImplementedError("a Scan backwards over a batch")
        carried = len(given) - count
        given = [self.builder.emit(value) for value in given]

        def iteration(_: Values, rows: Values, __: Values) -> tuple[Values, Values]:
            ended, made = self._scanned(node.attrs["body"], rows[:carried], rows[carried:])
            return [], [*ended, *made]

        batch, *_ = shape_of(given[0])
        values: tuple[Values, Values, Values] = [], given, []
        _, made = scan(self.builder, "batch", batch, values, iteration, operators=1)
        return made[0] if len(made) == 1 else relax.Tuple(made)

    def _scanned(
        self, graph: onnx.GraphProto, state: Values, tensors: Values
    ) -> tuple[Values, Values]:
        state = [self.builder.emit(value) for value in state]
        tensors = [self.builder.emit(value) for value in tensors]
        rows = [relax.Var("row", _row(tensor)) for tensor in tensors]
        body, captured = self._settled(graph, [*state, *rows])
        outer, fixed = _variables(captured)

        def iteration(own: Values, rows: Values, inner: Values) -> tuple[Values, Values]:
            names = {**captured, **dict(zip(outer, inner, strict=True))}
            made = self.write(body, names | _named(body.input, [*own, *rows]))
            return made[: len(own)], made[len(own) :]

        count = shape_of(tensors[0])[0]
        values = state, tensors, fixed
        return scan(self.builder, "scan", count, values, iteration, operators=_operators(body))

    def _turned(self, tensor: Value, axis: int, to: int, is_backwards: int) -> Value:
        """Bring the scanned axis to another place, with its parts in the order of the scan."""
        rank = len(shape_of(tensor))
        axis, to = counted_axis(axis, rank), counted_axis(to, rank)
        order = [other for other in range(rank) if other != axis]
        order.insert(to, axis)
        turned = self.builder.emit(op.permute_dims(tensor, order)) if axis != to else tensor
        return self.builder.emit(op.flip(turned, to)) if is_backwards else turned

    def _settled(
        self, graph: onnx.GraphProto, inputs: Values
    ) -> tuple[onnx.GraphProto, dict[str, Value]]:
        """A body with its constants folded, and what it reads from around it."""
        captured = {name: self.names[name] for name in free_names(graph) if name in self.names}
        model = onnx.ModelProto(opset_import=[helper.make_opsetid("", self.opset)])
        model.ir_version = onnx.IR_VERSION
        model.graph.CopyFrom(graph)
        del model.graph.input[:], model.graph.value_info[:]
        for value, given in zip(graph.input, inputs, strict=True):
            model.graph.input.append(_typed(value.name, given))
        for name, value in captured.items():
            if isinstance(value, GenericConst) and value.value.numpy().size <= SHAPE_ELEMENTS:
                tensor = numpy_helper.from_array(value.value.numpy(), name)
                model.graph.initializer.append(tensor)
            elif isinstance(value.ty, relax.TensorType):
                model.graph.input.append(_typed(name, value))
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")
        folded = fold(model).graph
        del folded.input[len(inputs) :]
        return folded, {name: captured[name] for name in free_names(folded) if name in captured}


def _variables(captured: Mapping[str, Value]) -> tuple[list[str], Values]:
    """Names and values of what a body reads that is computed.

    Raises:
        NotImplementedError: a sequence is among them.
    """
    names = [name for name, value in captured.items() if not isinstance(value, GenericConst)]
    for name in names:
        if not isinstance(captured[name].ty, relax.TensorType):
            raise NotImplementedError(f"a loop that reads {name!r}, which is no tensor")
    return names, [captured[name] for name in names]


def _named(inputs: Sequence[onnx.ValueInfoProto], values: Values) -> dict[str, Value]:
    return {value.name: given for value, given in zip(inputs, values, strict=True)}


def _operators(body: onnx.GraphProto) -> int:
    """About how many operators a body has; branches must not be written into what is around it."""
    nodes = list(walk_nodes(body))
    has_branches = any(node.op_type == "If" for node in nodes)
    return _NEVER_UNROLLED if has_branches else len(nodes)


def _tensor(value: Value) -> Value:
    if not isinstance(value.ty, relax.TensorType):
        raise NotImplementedError("a loop that carries what is no tensor")
    return value


def _scalar(builder: relax.BlockBuilder, value: Value) -> Value:
    """A tensor of one element as one of rank 0."""
    if not _tensor(value).ty.ndim:
        return value
    if isinstance(value, GenericConst):
        return relax.const(value.value.numpy().reshape(()), dtype_of(value))
    return builder.emit(op.reshape(value, []))


def _row(tensor: Value) -> relax.TensorType:
    return relax.TensorType(shape_of(tensor)[1:], dtype_of(tensor))


def _typed(name: str, value: Value) -> onnx.ValueInfoProto:
    """A value's element type and shape, as ONNX writes them."""
    code = helper.np_dtype_to_tensor_dtype(np.dtype(_numpy_name(dtype_of(value))))
    return helper.make_tensor_value_info(name, code, shape_of(value))


def _numpy_name(dtype: str) -> Any:
    import ml_dtypes

    return getattr(ml_dtypes, dtype, dtype)


def _integers(node: Node, name: str, count: int) -> list[int]:
    return [int(value) for value in node.attrs.get(name, ())] or [0] * count
