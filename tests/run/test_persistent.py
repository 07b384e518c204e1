"""Persistent kernels on the CPU, all blocks at once, against TVM's CPU build of the same model."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from grid_emulator import COMPILER, Stuck
from kernels import relative_difference
from persistent_runs import Emulation, Joined, joined
from tvm import relax
from tvm.relax import op

from tvm_tile.device import Device, find_device
from tvm_tile.frontend import import_model
from tvm_tile.plan.records import BODY, NOTHING, WAIT_COUNT, WAITS

pytestmark = pytest.mark.skipif(not COMPILER, reason="needs g++")
ROWS, COLUMNS = 8, 32
IMAGE = (1, 4, 8, 8)  # as many elements
SEEDS = range(4)  # orders in which blocks go on


def device(processors: int) -> Device:
    return replace(find_device("nvidia/h200"), multi_processor_count=processors)


class RandomModel:
    """A graph of small operators, each of whose values is ``ROWS`` by ``COLUMNS``."""

    def __init__(self, seed: int, count: int) -> None:
        self._random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        kinds = [getattr(self, name) for name in dir(self) if name.startswith("op_")]
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((ROWS, COLUMNS), "float32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                self._values = [x]
                for _ in range(count):
                    value = self._random.choice(kinds)()
                    self._values.append(builder.emit(value))
                # One that others read, too, and the last.
                kept = [self._random.choice(self._values[1:-1]), self._values[-1]]
                results = builder.emit_output(relax.Tuple(kept))
            builder.emit_func_output(results)
        self.mod = builder.get()

    def _any(self) -> Any:
        return self._random.choice(self._values[-4:])

    def _weights(self, *shape: int) -> Any:
        drawn = self._numbers.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return relax.const(drawn.astype(np.float32))

    def op_product(self) -> Any:
        return op.matmul(self._any(), self._weights(COLUMNS, COLUMNS))

    def op_scores(self) -> Any:
        a = self._any()
        return op.matmul(op.nn.softmax(op.matmul(a, op.permute_dims(self._any()))), a)

    def op_relu(self) -> Any:
        return op.nn.relu(self._any())

    def op_add(self) -> Any:
        return op.add(self._any(), self._any())

    def op_softmax(self) -> Any:
        return op.nn.softmax(self._any())

    def op_conv(self) -> Any:
        image = op.reshape(self._any(), IMAGE)
        image = op.nn.conv2d(image, self._weights(4, 4, 3, 3), padding=1)
        return op.reshape(image, (ROWS, COLUMNS))

    def op_pool(self) -> Any:
        image = op.nn.max_pool2d(op.reshape(self._any(), IMAGE), (3, 3), padding=1)
        return op.reshape(image, (ROWS, COLUMNS))

    def op_rows(self) -> Any:
        """Rows of both, which lie one behind the other."""
        both = op.concat([self._any(), self._any()], 0)
        return op.strided_slice(both, [0], [ROWS // 2], [ROWS // 2 + ROWS])

    def op_columns(self) -> Any:
        both = op.concat([self._any(), self._any()], 1)
        return op.strided_slice(both, [1], [COLUMNS // 2], [COLUMNS // 2 + COLUMNS])

    def op_halves(self) -> Any:
        parts = op.split(self._any(), 2, 0)
        return op.concat([relax.TupleGetItem(parts, number) for number in (1, 0)], 0)


def cpu_build(mod: tvm.IRModule, *inputs: np.ndarray) -> list[np.ndarray]:
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    outputs = machine["main"](*[tvm.runtime.tensor(array) for array in inputs])
    return [o.numpy() for o in ([outputs] if hasattr(outputs, "numpy") else outputs)]


def is_right(model: Joined, x: np.ndarray, wanted: list[np.ndarray], folder: Path) -> None:
    """Right, and the same in whatever order blocks go on."""
    run = Emulation(model, folder)
    first, *others = [run(x, seed=seed) for seed in SEEDS]
    for found, want in zip(first, wanted, strict=True):
        assert relative_difference(found, want) < 1e-5
    for other in others:
        for found, want in zip(other, first, strict=True):
            np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("uses_flags", [False, True], ids=["barriers", "flags"])
@pytest.mark.parametrize("seed", range(6))
def test_a_random_graph_computes_what_the_cpu_does(
    seed: int, uses_flags: bool, tmp_path: Path
) -> None:
    mod = RandomModel(seed, 14).mod
    x = np.random.default_rng(seed).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    model = joined(mod, device(4 + seed % 5), uses_flags=uses_flags)
    (made,) = model.made
    assert len(made.operators) > 5 and made.plan.num_veus > 1
    is_right(model, x, cpu_build(mod, x), tmp_path)
