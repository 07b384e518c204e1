"""Chains of kernels that start early, in the emulator: each does what it may before it waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from grid_emulator import Launched, parameters, run_chain
from kernel_bodies import case
from kernels import Case, prim_functions
from precompiled import COMPILER
from tvm.relax import op

from tvm_tile.build import Builder
from tvm_tile.build.early.dependent_launches import mark
from tvm_tile.build.program import Kernel, Program
from tvm_tile.device import find_device
from tvm_tile.passes import schedule_module

pytestmark = [
    pytest.mark.bank(4),
    pytest.mark.skipif(not COMPILER, reason="no compiler for the emulator"),
]

H200 = find_device("nvidia/h200")
SHAPE = (3, 2048)
WAIT = "  tvm_builtin_ptx_griddepcontrol_wait();\n"
CASES: dict[str, tuple[Case, Callable[..., np.ndarray]]] = {
    "halves": (case("halves", "elementwise", lambda x: op.negative(x), SHAPE), np.negative),
    "sums": (
        case("sums", "elementwise", lambda x, y: op.add(op.add(x, x), y), SHAPE, SHAPE),
        lambda x, y: x + x + y,
    ),
    "maxima": (
        case("maxima", "rows", lambda x: op.subtract(x, op.max(x, -1, keepdims=True)), SHAPE),
        lambda x: x - x.max(-1, keepdims=True),
    ),
}


@dataclass(frozen=True, slots=True)
class Written:
    """A kernel that starts early, and what it computes."""

    kernel: Kernel
    shape: tuple[int, int]
    compute: Callable[..., np.ndarray]

    def on(self, output: np.ndarray, *inputs: np.ndarray) -> Launched:
        """Its launch on arrays: TVM puts them into the order of the kernel's text."""
        given = {f"x{place}": array for place, array in enumerate(inputs)}
        arrays = [given.get(name, output) for name in parameters(self.kernel)]
        assert sum(array is output for array in arrays) == 1
        return Launched(self.kernel, arrays, self.shape)


def written(name: str) -> Written:
    entry, compute = CASES[name]
    scheduled, (report,) = schedule_module(tvm.IRModule(prim_functions(entry, H200)), H200)
    func = scheduled[report.name]
    marked = mark(func, 0.0, (str(param.name) for param in func.params[:-1]))
    built = Builder(H200).build_functions({name: marked})[name]
    assert isinstance(built, Program)
    (kernel,) = built.kernels
    assert kernel.depends
    return Written(kernel, (report.grid, report.block), compute)


@pytest.fixture(scope="module")
def kernels() -> dict[str, Written]:
    return {name: written(name) for name in CASES}


def arrays(count: int) -> Iterator[np.ndarray]:
    draw = np.random.default_rng(0)
    for _ in range(count):
        yield draw.standard_normal(SHAPE).astype(np.float32)


def with_wait_at_the_end(own: Written) -> Written:
    source = own.kernel.source
    start = source.index(WAIT)
    end = source.rindex("}")
    moved = source[:start] + source[start + len(WAIT) : end] + WAIT + source[end:]
    return replace(own, kernel=replace(own.kernel, source=moved))


def without(own: Written, what: str) -> Written:
    assert what in own.kernel.source
    return replace(own, kernel=replace(own.kernel, source=own.kernel.source.replace(what, "")))


Run = Callable[[dict[str, Written], Path, int], Any]


def run_reads(kernels: dict[str, Written], folder: Path, seed: int) -> bool:
    """Each kernel reads what the one before it wrote, the last also what the first one did."""
    x, y, z, result = arrays(4)
    chain = [
        kernels["halves"].on(y, x),
        kernels["maxima"].on(z, y),
        kernels["sums"].on(result, z, y),
    ]
    run_chain(chain, folder, seed=seed)
    first = -x
    second = first - first.max(-1, keepdims=True)
    return np.array_equal(result, second + second + first)


def run_overwrites(kernels: dict[str, Written], folder: Path, seed: int) -> bool:
    """The second kernel overwrites what the first one reads, the third what the second one does."""
    x, y, z = arrays(3)
    kept, other = x.copy(), z.copy()
    chain = [
        kernels["halves"].on(y, x),
        kernels["maxima"].on(x, z),
        kernels["halves"].on(z, y),
    ]
    run_chain(chain, folder, seed=seed)
    expected = -kept, other - other.max(-1, keepdims=True), kept
    return all(map(np.array_equal, (y, x, z), expected))


@pytest.mark.parametrize("run", [run_reads, run_overwrites])
@pytest.mark.parametrize("seed", range(3))
def test_a_chain_computes_what_its_kernels_do_in_turn(
    kernels: dict[str, Written], run: Run, seed: int, tmp_path: Path
) -> None:
    assert run(kernels, tmp_path, seed)


@pytest.mark.parametrize("run", [run_reads, run_overwrites])
@pytest.mark.parametrize("damage", [with_wait_at_the_end, lambda own: without(own, WAIT)])
def test_a_misplaced_wait_is_found(
    kernels: dict[str, Written],
    run: Run,
    damage: Callable[[Written], Written],
    tmp_path: Path,
) -> None:
    damaged = {**kernels, "maxima": damage(kernels["maxima"])}
    assert not run(damaged, tmp_path, 0)
