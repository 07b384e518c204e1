"""Relax modules with functions that call themselves, and what they compute, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.loops import either, repeat, repeat_while, written

HIDDEN = 16
NUMBER = relax.TensorType((), "int64")
ROW = relax.TensorType((1, HIDDEN), "float32")


@dataclass(frozen=True, slots=True)
class Recursive:
    """A model.

    Attributes:
        mod: itself.
        inputs: of its call of a number.
        expected: what it makes of inputs.
    """

    mod: tvm.IRModule
    inputs: Callable[[int], tuple[np.ndarray, ...]]
    expected: Callable[..., np.ndarray]


class Writer:
    """Writes a module's functions."""

    def __init__(self) -> None:
        self.builder = relax.BlockBuilder()
        self.emit = self.builder.emit

    def declared(self, name: str, kinds: Sequence[Any], result: Any) -> Any:
        """The name of a function that is yet to be written."""
        function = tvm.ir.GlobalVar(name)
        relax.expr._update_type(function, relax.FuncType(list(kinds), result))
        return function

    def write(self, function: Any, body: Callable[..., Any]) -> None:
        """Write a function, whose body makes its result of its parameters."""
        kinds = function.ty.params
        params = [relax.Var(f"p{number}", kind) for number, kind in enumerate(kinds)]
        self.builder.begin_scope(params)
        self.builder._begin_binding_block()
        made = self.builder.normalize(body(*params))
        sequence = self.builder.normalize(relax.SeqExpr([self.builder._end_block()], made))
        self.builder.end_scope()
        self.builder.update_func(function, relax.Function(params, sequence, function.ty.ret))

    def main(self, kinds: Sequence[Any], body: Callable[..., Any]) -> tvm.IRModule:
        """The module, whose ``main`` makes its result of its inputs."""
        params = [relax.Var(f"in{number}", kind) for number, kind in enumerate(kinds)]
        with self.builder.function("main", params):
            self.builder.emit_func_output(self.emit(body(*params)))
        return self.builder.get()

    def call(self, function: Any, *arguments: Any) -> Any:
        """What a function makes."""
        return self.emit(relax.Call(function, list(arguments)))

    def either(self, condition: Any, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
        """One of two values."""
        return either(self.builder, self.emit(condition), then, other)


def random_tree(rng: np.random.Generator, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Children of each node, -1 of leaves, which are the first ones; the last is the root."""
    left, right = np.full(nodes, -1), np.full(nodes, -1)
    roots = list(range((nodes + 1) // 2))
    for node in range(len(roots), nodes):
        at = int(rng.integers(len(roots) - 1))
        left[node], right[node] = roots[at : at + 2]
        roots[at : at + 2] = [node]
    return left, right


def depth_of(left: np.ndarray, right: np.ndarray, node: int) -> int:
    """Nodes on the longest way from a node to a leaf."""
    if left[node] < 0:
        return 1
    return 1 + max(depth_of(left, right, int(child[node])) for child in (left, right))


def _tree_inputs(nodes: int) -> Callable[[int], tuple[np.ndarray, ...]]:
    def inputs(number: int) -> tuple[np.ndarray, ...]:
        rng = np.random.default_rng(number)
        x = rng.standard_normal((nodes, HIDDEN)).astype("float32")
        return x, *random_tree(rng, nodes)

    return inputs


def _weights() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((2 * HIDDEN, HIDDEN)).astype("float32") * 0.3
    return weight, rng.standard_normal(HIDDEN).astype("float32")


def _encoder(writer: Writer, nodes: int, behind: Callable[[Any], Any]) -> Any:
    """The function ``encode(node, x, left, right)`` of a tree."""
    tree = relax.TensorType((nodes,), "int64")
    vectors = relax.TensorType((nodes, HIDDEN), "float32")
    encode = writer.declared("encode", (NUMBER, vectors, tree, tree), ROW)
    weight, bias = map(relax.const, _weights())

    def body(node: Any, x: Any, left: Any, right: Any) -> Any:
        first = writer.emit(op.take(left, node, axis=0))

        def inner() -> Any:
            second = writer.emit(op.take(right, node, axis=0))
            parts = [writer.call(encode, child, x, left, right) for child in (first, second)]
            joined = writer.emit(op.concat(parts, axis=1))
            product = writer.emit(op.matmul(joined, weight))
            return behind(writer.emit(op.tanh(writer.emit(op.add(product, bias)))))

        def leaf() -> Any:
            return op.reshape(writer.emit(op.take(x, node, axis=0)), ROW.shape)

        return writer.either(op.less(first, relax.const(0, "int64")), leaf, inner)

    writer.write(encode, body)
    return encode


def _encoded(x: Any, left: Any, right: Any, node: int, behind: Callable[[Any], Any]) -> Any:
    if left[node] < 0:
        return x[node : node + 1].astype("float64")
    parts = [_encoded(x, left, right, int(child[node]), behind) for child in (left, right)]
    weight, bias = _weights()
    return behind(np.tanh(np.concatenate(parts, axis=1) @ weight.astype("float64") + bias))


def one_tree(nodes: int = 15) -> Recursive:
    """The root of a tree that is an input."""
    writer = Writer()
    encode = _encoder(writer, nodes, lambda row: row)
    mod = writer.main(
        encode.ty.params[1:],
        lambda *tree: relax.Call(encode, [relax.const(nodes - 1, "int64"), *tree]),
    )

    def expected(x: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.asarray(_encoded(x, left, right, nodes - 1, lambda row: row))

    return Recursive(mod, _tree_inputs(nodes), expected)


def all_nodes(nodes: int = 9) -> Recursive:
    """The sum of all nodes of a tree: a loop that calls a function that has a loop and calls
    itself."""
    writer = Writer()
    builder = writer.builder
    halve = written(builder, "halve", [relax.Var("h", ROW)], lambda v: [op.multiply(v[0], _HALF)])
    encode = _encoder(writer, nodes, lambda row: repeat(builder, "halves", 3, halve, [row], [])[0])
    tree = encode.ty.params[1:]

    def turn(values: list[Any]) -> list[Any]:
        node, total, *rest = values
        more = writer.call(encode, node, *rest)
        following = writer.emit(op.add(node, relax.const(1, "int64")))
        goes_on = op.less(following, relax.const(nodes, "int64"))
        return [goes_on, following, op.add(total, more)]

    state = [relax.Var("node", NUMBER), relax.Var("total", ROW)]
    own = [relax.Var(f"t{number}", kind) for number, kind in enumerate(tree)]
    step = written(builder, "step", [*state, *own], turn)

    def main(*given: Any) -> Any:
        zeros = relax.const(np.zeros((1, HIDDEN), "float32"))
        first = [relax.const(True, "bool"), relax.const(0, "int64"), zeros]
        return repeat_while(builder, "nodes", step, first, list(given))[1]

    def expected(x: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        rows = (_encoded(x, left, right, node, lambda row: row / 8) for node in range(nodes))
        return np.asarray(sum(rows))

    return Recursive(writer.main(tree, main), _tree_inputs(nodes), expected)


_HALF = relax.const(0.5, "float32")


def changing() -> Recursive:
    """``f(n, a) = n < 2: a * n, else f(n - 1, a / 2) + f(n - 2, a + f(n - 2, a))``, twice."""
    writer = Writer()
    f = writer.declared("f", (NUMBER, ROW), ROW)

    def body(n: Any, a: Any) -> Any:
        def more() -> Any:
            one, two = (writer.emit(op.subtract(n, relax.const(k, "int64"))) for k in (1, 2))
            first = writer.call(f, one, writer.emit(op.multiply(a, _HALF)))
            inner = writer.call(f, two, a)
            second = writer.call(f, two, writer.emit(op.add(a, inner)))
            return op.add(first, second)

        end = op.less(n, relax.const(2, "int64"))
        return writer.either(end, lambda: op.multiply(a, op.astype(n, "float32")), more)

    writer.write(f, body)
    mod = writer.main(
        (NUMBER, ROW), lambda n, a: op.add(writer.call(f, n, a), writer.call(f, n, a))
    )

    def value(n: int, a: np.ndarray) -> np.ndarray:
        if n < 2:
            return a * n
        return value(n - 1, a / 2) + value(n - 2, a + value(n - 2, a))

    def inputs(number: int) -> tuple[np.ndarray, ...]:
        row = np.random.default_rng(number).standard_normal((1, HIDDEN)).astype("float32")
        return np.array(number + 1), row

    return Recursive(mod, inputs, lambda n, a: 2 * value(int(n), a.astype("float64")))


def taking_turns() -> Recursive:
    """Two functions that call each other, with an argument that only one of them changes."""
    writer = Writer()
    even, odd = (writer.declared(name, (NUMBER, ROW, ROW), ROW) for name in ("even", "odd"))
    one = relax.const(1, "int64")

    def body(other: Any, change: Callable[[Any], Any]) -> Callable[..., Any]:
        def write(n: Any, a: Any, b: Any) -> Any:
            def more() -> Any:
                less = writer.emit(op.subtract(n, one))
                made = writer.call(other, less, writer.emit(change(a)), b)
                return op.add(op.tanh(made), b)

            return writer.either(op.less(n, one), lambda: op.add(a, b), more)

        return write

    writer.write(even, body(odd, lambda a: op.multiply(a, _HALF)))
    writer.write(odd, body(even, lambda a: op.add(a, _HALF)))
    mod = writer.main((NUMBER, ROW, ROW), lambda n, a, b: writer.call(even, n, a, b))

    def expected(n: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        value = a.astype("float64")
        for turn in range(int(n)):
            value = value + 0.5 if turn % 2 else value * 0.5
        value = value + b
        for _ in range(int(n)):
            value = np.tanh(value) + b
        return np.asarray(value)

    def inputs(number: int) -> tuple[np.ndarray, ...]:
        rng = np.random.default_rng(number)
        rows = (rng.standard_normal((1, HIDDEN)).astype("float32") for _ in range(2))
        return np.array(number * 2), *rows

    return Recursive(mod, inputs, expected)


def in_a_loop() -> Recursive:
    """``f(n, a) = n < 1: a, else (thrice: a = a + f(n - 1, a / 2)); a``."""
    writer = Writer()
    f = writer.declared("f", (NUMBER, ROW), ROW)
    one = relax.const(1, "int64")

    def turn(values: list[Any]) -> list[Any]:
        a, less = values
        return [op.add(a, writer.call(f, less, writer.emit(op.multiply(a, _HALF))))]

    kinds = relax.Var("a", ROW), relax.Var("less", NUMBER)
    step = written(writer.builder, "step", list(kinds), turn)

    def body(n: Any, a: Any) -> Any:
        def more() -> Any:
            less = writer.emit(op.subtract(n, one))
            return repeat(writer.builder, "thrice", 3, step, [a], [less])[0]

        return writer.either(op.less(n, one), lambda: op.multiply(a, _HALF), more)

    writer.write(f, body)

    def value(n: int, a: np.ndarray) -> np.ndarray:
        if n < 1:
            return a / 2
        for _ in range(3):
            a = a + value(n - 1, a / 2)
        return a

    mod = writer.main((NUMBER, ROW), lambda n, a: writer.call(f, n, a))
    return Recursive(mod, changing().inputs, lambda n, a: value(int(n), a.astype("float64")))


def jumping() -> Recursive:
    """``f(n, a) = n < 1: a, else f(n - 1, tanh(a))``."""
    writer = Writer()
    f = writer.declared("f", (NUMBER, ROW), ROW)
    one = relax.const(1, "int64")

    def body(n: Any, a: Any) -> Any:
        def more() -> Any:
            return writer.call(f, writer.emit(op.subtract(n, one)), writer.emit(op.tanh(a)))

        return writer.either(op.less(n, one), lambda: op.multiply(a, _HALF), more)

    writer.write(f, body)

    def value(n: np.ndarray, a: np.ndarray) -> np.ndarray:
        row = a.astype("float64")
        for _ in range(int(n)):
            row = np.tanh(row)
        return row / 2

    mod = writer.main((NUMBER, ROW), lambda n, a: writer.call(f, n, a))
    return Recursive(mod, changing().inputs, value)
