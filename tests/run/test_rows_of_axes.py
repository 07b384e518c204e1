"""Rows that are several axes: held as exactly as rows of one, on the way to any device."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import tvm
from kernel_bodies import case
from kernels import Case, Input, prim_functions, written_errors
from tvm.relax import op

import tvm_tile
from tvm_tile.build import Builder, Program
from tvm_tile.build.cuda import nvrtc_architectures
from tvm_tile.device import find_device
from tvm_tile.device.emulated import EMULATED
from tvm_tile.errors import ModelError
from tvm_tile.graph.extract import extract
from tvm_tile.passes import schedule_module
from tvm_tile.schedule.rule import Scheduled, Task
from tvm_tile.schedule.s_tir.rows import schedule_rows

pytestmark = pytest.mark.bank(8)

torch = pytest.importorskip("torch")
emulated = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")


def layer_norm(name: str, rows: tuple[int, ...], row: tuple[int, ...], dtype: str) -> Case:
    axes = list(range(-len(row), 0))
    shapes = (Input(shape, dtype) for shape in ((*rows, *row), row, row))
    return case(name, "rows", lambda x, g, b: op.nn.layer_norm(x, g, b, axes), *shapes)


def less_largest(name: str, shape: tuple[int, ...], axes: list[int], dtype: str) -> Case:
    def body(x: Any) -> Any:
        return op.subtract(x, op.max(x, axes, keepdims=True))

    return case(name, "rows", body, Input(shape, dtype))


def group_norm(name: str, groups: int, shape: tuple[int, ...], dtype: str) -> Case:
    """One whose result goes through SiLU, and has something added to it."""

    def body(x: Any, g: Any, b: Any, y: Any) -> Any:
        axes = list(range(2, len(shape)))
        return op.add(op.nn.silu(op.nn.group_norm(x, g, b, groups, 1, axes)), y)

    shapes = (Input(extents, dtype) for extents in (shape, shape[1:2], shape[1:2], shape))
    return case(name, "rows", body, *shapes)


def viewed(name: str, shape: tuple[int, ...], other: tuple[int, ...]) -> Case:
    """Rows whose elements get another shape."""

    def body(x: Any, y: Any) -> Any:
        return op.add(op.nn.relu(op.reshape(op.nn.softmax(x, -1), other)), y)

    return case(name, "rows", body, shape, other)


def of_gelu(x: Any, g: Any, b: Any) -> Any:
    return op.nn.layer_norm(op.nn.gelu(x), g, b, [-2, -1])


def quantized(x: Any) -> Any:
    return op.astype(op.subtract(x, op.max(x, [1, 2], keepdims=True)), "int8")


# In vectors of four, two and one; with axes of one element; where the last turn is not for all
# threads; with rows between the axes; of other widths; what is computed once; two loads a store.
ALL = (
    layer_norm("lines", (40,), (16, 24), "float32"),
    layer_norm("planes", (32,), (14, 14), "float32"),
    layer_norm("odd_planes", (5, 7), (7, 7), "float32"),
    layer_norm("image", (8,), (3, 16, 24), "float32"),
    layer_norm("short_lines", (9,), (5, 6, 10), "float32"),
    layer_norm("one_column", (4,), (16, 24, 1), "float32"),
    layer_norm("one_line", (6,), (14, 1, 14), "float32"),
    group_norm("groups", 4, (3, 16, 16, 24), "float32"),
    group_norm("odd_groups", 5, (7, 15, 7, 7), "float32"),
    group_norm("groups_of_images", 3, (2, 12, 5, 6, 2), "float32"),
    viewed("heads", (21, 5, 60), (21, 5, 4, 15)),
    viewed("fewer_axes", (3, 7, 5, 24), (21, 120)),
    viewed("other_rows", (12, 5, 22), (3, 20, 2, 11)),
    less_largest("rows_between", (30, 14, 5, 14), [1, 3], "float32"),
    less_largest("wide", (30, 14, 14), [1, 2], "float64"),
    case("computed_once", "rows", of_gelu, (20, 14, 14), (14, 14), (14, 14)),
    case("narrow_results", "rows", quantized, (24, 6, 40)),
)
HALVES = (
    layer_norm("half_lines", (40,), (16, 24), "float16"),
    layer_norm("half_planes", (32,), (14, 14), "float16"),
    group_norm("half_groups", 2, (9, 8, 14, 14), "float16"),
    less_largest("half_rows_between", (30, 14, 5, 14), [1, 3], "float16"),
)


def held(entry: Case) -> tuple[tvm.tirx.PrimFunc, list[Scheduled]]:
    """A case's function, and all its schedules on the emulated device that hold rows."""
    (func,) = prim_functions(entry, EMULATED).values()
    graph = extract(func)
    assert graph is not None
    written = [choice() for choice in schedule_rows(Task(func, graph, EMULATED), 1000)]
    return func, [item for item in written if item is not None and "holds" in item.tile]


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.name)
def test_threads_have_space_for_what_they_hold(entry: Case) -> None:
    _, found = held(entry)
    assert found
    functions = {f"kernel_{n}": item.func for n, item in enumerate(found)}
    built = Builder(EMULATED).build_functions(functions)
    for program, item in zip(built.values(), found, strict=True):
        assert isinstance(program, Program)
        (kernel,) = program.kernels
        arrays = re.findall(r"^ *(?:float|double|char|int) \w+\[(\d+)\];", kernel.source, re.M)
        (held_by_thread,) = re.findall(r"holds (\d+) elements in vectors of (\d+)", item.tile)
        # And one of a sum, with its reciprocal.
        assert {*arrays} <= {*held_by_thread, "2", "1"}, item.tile


