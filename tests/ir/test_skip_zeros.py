"""Products are told which chunks of their constant weights are zeros, where that pays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from emulated import arguments
from test_passes import module
from test_wgmma_lists import run as list_error
from tvm import IRModule, ir, relax, tirx
from tvm.relax import op
from two_of_four import pruned as pruned_to_two
from warp_emulator import COMPILER

import tvm_tile
from tvm_tile import Open, Options, find_device
from tvm_tile.device import Device
from tvm_tile.frontend.prepare import prepare
from tvm_tile.graph.positions import listed_chunks
from tvm_tile.graph.sparsity import TWO_OF_FOUR, compress, with_places
from tvm_tile.passes import FirstChoices
from tvm_tile.passes.scheduling.measure_candidates import arguments_of
from tvm_tile.passes.weld.skip_zeros import matrices_of
from tvm_tile.runtime.arrays import numpy_dtype
from tvm_tile.runtime.trials import drawn as drawn_for_trial
from tvm_tile.schedule.attention.listed import has_table
from tvm_tile.schedule.compressed import compressed_of
from tvm_tile.schedule.listed import listed_of
from tvm_tile.stages.fusing import Fused, fuse
from tvm_tile.tile.rules import WGMMA
from tvm_tile.verify.arguments import drawn, parameters

H200 = find_device("nvidia/h200")
RNG = np.random.default_rng(0)


def pruned(rows: int, columns: int, density: float = 0.25, box: int = 64) -> np.ndarray:
    kept = RNG.random((-(-rows // box), -(-columns // box))) < density
    mask = np.kron(kept, np.ones((box, box)))[:rows, :columns]
    return (RNG.standard_normal((rows, columns)) * mask).astype("float16")


def two_of_four(rows: int, columns: int, dtype: str = "float16") -> np.ndarray:
    return pruned_to_two(RNG, rows, columns, numpy_dtype(dtype))


def linear(weights: np.ndarray, *, by_rows: bool = True, dtype: str = "float16") -> Any:
    """A layer of weights, as they are stored for a linear layer or as they are multiplied."""

    def body(x: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        own = relax.const(weights, dtype)
        return emit(op.nn.relu(emit(op.matmul(x, emit(op.permute_dims(own)) if by_rows else own))))

    return body


def fused(body: Any, rows: int, depth: int, *, device: Device = H200, **how: Any) -> Fused:
    mod = prepare(module(body, (rows, depth), dtype="float16"))
    return fuse(mod, device, **how)


def only_function(mod: IRModule) -> tirx.PrimFunc:
    (func,) = (func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc))
    return func


def constants(mod: IRModule) -> list[np.ndarray]:
    found: list[np.ndarray] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, ir.Constant) and isinstance(expr.ty, relax.TensorType):
            found.append(expr.value.numpy())

    relax.analysis.post_order_visit(mod["main"], visit)
    return found


@pytest.mark.parametrize(("rows", "columns"), [(1, 8192), (16, 8192), (1024, 2048)])
@pytest.mark.parametrize("by_rows", [True, False])
def test_tables_tell_kernels_of_zeros(rows: int, columns: int, by_rows: bool) -> None:
    weights = pruned(columns, 4096)
    own = weights if by_rows else np.ascontiguousarray(weights.T)
    found = fused(linear(own, by_rows=by_rows), rows, 4096, zeros="skip")
    func = only_function(found.mod)
    told = listed_of(func)
    assert told is not None
    assert not has_table(func)  # of keys, for which it would not be compared
    wanted = listed_chunks(weights, 64, told[1].source)
    assert told[1] == wanted
    table = next(array for array in constants(found.mod) if array.dtype == np.uint32)
    np.testing.assert_array_equal(table, wanted.table())
    (zeros,) = found.zeros
    assert zeros.is_skipped
    assert zeros.share == wanted.share
    assert zeros.seconds < 0.6 * zeros.seconds_whole


def test_what_skipping_would_save_is_told() -> None:
    found = fused(linear(pruned(2048, 4096)), 256, 4096, zeros="multiply")
    assert listed_of(only_function(found.mod)) is None
    (zeros,) = found.zeros
    assert not zeros.is_skipped
    assert zeros.seconds < zeros.seconds_whole


@pytest.mark.parametrize("density", [0.97, 1])
def test_few_zeros_are_multiplied(density: float) -> None:
    found = fused(linear(pruned(1024, 2048, density)), 256, 2048, zeros="skip")
    assert listed_of(only_function(found.mod)) is None
    assert found.zeros == ()


def test_scattered_zeros_are_multiplied() -> None:
    weights = RNG.standard_normal((1024, 2048)) * (RNG.random((1024, 2048)) < 0.2)
    found = fused(linear(weights.astype("float16")), 256, 2048, zeros="skip")
    assert listed_of(only_function(found.mod)) is None


@pytest.mark.parametrize("rows", [16, 1024])
@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_two_of_four_are_kept(rows: int, by_rows: bool, dtype: str) -> None:
    weights = two_of_four(4096, 2048, dtype)
    own = weights if by_rows else np.ascontiguousarray(weights.T)
    mod = prepare(module(linear(own, by_rows=by_rows, dtype=dtype), (rows, 2048), dtype=dtype))
    found = fuse(mod, H200, zeros="skip")
    func = only_function(found.mod)
    assert compressed_of(func) is not None
    values, words = compress(weights)
    kept = constants(found.mod)
    assert sorted(array.nbytes for array in kept) == sorted((values.nbytes, words.nbytes))
    np.testing.assert_array_equal(next(a for a in kept if a.dtype == np.uint32), words)
    (zeros,) = found.zeros
    assert zeros.is_skipped
    assert zeros.sparsity == TWO_OF_FOUR
    assert zeros.share == 0.5625
    assert zeros.seconds < 0.95 * zeros.seconds_whole
    assert matrices_of(func) == ()


def test_layers_that_are_alike_share_a_function() -> None:
    first, second = (two_of_four(2048, 2048) for _ in range(2))

    def body(x: Any) -> Any:
        return linear(second)(linear(first)(x))

    mod = fused(body, 1024, 2048, zeros="skip").mod
    assert compressed_of(only_function(mod)) is not None
    assert len(constants(mod)) == 4


@pytest.mark.parametrize("place", [(0, 0), (1023, 2047)])
def test_a_third_number_in_four_is_seen(place: tuple[int, int]) -> None:
    weights = two_of_four(1024, 2048)
    group = weights[place[0], place[1] // 4 * 4 :][:4]
    group[:] = [1, 2, 3, 0]
    found = fused(linear(weights), 1024, 2048, zeros="skip")
    assert compressed_of(only_function(found.mod)) is None
    assert found.zeros == ()


@pytest.mark.parametrize("device", ["nvidia/a100", "nvidia/b200", "emulated"])
def test_other_devices_multiply_all(device: str) -> None:
    weights = two_of_four(1024, 1024)
    found = fused(linear(weights), 256, 1024, device=find_device(device), zeros="skip")
    assert compressed_of(only_function(found.mod)) is None


def test_the_faster_way_is_taken() -> None:
    """Of a matrix of blocks that has two of four besides."""
    weights = np.where(pruned(2048, 4096, 0.2) != 0, two_of_four(2048, 4096), 0)
    found = fused(linear(weights.astype("float16")), 1024, 4096, zeros="skip")
    func = only_function(found.mod)
    assert listed_of(func) is not None
    assert compressed_of(func) is None


def test_reports_count_what_is_kept() -> None:
    weights = two_of_four(4096, 4096)
    mod = module(linear(weights), (1024, 4096), dtype="float16")
    reports = {
        zeros: tvm_tile.compile(mod, H200, options=Options(zeros=zeros, cache=False)).report
        for zeros in ("multiply", "skip")
    }
    (whole,), (left,) = (report.kernels for report in reports.values())
    assert left.rule == WGMMA.name
    assert "2:4 of the rows" in left.tile
    assert left.flops == pytest.approx(whole.flops / 2, rel=0.01)
    assert whole.traffic - left.traffic == pytest.approx(weights.nbytes * (1 - 0.5625), rel=1e-4)
    assert left.arithmetic_seconds == pytest.approx(whole.arithmetic_seconds / 2, rel=0.05)
    assert left.seconds < whole.seconds
    assert "56.2% of it read as 2:4" in reports["multiply"].render("memory")
    assert "zeros skipped: in 1 matrix of weights" in reports["skip"].render("memory")


def test_whoever_runs_a_function_gives_it_words_that_mean_something() -> None:
    func = only_function(fused(linear(two_of_four(1024, 2048)), 1024, 2048, zeros="skip").mod)
    names = [str(param.name) for param in func.params]
    words = next(place for place, name in enumerate(names) if name.endswith("_places"))
    trials = arguments_of(func)
    assert trials is not None
    for values in (
        [drawn(own, RNG) for own in parameters(func)],
        [drawn_for_trial(RNG, own) for own in trials],
    ):
        np.testing.assert_array_equal(values[words], with_places(values[words]))
        assert len(np.unique(values[words])) > 1


def test_products_of_values_have_no_lists() -> None:
    def body(x: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        return emit(op.matmul(x, emit(op.permute_dims(x))))

    assert listed_of(only_function(fused(body, 256, 2048, zeros="skip").mod)) is None


def test_whoever_runs_a_function_gives_it_its_zeros() -> None:
    func = only_function(fused(linear(pruned(1024, 2048)), 1024, 2048, zeros="skip").mod)
    told = listed_of(func)
    assert told is not None
    names = [str(param.name) for param in func.params]
    weights, table = names.index(str(told[0].name)), names.index(told[1].source)
    kept = np.kron(told[1].kept(), np.ones((told[1].step, told[1].chunk))) > 0
    trials = arguments_of(func)
    assert trials is not None
    for values in (
        [drawn(own, RNG) for own in parameters(func)],
        [drawn_for_trial(RNG, own) for own in trials],
    ):
        np.testing.assert_array_equal(values[table], told[1].table())
        is_turned = values[weights].shape != kept.shape
        own = values[weights].T if is_turned else values[weights]
        assert not own[~kept].any()
        assert np.count_nonzero(own[kept]) > 0.99 * kept.sum()


def test_reports_count_what_is_left() -> None:
    weights = pruned(4096, 4096)
    mod = module(linear(weights), (512, 4096), dtype="float16")
    reports = {
        zeros: tvm_tile.compile(mod, H200, options=Options(zeros=zeros, cache=False)).report
        for zeros in ("multiply", "skip")
    }
    (whole,), (left,) = (report.kernels for report in reports.values())
    assert left.rule == WGMMA.name
    assert "of the chunks" in left.tile
    share = reports["skip"].zeros[0].share
    assert left.flops == pytest.approx(whole.flops * share, rel=0.01)
    assert whole.traffic - left.traffic == pytest.approx(weights.nbytes * (1 - share))
    assert left.seconds < 0.6 * whole.seconds
    text = reports["multiply"].render("memory")
    assert "zeros='skip' would leave zeros out: in 1 matrix of weights" in text
    assert "zeros skipped: in 1 matrix of weights" in reports["skip"].render("memory")


def run_on_the_cpu(weights: np.ndarray, tile: str, folder: Path, *, late: bool) -> None:
    """Go the whole way from constants to a kernel's text, which is run, of a tile that tells so."""
    small = replace(H200, multi_processor_count=2)
    mod = fused(linear(weights), 72, weights.shape[1], device=small, zeros="skip").mod
    func = only_function(mod)
    names = [str(param.name) for param in func.params]
    (call,) = (b.value for block in mod["main"].body.blocks for b in block.bindings)
    pairs = zip(names, call.args[1].fields, strict=False)
    known = {n: value.value.numpy() for n, value in pairs if isinstance(value, ir.Constant)}
    of = arguments(func, known)
    choice = FirstChoices(small)(func)
    assert choice is not None
    assert tile in choice.tile
    assert list_error(choice, of, folder, late=late) < 2e-3
    x = next(of.given[n] for n in names if n not in known and n not in of.outputs)
    (found,) = (of.wanted[n] for n in of.outputs)
    wanted = np.maximum(x.astype("float64") @ weights.T.astype("float64"), 0)
    np.testing.assert_allclose(found.astype("float64"), wanted, rtol=2e-3, atol=2e-2)


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("late", [False, True])
def test_kernels_compute_what_they_do_with_zeros(late: bool, tmp_path: Path) -> None:
    run_on_the_cpu(pruned(264, 1000), "of the chunks", tmp_path, late=late)


