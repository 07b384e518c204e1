"""Relax functions that end with a call of themselves: loops, whatever the count."""

from __future__ import annotations

import resource
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_tile

pytestmark = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
RNG = np.random.default_rng(0)
X, W = (RNG.standard_normal(shape).astype("float32") * 0.5 for shape in ((2, 4), (4, 4)))
MANY = 20_000  # calls within each other end at some 4,000, and the process with them


@I.ir_module
class While:
    @R.function(private=True)
    def loop(
        i: R.Tensor((), "int64"),
        n: R.Tensor((), "int64"),
        h: R.Tensor((2, 4), "float32"),
        w: R.Tensor((4, 4), "float32"),
    ) -> R.Tensor((2, 4), "float32"):
        cls = While
        c: R.Tensor((), "bool") = R.less(i, n)
        if c:
            a = R.matmul(h, w)
            t = R.tanh(a)
            j = R.add(i, R.const(1, "int64"))
            r: R.Tensor((2, 4), "float32") = cls.loop(j, n, t, w)
            out = r
        else:
            out = h
        return out

    @R.function
    def main(
        n: R.Tensor((), "int64"), x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 4), "float32")
    ) -> R.Tensor((2, 4), "float32"):
        cls = While
        y: R.Tensor((2, 4), "float32") = cls.loop(R.const(0, "int64"), n, x, w)
        z = R.add(y, x)
        return z


@I.ir_module
class SwappingMain:
    """``main`` itself is a loop with two ways on, of which one swaps what is carried."""

    @R.function
    def main(
        n: R.Tensor((), "int64"), x: R.Tensor((2, 4), "float32"), y: R.Tensor((2, 4), "float32")
    ) -> R.Tensor((2, 4), "float32"):
        cls = SwappingMain
        left = R.subtract(n, R.const(1, "int64"))
        done = R.less(left, R.const(0, "int64"))
        if done:
            out = R.subtract(x, y)
        else:
            is_odd = R.equal(R.floor_mod(left, R.const(2, "int64")), R.const(1, "int64"))
            doubled = R.multiply(x, R.const(1.25, "float32"))
            if is_odd:
                one: R.Tensor((2, 4), "float32") = cls.main(left, y, doubled)
                either = one
            else:
                sum = R.add(x, y)
                other: R.Tensor((2, 4), "float32") = cls.main(left, sum, doubled)
                either = other
            out = either
        return out


@I.ir_module
class Tree:
    """A function that calls itself twice, not at its end."""

    @R.function(private=True)
    def walk(
        node: R.Tensor((), "int64"),
        left: R.Tensor((7,), "int64"),
        right: R.Tensor((7,), "int64"),
        x: R.Tensor((7, 4), "float32"),
        w: R.Tensor((8, 4), "float32"),
    ) -> R.Tensor((1, 4), "float32"):
        cls = Tree
        first = R.take(left, node, axis=0, mode="clip")
        c: R.Tensor((), "bool") = R.less(first, R.const(0, "int64"))
        if c:
            v = R.take(x, node, axis=0, mode="clip")
            o = R.reshape(v, (1, 4))
        else:
            r = R.take(right, node, axis=0, mode="clip")
            a: R.Tensor((1, 4), "float32") = cls.walk(first, left, right, x, w)
            b: R.Tensor((1, 4), "float32") = cls.walk(r, left, right, x, w)
            ab = R.concat([a, b], axis=1)
            m = R.matmul(ab, w)
            o = R.tanh(m)
        return o

    @R.function
    def main(
        root: R.Tensor((), "int64"),
        left: R.Tensor((7,), "int64"),
        right: R.Tensor((7,), "int64"),
        x: R.Tensor((7, 4), "float32"),
        w: R.Tensor((8, 4), "float32"),
    ) -> R.Tensor((1, 4), "float32"):
        cls = Tree
        y: R.Tensor((1, 4), "float32") = cls.walk(root, left, right, x, w)
        return y


def test_a_loop_of_any_count_takes_the_memory_of_one_iteration(tmp_path: Path) -> None:
    tvm_tile.compile(While, "emulated").save(tmp_path / "loop.tvmtile")
    model = tvm_tile.load(tmp_path / "loop.tvmtile")
    peaks = []
    for count in (0, 1, 5, 500, MANY):
        h = X
        for _ in range(count):
            h = np.tanh(h @ W)
        found = model(np.array(count), X, W)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
        np.testing.assert_allclose(found, h + X, rtol=1e-4, atol=1e-4)
    assert peaks[-1] - peaks[-2] < 16  # MiB


def test_a_loop_with_several_ends_and_ways_on() -> None:
    def main(n: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        for left in range(n - 1, -1, -1):
            x, y = (y if left % 2 else x + y), x * np.float32(1.25)
        return x - y

    model = tvm_tile.compile(SwappingMain, "emulated")
    y = np.flip(X).copy()
    for count in (0, 1, 2, 7):
        np.testing.assert_allclose(model(np.array(count), X, y), main(count, X, y), rtol=1e-5)


def test_a_tree_is_walked_by_calls() -> None:
    left, right = np.array([-1, -1, -1, -1, 0, 2, 4]), np.array([-1, -1, -1, -1, 1, 3, 5])
    x, w = (RNG.standard_normal(shape).astype("float32") for shape in ((7, 4), (8, 4)))

    def walk(node: int) -> np.ndarray:
        if left[node] < 0:
            return x[node : node + 1]
        return np.tanh(np.concatenate([walk(left[node]), walk(right[node])], 1) @ w)

    model = tvm_tile.compile(Tree, "emulated")
    np.testing.assert_allclose(model(np.array(6), left, right, x, w), walk(6), rtol=1e-5)
