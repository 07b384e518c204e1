"""Random products with matrices that rows look up, on the emulated device, next to NumPy."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

import tvm_tile
from bench.onnx_forms import Draw

pytest.importorskip("pyopencl")
pytestmark = pytest.mark.bank(10)

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Value:
    """What a graph computes, and what it should be, in float64 or integers."""

    expr: relax.Expr
    array: Array


@dataclass(slots=True)
class Graph:
    """A random graph in the making.

    Attributes:
        draw: its random choices.
        dtype: element type of its numbers.
        builder: what writes it.
        inputs: its inputs, with what is given for them.
    """

    draw: Draw
    dtype: str
    builder: relax.BlockBuilder = field(default_factory=relax.BlockBuilder)
    inputs: list[tuple[relax.Var, Array]] = field(default_factory=list)

    def given(self, array: Array, *, may_be_constant: bool = True) -> Value:
        """An input, or now and then a constant."""
        wanted = array if array.dtype.kind == "i" else array.astype("float64")
        if may_be_constant and self.draw.maybe(0.4):
            return Value(relax.const(array, str(array.dtype)), wanted)
        ty = relax.TensorType(array.shape, str(array.dtype))
        var = relax.Var(f"x{len(self.inputs)}", ty)
        self.inputs.append((var, array))
        return Value(var, wanted)

    def numbers(self, *shape: int) -> Value:
        array = self.draw.normal(shape).astype(np.dtype(self.dtype))
        return self.given(array)

    def emit(self, expr: relax.Expr, array: Array) -> Value:
        return Value(self.builder.emit(expr), array)


def chosen(graph: Graph, groups: int) -> tuple[Value, int]:
    """Numbers of matrices, given or computed or the best ones; and how many a token has."""
    d = graph.draw
    rows, kind = d.int(1, 20), d.choose("given", "outside", "shifted", "argmax", "topk")
    if kind in ("given", "outside", "shifted"):
        low, high = (-2, groups + 2) if kind == "outside" else (0, groups)
        ids = graph.given(d.rng.integers(low, high, rows).astype(d.choose("int32", "int64")))
        if kind == "shifted":
            shift = d.int(-1, 1)
            one = relax.const(shift, str(ids.expr.ty.dtype))
            return graph.emit(op.add(ids.expr, one), ids.array + shift), 1
        return ids, 1
    scores = graph.given(d.normal((rows, groups)), may_be_constant=False)
    if kind == "argmax":
        return graph.emit(op.argmax(scores.expr, 1), scores.array.argmax(1)), 1
    count = d.int(1, groups)
    found = graph.builder.emit(op.topk(scores.expr, count, 1, ret_type="indices", dtype="int64"))
    best = np.argsort(-scores.array, 1, "stable")[:, :count]
    return graph.emit(op.reshape(found, (rows * count,)), best.reshape(-1)), count


def looked_up(graph: Graph, table: Value, ids: Value) -> Value:
    """Each row's own part of a table; numbers outside of it are the nearest within."""
    array = table.array.take(ids.array, 0, mode="clip")
    return graph.emit(op.take(table.expr, ids.expr, 0, "clip"), array)


def matrices(graph: Graph, ids: Value, groups: int, shape: tuple[int, int]) -> Value:
    """Each row's own matrix of a shape, which may lie transposed, or be computed for all."""
    d = graph.draw
    rows, columns = shape
    kind = d.choose("plain", "turned", "turned", "turned first", "computed")
    if kind.startswith("turned"):
        table = graph.numbers(groups, columns, rows)
        if kind == "turned first":
            turned = op.permute_dims(table.expr, [0, 2, 1])
            return looked_up(graph, graph.emit(turned, table.array.swapaxes(1, 2)), ids)
        own = looked_up(graph, table, ids)
        return graph.emit(op.permute_dims(own.expr, [0, 2, 1]), own.array.swapaxes(1, 2))
    table = graph.numbers(groups, rows, columns)
    if kind == "computed":
        table = graph.emit(op.abs(table.expr), np.abs(table.array))
    return looked_up(graph, table, ids)


