"""Sums in parts: two kernels that compute what the CPU does, whatever the extents."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import tvm
from kernel_cases import along, bias_relu, case, conv, i32, mm, residual
from kernels import Case, prim_functions, written_errors
from scheduled import relax_module
from tvm import tirx
from tvm.relax import op

import tvm_tile
from tvm_tile.device import Device
from tvm_tile.device.detect import resolve_device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import RULES, Scheduled, Task

pytestmark = pytest.mark.bank(6)

EVERY = 1000  # tiles of a rule: more than there are
GPU = tvm.cuda(0).exist
cuda = [pytest.mark.cuda, pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")]
emulated = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
DEVICES = [pytest.param("emulated", marks=emulated), pytest.param("auto", marks=cuda)]
CASES = (
    case("deep_prime", "contraction", mm("NN"), (8, 2053), (2053, 24)),
    case("short_prime", "contraction", mm("NN"), (49, 197), (197, 64)),
    case("even", "contraction", mm("NN"), (64, 4096), (4096, 128)),
    case("all_prime", "contraction", mm("NN"), (17, 331), (331, 23)),
    case("overhang", "contraction", mm("NN"), (134, 1019), (1019, 131)),
    case("one_row", "contraction", mm("NN"), (1, 997), (997, 1000)),
    case("residual", "contraction", residual(mm("NN")), (31, 641), (641, 44), (31, 44)),
    case("bias_relu", "contraction",
         bias_relu(mm("NN"), shape=(1, 128)), (64, 4099), (4099, 128), (128,)),
    case("of_relu", "contraction elementwise",
         lambda x, w: op.matmul(op.nn.relu(x), w), (31, 1031), (1031, 45)),
    case("int32", "contraction", mm("NN"), i32(17, 190), i32(190, 23)),
    case("sum_columns", "column", along("sum", [0]), (8192, 40)),
    case("sum_columns_odd", "column", along("sum", [0]), (9000, 33)),
    case("mean_of_channels", "column", along("mean", [1, 2], keepdims=True), (1, 96, 96, 64)),
    case("mean_of_relu_of_channels", "column",
         lambda x, y: op.exp(op.mean(op.nn.relu(op.add(x, y)), [1, 2])),
         (2, 60, 96, 40), (2, 60, 96, 40)),
    case("sum_groups", "row", along("sum", [1, 2, 4]), (1, 64, 66, 32, 4)),
    case("sum_odd_groups", "row", along("sum", [1, 2, 4]), (2, 33, 35, 16, 10)),
    case("mean_of_relu_of_groups", "row",
         lambda x, y: op.exp(op.mean(op.nn.relu(op.add(x, y)), [1, 3])),
         (2, 800, 13, 3), (2, 800, 13, 3)),
    case("sum_rows", "row", along("sum", [1]), (2, 65536 * 4)),
    case("sum_squares_of_rows", "row",
         lambda x: op.sqrt(op.sum(op.multiply(x, x), [2])), (1, 3, 99000)),
    case("max_of_all", "row", along("max"), (3, 512, 250)),
    case("sum_of_integers", "row", along("sum", [0, 1]), i32(700, 300)),
    case("conv", "contraction", conv(padding=1), (2, 70, 9, 9), (20, 70, 3, 3)),
    case("conv_prime", "contraction", conv(padding=1), (1, 131, 9, 9), (20, 131, 3, 3)),
    case("conv1x1_stride", "contraction", conv(strides=2), (1, 130, 9, 9), (20, 130, 1, 1)),
)  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("entry", CASES, ids=[entry.name for entry in CASES])
def test_parts_add_up(entry: Case, device: str) -> None:
    """Those of the best tile in parts, and of the last, whether or not others are faster."""
    target, compared = resolve_device(device), 0
    for func in prim_functions(entry, target).values():
        written = in_parts(func, target)
        errors = written_errors(func, written, target) if written else []
        named = [(item.tile, error) for item, error in zip(written, errors, strict=True)]
        assert [(tile, error) for tile, error in named if not error <= 1e-4] == []
        compared += len(written)
    assert compared


def in_parts(func: tirx.PrimFunc, device: Device) -> list[Scheduled]:
    """A function's best schedule that leaves parts of sums to a second kernel, the last, and the
    best that leaves it neighbours, too."""
    graph = extract(func)
    assert graph is not None
    task = Task(func, graph, device)
    for finder in RULES:
        choices = finder.find(task, EVERY)
        own = [choice for choice in choices if any(work.then for work in choice.works)]
        if own:
            apart = [choice for choice in own if "sums of each" in choice.tile][:1]
            written = [choice() for choice in dict.fromkeys((own[0], own[-1], *apart))]
            return [item for item in written if item is not None]
    return []


@pytest.mark.parametrize("device", DEVICES)
def test_a_model_plans_the_memory_of_the_parts(device: str) -> None:
    def body(x: Any, w: Any) -> Any:
        narrow = op.matmul(x, w)
        return op.matmul(op.matmul(narrow, op.permute_dims(w)), w), narrow

    model = tvm_tile.compile(relax_module(body, ((16, 4096), (4096, 24))), device)
    assert any("parts" in kernel.tile for kernel in model.report.kernels)
    assert b"TVMBackendAllocWorkspace" not in model.program.host
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=size).astype("float32") / 64 for size in ((16, 4096), (4096, 24)))
    for _ in range(3):
        wide, narrow = model(x, w)
        np.testing.assert_allclose(narrow, x @ w, atol=1e-5)
        np.testing.assert_allclose(wide, x @ w @ w.T @ w, atol=1e-5)
