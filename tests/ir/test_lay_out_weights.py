"""Weights of products of few rows lie as their kernels read them fastest, and once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import Arguments, arguments, built
from grid_emulator import parameters, run_grid
from kernels import poison, relative_difference
from test_passes import module
from tvm import IRModule, ir, relax, tirx
from tvm.relax import op

import tvm_tile
from tvm_tile import find_device
from tvm_tile.device import Device
from tvm_tile.frontend.prepare import prepare
from tvm_tile.graph.extract import extract
from tvm_tile.passes import FirstChoices, content_of
from tvm_tile.passes.weld.lay_out_weights import LayOutWeights, transposing
from tvm_tile.schedule import Scheduled, Task
from tvm_tile.schedule.s_tir.matvec import schedule_matvec
from tvm_tile.stages.fusing import Fused, fuse

pytestmark = pytest.mark.bank(6)

H200 = find_device("nvidia/h200")
RNG = np.random.default_rng(0)


def weights(*shape: int, dtype: str = "float32") -> Any:
    return relax.const(RNG.standard_normal(shape).astype("float32"), dtype)


def times(x: Any, w: Any, *, by_rows: bool) -> Any:
    """A product with weights, as linear layers have them, or as they are multiplied."""
    emit = relax.BlockBuilder.current().emit
    return emit(op.matmul(x, emit(op.permute_dims(w)) if by_rows else w))


def fused(*args: Any, **how: Any) -> IRModule:
    """The module of :func:`told`."""
    return told(*args, **how).mod


def told(body: Any, rows: int, depth: int, *, device: Device = H200, **how: Any) -> Fused:
    """A module of one input, as front doors hand it on, fused."""
    mod = prepare(module(body, (rows, depth), dtype=how.pop("dtype", "float32")))
    return fuse(mod, device, **how)


def stored(mod: IRModule) -> list[tuple[int, ...]]:
    """The shapes of the constants in ``main``, each once."""
    found: dict[Any, tuple[int, ...]] = {}

    def visit(expr: Any) -> None:
        if isinstance(expr, ir.Constant) and isinstance(expr.ty, relax.TensorType):
            found[expr] = tuple(int(extent) for extent in expr.ty.shape)

    relax.analysis.post_order_visit(mod["main"], visit)
    return list(found.values())


def functions(mod: IRModule) -> list[tirx.PrimFunc]:
    return [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("by_rows", [False, True])
def test_long_sums_are_read_by_rows(rows: int, by_rows: bool) -> None:
    w = weights(*((768, 3072) if by_rows else (3072, 768)), dtype="float16")
    mod = fused(lambda x: times(x, w, by_rows=by_rows), rows, 3072, dtype="float16")
    assert stored(mod) == [(768, 3072)]


@pytest.mark.parametrize("by_rows", [False, True])
def test_weights_whose_rows_are_no_vectors_are_read_by_columns(by_rows: bool) -> None:
    w = weights(*((4096, 1021) if by_rows else (1021, 4096)))
    mod = fused(lambda x: times(x, w, by_rows=by_rows), 8, 1021)
    assert stored(mod) == [(1021, 4096)]


@pytest.mark.parametrize("rows", [1, 3, 16])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_no_layout_is_predicted_to_be_faster(rows: int, dtype: str) -> None:
    first = FirstChoices(H200)
    for depth, columns in ((768, 2304), (1021, 64), (64, 1021), (2048, 1024)):
        w = weights(columns, depth, dtype=dtype)
        mod = fused(lambda x, w=w: times(x, w, by_rows=True), rows, depth, dtype=dtype)
        (func,) = functions(mod)
        now, other = first(func), first(transposing(func, [1]))
        assert now is not None
        assert other is not None
        assert now.rule != other.rule or now.seconds <= other.seconds


def test_products_of_many_rows_read_what_they_did() -> None:
    for shape, by_rows in (((96, 64), True), ((64, 96), False)):
        w = weights(*shape)
        mod = fused(lambda x, w=w, r=by_rows: times(x, w, by_rows=r), 128, 64)
        assert stored(mod) == [(64, 96)]


@pytest.mark.parametrize("rows", [1, 128])
def test_tied_embeddings_are_stored_once(rows: int) -> None:
    table = weights(1000, 64)

    def body(x: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        tokens = emit(op.astype(op.argmax(x, 1), "int64"))
        own = emit(op.add(x, emit(op.take(table, tokens, axis=0))))
        return times(own, table, by_rows=True)

    assert stored(fused(body, rows, 64)) == [(1000, 64)]


def test_what_products_of_many_and_of_few_rows_read_is_stored_once() -> None:
    w = weights(96, 64)

    def body(x: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        one = emit(op.strided_slice(x, [0], [0], [1]))
        return relax.Tuple([times(x, w, by_rows=True), times(one, w, by_rows=True)])

    assert stored(fused(body, 128, 64)) == [(96, 64)]


def test_what_entries_have_in_common_stays_as_it_is_stored() -> None:
    for rows in (1, 128):
        for shape, by_rows in (((96, 64), True), ((64, 96), False)):
            w = weights(*shape)
            mod = fused(lambda x, w=w, r=by_rows: times(x, w, by_rows=r), rows, 64, as_stored=True)
            assert stored(mod) == [shape]


def test_what_was_refused_is_not_taken() -> None:
    w = weights(3072, 768)
    before = fused(lambda x: times(x, w, by_rows=False), 1, 3072, as_stored=True)
    (func,) = functions(before)
    refused = {content_of(transposing(func, [1])): "does not build"}
    for reasons, shape in (({}, (768, 3072)), (refused, (3072, 768))):
        assert stored(LayOutWeights(H200, refused=reasons)(before)) == [shape]


def test_equal_layers_have_one_function() -> None:
    layers = [weights(512, 512) for _ in range(3)]

    def body(x: Any) -> Any:
        for w in layers:
            x = relax.BlockBuilder.current().emit(op.nn.relu(times(x, w, by_rows=False)))
        return x

    mod = fused(body, 1, 512)
    assert len(functions(mod)) == 1
    assert len(stored(mod)) == 3


CASES = [(1, 64, 40), (2, 77, 51), (5, 96, 33), (8, 131, 24), (11, 50, 70), (16, 45, 19)]
LIMITS = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
# Each type with few rows and with many.
TYPED = [(*case, [*LIMITS][number % 3]) for number, case in enumerate(CASES)]


@pytest.mark.parametrize(("rows", "depth", "columns", "dtype"), TYPED)
def test_either_layout_computes_the_product(
    rows: int, depth: int, columns: int, dtype: str, tmp_path: Path
) -> None:
    w = weights(depth, columns, dtype=dtype)
    how: dict[str, Any] = {"dtype": dtype, "as_stored": True}
    (plain,) = functions(fused(lambda x: times(x, w, by_rows=False), rows, depth, **how))
    for func, turned in ((plain, False), (transposing(plain, [1]), True)):
        of = arguments(func)
        x, weight = (of.given[str(p.name)].astype(np.float64) for p in func.params[:2])
        wanted = x @ (weight.T if turned else weight)
        (name,) = of.outputs
        assert relative_difference(of.wanted[name].astype(np.float64), wanted) < LIMITS[dtype]
        graph = extract(func)
        assert graph is not None
        choices = schedule_matvec(Task(func, graph, H200), 1000)
        assert bool(choices) == (rows <= 8)
        for number, choice in enumerate(choices[:: max(1, len(choices) // 2)]):
            written = choice()
            assert written is not None
            folder = tmp_path / f"{turned}{number}"
            folder.mkdir()
            assert run_error(written, of, folder) < LIMITS[dtype]


def run_error(written: Scheduled, of: Arguments, folder: Path) -> float:
    """The error of a kernel's text, run on the CPU, whose output is NaN before."""
    kernel = built(written, H200, only_text=True)
    (output,) = of.outputs
    arrays = of.given | {output: np.full_like(of.given[output], poison(of.given[output].dtype))}
    names = parameters(kernel)
    lanes = int(written.tile.split()[0]) if "lanes a row" in written.tile else written.block
    shape = written.grid, written.block
    given = [arrays[name] for name in names]
    (results,) = run_grid(kernel, given, shape, 1 << 16, folder, columns=lanes)
    return relative_difference(results[names.index(output)], of.wanted[output])