def product(graph: Graph, x: Value, ids: Value, groups: int) -> Value:
    """Rows (rows, ., depth) times their own matrices, or these times the rows."""
    d = graph.draw
    width, depth = d.int(1, 40), x.array.shape[2]
    if d.maybe(0.15):
        own = matrices(graph, ids, groups, (width, x.array.shape[1]))
        factors = own, x
    else:
        factors = x, matrices(graph, ids, groups, (depth, width))
    scale = 1 / np.sqrt(factors[0].array.shape[2])
    left, right = (factor.expr for factor in factors)
    y = graph.emit(op.matmul(left, right), factors[0].array @ factors[1].array)
    return graph.emit(op.multiply(y.expr, relax.const(scale, graph.dtype)), y.array * scale)


def epilogue(graph: Graph, y: Value, ids: Value, groups: int) -> Value:
    """What may stand behind a product: biases that are looked up, weights of rows, activations."""
    d, (rows, _, columns) = graph.draw, y.array.shape
    if d.maybe():
        bias = looked_up(graph, graph.numbers(groups, columns), ids)
        bias = graph.emit(op.expand_dims(bias.expr, 1), bias.array[:, None])
        y = graph.emit(op.add(y.expr, bias.expr), y.array + bias.array)
    if d.maybe(0.3):
        weight = graph.numbers(rows, 1, 1)
        y = graph.emit(op.multiply(y.expr, weight.expr), y.array * weight.array)
    if d.maybe(0.4):
        y = graph.emit(op.nn.relu(y.expr), np.maximum(y.array, 0))
    if d.maybe(0.2):
        other = graph.numbers(*y.array.shape)
        y = graph.emit(op.add(y.expr, other.expr), y.array + other.array)
    return y


def drawn(seed: int) -> tuple[Graph, list[Value]]:
    """The graph of a seed, and its results."""
    d = Draw(seed)
    graph = Graph(d, d.choose("float32", "bfloat16"))
    with graph.builder.function("main"):
        with graph.builder.dataflow():
            results = layers(graph, d.int(1, 7))
            outputs = graph.builder.emit_output(relax.Tuple([value.expr for value in results]))
        graph.builder.emit_func_output(outputs, [var for var, _ in graph.inputs])
    return graph, results


def layers(graph: Graph, groups: int) -> list[Value]:
    """One or two layers of what tokens choose, and sums over these where they choose several."""
    d = graph.draw
    ids, count = chosen(graph, groups)
    tokens, several, depth = len(ids.array) // count, d.choose(1, 1, 1, d.int(2, 5)), d.int(1, 40)
    x = graph.numbers(tokens, 1, several * depth)
    shape = (tokens, count, several * depth)
    rows = graph.builder.emit(op.broadcast_to(x.expr, shape))
    array = np.broadcast_to(x.array, shape).reshape(-1, several, depth)
    y = graph.emit(op.reshape(rows, array.shape), array)
    results = []
    for _ in range(d.choose(1, 1, 2)):
        y = epilogue(graph, product(graph, y, ids, groups), ids, groups)
        if d.maybe(0.2):
            results.append(y)
    if count > 1:
        shape = (tokens, count, *y.array.shape[1:])
        parts = graph.emit(op.reshape(y.expr, shape), y.array.reshape(shape))
        y = graph.emit(op.sum(parts.expr, 1), parts.array.sum(1))
    return [*results, y]


@pytest.mark.parametrize("seed", range(100))
def test_rows_meet_their_own_matrices(seed: int) -> None:
    graph, results = drawn(seed)
    options = tvm_tile.Options(cache=False)
    compiled = tvm_tile.compile(graph.builder.finalize(), "emulated", options=options)
    found = compiled(*(array for _, array in graph.inputs))
    tolerance = 1e-4 if graph.dtype == "float32" else 3e-2
    for own, value in zip(found if isinstance(found, tuple) else (found,), results, strict=True):
        error = np.abs(np.asarray(own, "float64") - value.array).max()
        assert error <= tolerance * max(1.0, np.abs(value.array).max())
