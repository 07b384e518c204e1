"""Persistent kernels on the CPU, all blocks at once, against TVM's CPU build of the same model."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from cpu_build import CPU
from grid_emulator import Stuck
from kernels import relative_difference
from persistent_runs import Emulation, Joined, Kernels
from precompiled import COMPILER
from scheduled import relax_module
from tvm import relax
from tvm.relax import op

import tvm_tile
from tvm_tile.device import Device, find_device
from tvm_tile.frontend import import_model
from tvm_tile.plan.records import ARGUMENTS, WAIT_COUNT, WAITS
from tvm_tile.schedule import ranking
from tvm_tile.stages.coscheduling import PERSISTENT
from tvm_tile.stages.forced import Forced

pytestmark = [pytest.mark.bank(4), pytest.mark.skipif(not COMPILER, reason="needs g++")]
ROWS, COLUMNS = 8, 32
IMAGE = (1, 4, 8, 8)  # as many elements
WORDS = 32  # of a record of few arguments
RUNS = 1000  # on a GPU
SEEDS = range(6)  # orders in which blocks go on


def device(processors: int) -> Device:
    """An H200 of few multiprocessors."""
    return replace(find_device("nvidia/h200"), multi_processor_count=processors)


@pytest.fixture
def only_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rule is asked whose kernels are no rTasks, as those of attention are not."""
    finders = tuple(finder for finder in ranking.RULES if finder.rule.is_task)
    monkeypatch.setattr(ranking, "RULES", finders)


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


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def cpu_build(mod: tvm.IRModule, *inputs: np.ndarray) -> list[np.ndarray]:
    machine = relax.VirtualMachine(tvm.compile(mod, CPU), tvm.cpu())
    outputs = machine["main"](*[tvm.runtime.tensor(array) for array in inputs])
    return [o.numpy() for o in ([outputs] if hasattr(outputs, "numpy") else outputs)]


def is_right(found: list[np.ndarray], wanted: list[np.ndarray]) -> bool:
    pairs = zip(found, wanted, strict=True)
    return all(relative_difference(own, want) < 1e-5 for own, want in pairs)


def check(model: Joined, x: np.ndarray, wanted: list[np.ndarray], folder: Path) -> None:
    """Right, and the same in whatever order blocks go on."""
    run = Emulation(model, folder)
    first, *others = [run(x, seed=seed) for seed in SEEDS]
    assert is_right(first, wanted)
    for other in others:
        for found, want in zip(other, first, strict=True):
            np.testing.assert_array_equal(found, want)


@pytest.mark.usefixtures("only_tasks")
@pytest.mark.parametrize("seed", range(3))
def test_a_random_graph_computes_what_the_cpu_does(seed: int, tmp_path: Path) -> None:
    mod, x = RandomModel(seed, 14).mod, normal(ROWS, COLUMNS)
    kernels, wanted = Kernels(mod, device(4 + seed)), cpu_build(mod, x)
    for uses_flags in (False, True):
        model = kernels.joined(uses_flags=uses_flags)
        (made,) = model.made
        assert len(made.operators) > 5
        check(model, x, wanted, tmp_path)


@pytest.mark.parametrize("count", [12, 40])
def test_more_tensors_than_a_block_has_threads(count: int, tmp_path: Path) -> None:
    """Records of more words than threads, found by random graphs: words were left unread."""

    def body(*values: Any) -> Any:
        total = values[0]
        for value in values[1:]:
            total = op.add(total, value)
        return op.multiply(total, op.sum(total, [1], keepdims=True))

    inputs = list(np.split(normal(count, 32), count))
    mod = relax_module(body, ((1, 32),) * count)
    model = Kernels(mod, device(4)).joined(uses_flags=True)
    (made,) = model.made
    assert made.plan.block_size < ARGUMENTS + 2 * (count + 1)
    assert is_right(Emulation(model, tmp_path)(*inputs), cpu_build(mod, *inputs))