def test_a_table_is_no_product() -> None:
    table = weights(50, 40)
    mod = fused(lambda x: op.take(table, op.argmax(x, 1), axis=0), 1, 64)
    assert stored(mod) == [(50, 40)]


def test_what_is_turned_is_told_matrix_by_matrix() -> None:
    layers = [weights(3072, 3072, dtype="float16") for _ in range(2)]
    other = weights(512, 3072, dtype="float16")

    def body(x: Any) -> Any:
        for w in (*layers, layers[0]):
            x = relax.BlockBuilder.current().emit(op.nn.relu(times(x, w, by_rows=False)))
        return times(x, other, by_rows=True)

    own = told(body, 1, 3072, dtype="float16")
    mod, found = own.mod, own.turned
    assert len(found) == 2, "each is stored once, however often it is read"
    first, second = found
    assert first == second
    assert (first.shape, first.size) == ((3072, 3072), 2 * 3072 * 3072)
    assert first.seconds < first.seconds_before
    names = [str(var.name_hint) for var in mod.get_global_vars()]
    assert sum(name.startswith(f"{first.function}_") for name in names) == 1


def test_a_compiled_model_says_what_is_turned() -> None:
    w = weights(3072, 768, dtype="float16")
    mod = module(lambda x: times(x, w, by_rows=False), (1, 3072), dtype="float16")
    model = tvm_tile.compile(mod, H200)
    (turned,) = model.report.turned
    assert turned.shape == (768, 3072)
    assert "stored turned: 1 matrix of weights, 4.72 MB" in model.explain("all").splitlines()
    entries = tvm_tile.compile({"one": mod, "other": mod}, H200)
    assert not entries["one"].report.turned, "weights in common stay as they are stored"