def test_a_function_with_lists_is_not_told_again() -> None:
    func = only_function(fused(linear(pruned(1024, 2048)), 1024, 2048, zeros="skip").mod)
    assert matrices_of(func) == ()


@pytest.mark.filterwarnings("ignore:Sparse BSR tensor support is in beta")
def test_blocks_of_pytorchs_are_left_out() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            weight = torch.from_numpy(pruned(2048, 4096)).to_sparse_bsr((64, 64))
            self.weight = torch.nn.Parameter(weight, requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.linear(x, self.weight)

    program = torch.export.export(Layer(), (torch.randn(1024, 4096).half(),))
    report = tvm_tile.compile(program, H200, options=Options(zeros="skip", cache=False)).report
    (kernel,) = report.kernels
    assert "of the chunks" in kernel.tile


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_kernels_compute_what_they_do_with_all_numbers(tmp_path: Path) -> None:
    run_on_the_cpu(two_of_four(264, 1008), "2:4 of the rows", tmp_path, late=True)


def test_entries_share_what_is_kept() -> None:
    module = tvm_tile.prune(torch.nn.Linear(4096, 4096, bias=False).half(), "2:4").eval()
    programs = {
        name: torch.export.export(module, (torch.randn(rows, 4096).half(),))
        for name, rows in (("prompt", 1024), ("step", 16))
    }
    options = Options(zeros="skip", cache=False)
    entries = tvm_tile.compile(programs, H200, options=options)
    one, other = (entries[name].program for name in programs)
    assert set(one.constants) == set(other.constants)
    assert sum(len(c.data) for c in one.constants) == 0.5625 * 2 * 4096 * 4096


def test_two_of_four_go_with_open_extents() -> None:
    module = tvm_tile.prune(torch.nn.Linear(2048, 4096).half(), "2:4").requires_grad_(False)
    rows = {0: torch.export.Dim("rows", min=1, max=2048)}
    x = torch.randn(512, 2048).half()
    program = torch.export.export(module, (x,), dynamic_shapes=(rows,))
    options = Options(zeros="skip", cache=False)
    inputs = {"input": (Open(1, 2048), 2048)}
    report = tvm_tile.compile(program, H200, inputs=inputs, options=options).report
    assert report.zeros[0].sparsity == TWO_OF_FOUR
    assert any("2:4 of the rows" in kernel.tile for kernel in report.kernels)


def test_lists_go_with_open_extents() -> None:
    module = torch.nn.Linear(2048, 1024).half()
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(pruned(1024, 2048)))
    rows = {0: torch.export.Dim("rows", min=1, max=2048)}
    x = torch.randn(512, 2048).half()
    program = torch.export.export(module, (x,), dynamic_shapes=(rows,))
    options = Options(zeros="skip", cache=False)
    inputs = {"input": (Open(1, 2048), 2048)}
    report = tvm_tile.compile(program, H200, inputs=inputs, options=options).report
    assert report.zeros[0].is_skipped
    assert any("of the chunks" in kernel.tile for kernel in report.kernels)