@emulated
@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.name)
def test_kernels_compute_what_the_cpu_does(entry: Case) -> None:
    func, found = held(entry)
    best_and_worst = [found[0], found[-1]]
    errors = written_errors(func, best_and_worst, EMULATED)
    assert all(error < 1e-5 for error in errors), (best_and_worst, errors)


@pytest.mark.skipif(not find_spec("ziglang"), reason="needs ziglang")
@pytest.mark.parametrize("chip", ["amd/mi300x", "amd/rx7900xtx"])
def test_nothing_is_on_the_stack_of_an_amd_gpu(chip: str) -> None:
    check_machine_code(chip)


@pytest.mark.skipif(not nvrtc_architectures(), reason="needs NVRTC")
@pytest.mark.parametrize("chip", ["nvidia/h200", "nvidia/a100"])
def test_nothing_is_on_the_stack_of_an_nvidia_gpu(chip: str) -> None:
    check_machine_code(chip)


def check_machine_code(chip: str) -> None:
    device = find_device(chip)
    functions = {}
    for entry in (*ALL, *HALVES):
        functions |= prim_functions(entry, device)
    scheduled, reports = schedule_module(tvm.IRModule(functions), device)
    assert {report.rule for report in reports} == {"rows"}
    taken = Builder(device).resources(scheduled)
    assert len(taken) == len(ALL) + len(HALVES)
    assert {name: k.stack for name, (k,) in taken.items() if k.stack} == {}


@emulated
@pytest.mark.parametrize("shape", [(16, 24), (14, 14), (3, 10, 22)])
def test_layer_norm_of_torch(shape: tuple[int, ...]) -> None:
    module = torch.nn.LayerNorm(shape)
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    x = torch.randn(17, *shape, generator=generator) * 3 + 1
    model = tvm_tile.compile(module, device="emulated", example_inputs=(x,))
    (kernel,) = model.report.kernels
    assert "holds" in kernel.tile
    expected = module.double()(x.double()).detach()
    np.testing.assert_allclose(model(x).numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


@emulated
@pytest.mark.parametrize("shape", [(3, 5, 17), (2, 4, 9, 7), (2, 3, 2, 4, 5)])
@pytest.mark.parametrize("tracks", [False, True])
def test_instance_norm_is_one_kernel(shape: tuple[int, ...], tracks: bool) -> None:
    kinds = (torch.nn.InstanceNorm1d, torch.nn.InstanceNorm2d, torch.nn.InstanceNorm3d)
    module = kinds[len(shape) - 3](shape[1], affine=True, track_running_stats=tracks).eval()
    for number, tensor in enumerate((*module.parameters(), *module.buffers())):
        if tensor.is_floating_point():
            torch.nn.init.uniform_(tensor, 0.5 + number, 1.5 + number)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    model = tvm_tile.compile(module, "emulated", example_inputs=(x,))
    assert len(model.report.kernels) == 1
    torch.testing.assert_close(torch.as_tensor(model(x)), module(x), rtol=1e-4, atol=1e-5)


def test_instance_norm_that_updates_its_statistics_is_refused() -> None:
    module = torch.nn.InstanceNorm1d(5, track_running_stats=True).train()
    program = torch.export.export(module, (torch.randn(3, 5, 17),))
    with pytest.raises(ModelError, match="updates its running statistics"):
        tvm_tile.compile(program, "nvidia/h200")