@pytest.fixture(scope="module")
def chain() -> tuple[Kernels, np.ndarray, list[np.ndarray]]:
    """Three products, each of several blocks, which read all that those before them wrote."""
    weights = [relax.const(normal(128, 128) / 10) for _ in range(3)]

    def body(x: Any) -> Any:
        for own in weights:
            x = op.nn.softmax(op.matmul(x, own))
        return x

    mod, x = relax_module(body, ((4, 128),)), normal(4, 128)
    return Kernels(mod, device(4)), x, cpu_build(mod, x)


@pytest.mark.parametrize("uses_flags", [False, True], ids=["barriers", "flags"])
def test_without_a_wait_some_order_is_found_wrong(
    chain: Any, uses_flags: bool, tmp_path: Path
) -> None:
    kernels, x, wanted = chain
    model = kernels.joined(uses_flags=uses_flags)

    def without_waits(records: np.ndarray) -> None:
        records.reshape(-1, WORDS)[:, WAIT_COUNT] = 0

    check(model, x, wanted, tmp_path)
    run = Emulation(model, tmp_path, without_waits)
    assert not all(is_right(run(x, seed=seed), wanted) for seed in SEEDS)


def test_a_wait_for_more_than_comes_is_found(chain: Any, tmp_path: Path) -> None:
    kernels, x, _ = chain

    def too_far(records: np.ndarray) -> None:
        rows = records.reshape(-1, WORDS)
        rows[rows[:, WAIT_COUNT] > 0, WAITS + 1] += 1

    run = Emulation(kernels.joined(uses_flags=True), tmp_path, too_far)
    with pytest.raises(Stuck):
        run(x)


def small_lstm(steps: int) -> Any:
    torch = pytest.importorskip("torch")
    from bench.suites.networks.lstm import LastState, StackedLSTM

    torch.manual_seed(0)
    return LastState(StackedLSTM(2, 32, 32)).eval(), torch.from_numpy(normal(steps, 1, 32))


def test_an_lstm_keeps_its_weights(tmp_path: Path) -> None:
    net, x = small_lstm(4)
    kernels = Kernels(import_model(net, example_inputs=(x,)).mod, device(6))
    wanted = net.double()(x.double()).detach().numpy()
    for uses_flags in (False, True):
        model = kernels.joined(uses_flags=uses_flags)
        (made,) = model.made
        # Steps of a layer between its first and its last are calls of one function.
        assert sum(made.plan.residents) == 4
        check(model, x.numpy(), [wanted], tmp_path)


def inception(x: Any) -> Any:
    """Nine branches of small kernels, joined."""
    numbers = np.random.default_rng(0)

    def conv(x: Any, inputs: int, channels: int, size: int) -> Any:
        shape = (channels, inputs, size, size)
        drawn = numbers.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        weights = relax.const(drawn.astype(np.float32))
        return op.nn.relu(op.nn.conv2d(x, weights, padding=size // 2))

    def branch(windows: int) -> Any:
        last = conv(x, 32, 16, 1)
        for _ in range(windows):
            last = conv(last, 16, 16, 3)
        return last

    pooled = op.nn.max_pool2d(x, (3, 3), padding=1)
    branches = [*map(branch, (0, 1, 2, 3, 0, 1, 2, 3)), conv(pooled, 32, 16, 1)]
    return op.concat(branches, 1)


@pytest.mark.cuda
@pytest.mark.skipif(not tvm.cuda(0).exist, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("coschedule", [False, True], ids=["apart", "coscheduled"])
@pytest.mark.parametrize("name", ["lstm", "inception"])
def test_a_thousand_runs_are_right_and_the_same(name: str, coschedule: bool) -> None:
    options = Forced(coschedule=coschedule)
    if name == "lstm":
        net, given = small_lstm(16)
        model = tvm_tile.compile(net, "auto", example_inputs=(given,), options=options)
        x, wanted = given.numpy(), [net.double()(given.double()).detach().numpy()]
    else:
        x = normal(1, 32, 14, 14)
        mod = relax_module(inception, (x.shape,))
        model, wanted = tvm_tile.compile(mod, "auto", options=options), cpu_build(mod, x)
    joins = any(kernel.rule == PERSISTENT for kernel in model.report.kernels)
    assert joins == coschedule
    first = model(x)
    assert is_right([first], wanted)
    for _ in range(RUNS):
        np.testing.assert_array_equal(model(x), first)
