"""Recurrent cells and other products of few rows that meet element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernels import Case, Input
from tvm import relax
from tvm.relax import op


def constant(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> Any:
    return relax.const(rng.standard_normal(shape).astype(np.float32).astype(dtype))


def times(x: Any, weights: Any) -> Any:
    """A product as the front doors state it: added up in float32, rounded once."""
    dtype = str(weights.ty.dtype)
    if dtype == "float32":
        return op.matmul(x, weights)
    return op.astype(op.matmul(x, weights, out_dtype="float32"), dtype)


def wide(function: Any, x: Any, dtype: str) -> Any:
    """In float32, as the front doors state functions of halves."""
    if dtype == "float32":
        return function(x)
    return op.astype(function(op.astype(x, "float32")), dtype)


def parts(x: Any, count: int) -> list[Any]:
    whole = op.split(x, count, axis=-1)
    return [relax.TupleGetItem(whole, number) for number in range(count)]


def lstm(
    rows: int,
    inputs: int,
    hidden: int,
    state: int | None = None,
    *,
    dtype: str = "float32",
    peepholes: bool = False,
) -> Case:
    """(x, h, c) to the new h and c; ``state`` is the width of h, if another than of c."""
    rng = np.random.default_rng(0)
    width = hidden if state is None else state
    w, r = (constant(rng, depth, 4 * hidden, dtype=dtype) for depth in (inputs, width))
    b, b2 = (constant(rng, 4 * hidden, dtype=dtype) for _ in range(2))
    holes = [constant(rng, hidden, dtype=dtype) for _ in range(3)] if peepholes else []

    def seen(gate: Any, number: int, c: Any) -> Any:
        return op.add(gate, op.multiply(holes[number], c)) if holes else gate

    def body(x: Any, h: Any, c: Any) -> tuple[Any, ...]:
        sums = op.add(op.add(times(x, w), b), op.add(times(h, r), b2))
        enter, keep, new, leave = parts(sums, 4)
        enter, keep = (wide(op.sigmoid, seen(g, n, c), dtype) for n, g in enumerate((enter, keep)))
        new_c = op.add(op.multiply(keep, c), op.multiply(enter, wide(op.tanh, new, dtype)))
        leave = wide(op.sigmoid, seen(leave, 2, new_c), dtype)
        return op.multiply(leave, wide(op.tanh, new_c, dtype)), new_c

    name = f"lstm_{rows}x{inputs}x{width}x{hidden}_{dtype}" + "_peepholes" * peepholes
    shapes = ((rows, inputs), (rows, width), (rows, hidden))
    return Case(name, "gates", body, tuple(Input(shape, dtype) for shape in shapes))


def gru(rows: int, inputs: int, hidden: int) -> Case:
    """(x, h) to the new h, reset after the product, each gate of weights of its own."""
    rng = np.random.default_rng(0)
    ws = [constant(rng, inputs, hidden) for _ in range(3)]
    rs = [constant(rng, hidden, hidden) for _ in range(3)]

    def body(x: Any, h: Any) -> Any:
        own, seen = ([times(v, m) for m in ms] for v, ms in ((x, ws), (h, rs)))
        update, reset = (op.sigmoid(op.add(own[n], seen[n])) for n in range(2))
        new = op.tanh(op.add(own[2], op.multiply(reset, seen[2])))
        return op.add(new, op.multiply(update, op.subtract(h, new)))

    inputs_ = (Input((rows, inputs)), Input((rows, hidden)))
    return Case(f"gru_{rows}x{inputs}x{hidden}", "gates", body, inputs_)


def swiglu(rows: int, inputs: int, hidden: int) -> Case:
    rng = np.random.default_rng(0)
    w, v = (constant(rng, inputs, hidden) for _ in range(2))

    def body(x: Any) -> Any:
        return op.multiply(op.nn.silu(times(x, w)), times(x, v))

    return Case(f"swiglu_{rows}x{inputs}x{hidden}", "gates", body, (Input((rows, inputs)),))


def halves(rows: int, inputs: int, hidden: int) -> Case:
    """One product, whose columns' halves are two outputs."""
    w = constant(np.random.default_rng(0), inputs, 2 * hidden)

    def body(x: Any) -> tuple[Any, ...]:
        first, second = parts(times(x, w), 2)
        return op.nn.relu(first), op.tanh(second)

    return Case(f"halves_{rows}x{inputs}x{hidden}", "gates", body, (Input((rows, inputs)),))


GATES_CASES = (
    lstm(1, 32, 32),
    lstm(1, 256, 256),
    lstm(3, 64, 33, 32),
    lstm(4, 70, 7, 35),
    lstm(16, 32, 40, 128),
    lstm(2, 520, 50, 300, peepholes=True),
    lstm(1, 48, 24, peepholes=True),
    lstm(2, 64, 40, dtype="float16"),
    gru(1, 100, 60),
    gru(5, 32, 9),
    swiglu(1, 1000, 300),
    swiglu(7, 36, 11),
    halves(1, 300, 129),
)
