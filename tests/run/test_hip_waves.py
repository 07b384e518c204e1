"""Kernels for AMD that reduce across threads, run from their text in waves of the chip's size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from cpu_build import CPU
from kernel_cases import CASES
from kernels import launch_extents, prim_functions, relative_difference
from tvm import IRModule, tirx
from warp_emulator import COMPILER, emulate

from tvm_tile.build import Builder, Program
from tvm_tile.build.code_object import resources_of
from tvm_tile.device import find_device
from tvm_tile.device.device import Device
from tvm_tile.passes import schedule_module

CHIPS = ("amd/mi300x", "amd/rx7900xtx")
NAMES = (
    *("softmax_prime", "layer_norm_long_rows", "layer_norm_of_planes"),
    *("mean_last", "sum_long_vector", "argmax_last"),
)

pytestmark = [
    pytest.mark.bank(4),
    pytest.mark.skipif(COMPILER is None, reason="the emulator needs g++"),
]


def largest_error(name: str, device: Device, folder: Path) -> float:
    """Of a case's only function, against TVM's CPU build."""
    (case,) = (case for case in CASES if case.name == name)
    functions = prim_functions(case, device)
    ((symbol, func),) = functions.items()
    scheduled, _ = schedule_module(IRModule(functions), device)
    function = scheduled[symbol]
    program = Builder(device).build_functions({symbol: function})[symbol]
    assert isinstance(program, Program)
    (kernel,) = program.kernels
    wave = resources_of(kernel.binary).warp
    assert wave is not None
    found = launch_extents(function)
    assert set(found) <= {"blockIdx.x", "threadIdx.x", "threadIdx.y"}
    columns = found.get("threadIdx.x", 1)
    given, expected = inputs_and_outputs(func)
    memory = {param.name: array for param, array in zip(func.params, given, strict=True)}
    emulate(
        kernel,
        found.get("blockIdx.x", 1),
        columns * found.get("threadIdx.y", 1),
        memory,
        folder,
        late=False,
        backward=False,
        wave=wave,
        columns=columns,
    )
    pairs = zip(given, expected, strict=True)
    return max(relative_difference(got, want) for got, want in pairs)


def inputs_and_outputs(func: tirx.PrimFunc) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """A function's arguments before, outputs poisoned, and after a run on the CPU."""
    reference: Any = tvm.compile(func.with_attr("global_symbol", "reference"), CPU)
    generator = np.random.default_rng(0)
    given = []
    for param in func.params:
        shape = [int(extent) for extent in param.ty.shape]
        values = generator.uniform(-2, 2, shape).astype(str(param.ty.dtype))
        given.append(values)
    results = [tvm.runtime.tensor(array) for array in given]
    reference["reference"](*results)
    expected = [result.numpy() for result in results]
    for array, after in zip(given, expected, strict=True):
        if not np.array_equal(array, after):
            array.fill(-1 if array.dtype.kind == "i" else np.nan)
    return given, expected


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", NAMES)
def test_reductions_across_threads(name: str, chip: str, tmp_path: Path) -> None:
    assert largest_error(name, find_device(chip), tmp_path) < 1e-5


def test_waves_of_another_size_are_found_out(tmp_path: Path) -> None:
    """What TVM takes for an RDNA GPU's: its softmax is wrong there."""
    device = find_device("amd/rx7900xtx")
    target = tuple((k, 64 if k == "thread_warp_size" else v) for k, v in device.target)
    wrong = replace(device, warp_size=64, target=target)
    assert largest_error("softmax_prime", wrong, tmp_path) > 1e-3
