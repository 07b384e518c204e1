"""Products with matrices that are kept two numbers of each four: kernels' text, on the CPU."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulated import built
from kernels import Case, Input
from test_wgmma_lists import SMALL, WIDE, run
from tvm.relax import op
from two_of_four import Compressed, compressed, pruned, tiles_of
from warp_emulator import COMPILER
from wgmma_cases import operands, product, product_case

from tvm_tile.build import Builder, Program
from tvm_tile.build.cubin import resources_of
from tvm_tile.device import find_device
from tvm_tile.graph.sparsity import with_places
from tvm_tile.schedule import Scheduled

pytestmark = pytest.mark.bank(3)

H200 = find_device("nvidia/h200")
CUBIN_ROWS = (1, 16, 96, 1024)


def _biased(x: Any, w: Any, b: Any, r: Any) -> Any:
    return op.nn.relu(op.add(op.add(product("NT")(x, w), b), r))


def _case(layout: str, m: int, n: int, k: int, dtype: str = "float16", place: int = 1) -> Any:
    rows = n if place else m
    made = product_case(layout, m, n, k, dtype)
    return lambda rng: compressed(made, SMALL, pruned(rng, rows, k, _numbers(dtype)), place)


def _with_epilogue(m: int, n: int, k: int) -> Callable[[np.random.Generator], Compressed]:
    shapes = (*operands("NT", m, n, k), (n,), (m, n))
    case = Case("biased", "wgmma", _biased, tuple(Input(shape, "float16") for shape in shapes))
    return lambda rng: compressed(case, SMALL, pruned(rng, n, k))


def _numbers(dtype: str) -> Any:
    return np.float16 if dtype == "float16" else ml_dtypes.bfloat16


CASES: dict[str, Callable[[np.random.Generator], Compressed]] = {
    "one_row": _case("NT", 1, 200, 272),
    "few_rows": _case("NT", 13, 136, 400),
    "ragged": _case("NT", 72, 328, 144),
    "many_rows": _case("NT", 264, 128, 272),
    "columns_stored": _case("NN", 40, 200, 272),
    "rows_by_columns": _case("TN", 64, 136, 272),
    "bfloat16": _case("NT", 24, 136, 272, "bfloat16"),
    "on_the_left": _case("NN", 200, 72, 272, place=0),
    "epilogue": _with_epilogue(40, 200, 272),
}


def drawn(name: str) -> Compressed:
    return CASES[name](np.random.default_rng(0))


def widths(of: Compressed, device: Any, **told: Any) -> list[Scheduled]:
    """Choices of the least and the greatest width, and of some in between, with what is told."""
    found = [(choice.write.args[-1], choice) for choice in tiles_of(of.func, device)]  # type: ignore[attr-defined]
    found = [one for one in found if all(getattr(one[0], k) == v for k, v in told.items())]
    assert found, told
    found.sort(key=lambda one: (one[0].width, one[0].instructions, one[0].blocks))
    written = [choice() for _, choice in found[:: max(1, len(found) // 4)]]
    return [one for one in written if one is not None]


def error_in_doubles(of: Compressed, found: np.ndarray) -> float:
    """Largest error of a product without an epilogue, next to sums of doubles."""
    (other,) = (of.of.given[name].astype(np.float64) for name in of.others)
    matrix = of.matrix.astype(np.float64)
    other = other.T if other.shape[-1] != matrix.shape[1] else other
    exact = other @ matrix.T
    exact = exact if exact.shape == found.shape else exact.T
    return float(np.abs(found.astype(np.float64) - exact).max() / np.abs(exact).max())


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("epilogue", "bfloat16")])
def test_what_is_made_of_a_matrix_is_the_matrix(name: str) -> None:
    """The unscheduled function, which all kernels are compared with, next to NumPy."""
    of = drawn(name)
    (output,) = of.of.outputs
    assert error_in_doubles(of, of.of.wanted[output]) < 1e-3


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_they_compute_what_the_cpu_does(name: str, late: bool, tmp_path: Path) -> None:
    """Copies arrive, and products end, at once or as late as the kernel allows."""
    of = drawn(name)
    for number, choice in enumerate(widths(of, SMALL, splits=1)):
        assert "2:4 of the rows" in choice.tile
        folder = tmp_path / str(number)
        folder.mkdir()
        assert run(choice, of.of, folder, late=late) < 2e-3, choice.tile


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("splits", [2, 4])
def test_blocks_share_sums(splits: int, late: bool, tmp_path: Path) -> None:
    of = compressed(
        product_case("NT", 24, 136, 1296), WIDE, pruned(np.random.default_rng(1), 136, 1296)
    )
    choice, *_ = widths(of, WIDE, splits=splits)
    assert run(choice, of.of, tmp_path, late=late, cluster=splits) < 2e-3, choice.tile


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_consumers_take_tiles_in_turns(tmp_path: Path) -> None:
    of = compressed(
        product_case("NT", 200, 520, 272), SMALL, pruned(np.random.default_rng(1), 520, 272)
    )
    choice, *_ = widths(of, SMALL, alternates=True)
    assert run(choice, of.of, tmp_path, late=True) < 2e-3, choice.tile


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_infinities_and_nan_are_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    matrix = pruned(rng, 136, 272)
    kept = np.argwhere(matrix != 0)
    for number, value in enumerate((np.inf, -np.inf, np.nan)):
        matrix[tuple(kept[97 * number + 5])] = value
    of = compressed(product_case("NT", 24, 136, 272), SMALL, matrix)
    choice, *_ = widths(of, SMALL, splits=1)
    (output,) = of.of.outputs
    wanted = of.of.wanted[output]
    assert np.isnan(wanted).any()
    assert np.isinf(wanted).any()
    assert run(choice, of.of, tmp_path, late=False) < 2e-3


def fails(work: Callable[[], bool]) -> bool:
    """Whether what runs in a process of its own says so, or traps."""

    def inner() -> None:
        sys.exit(work())

    process = multiprocessing.get_context("fork").Process(target=inner)
    process.start()
    process.join()
    return process.exitcode != 0


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("fault", ["nibbles", "places", "halves"])
def test_faults_are_seen(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nibbles of neighbours exchanged, all alike, and a half of the lanes taken for the other."""
    of = drawn("few_rows")
    choice, *_ = widths(of, SMALL, splits=1)
    (words,) = (n for n in of.of.given if n.endswith("_places"))
    own = of.of.given[words]
    if fault == "nibbles":
        own[:] = own >> 4 & 0x0F0F0F0F | (own & 0x0F0F0F0F) << 4
    if fault == "places":
        own[:] = with_places(np.full_like(own, 0x44444444))
    kernel = built(choice, SMALL, only_text=True)
    if fault == "halves":
        source = kernel.source.replace("_0_0_1(_ptr", "_0_0_0(_ptr")
        assert source != kernel.source
        kernel = replace(kernel, source=source)
    monkeypatch.setattr("test_wgmma_lists.built", lambda *_: kernel)
    assert fails(lambda: run(choice, of.of, tmp_path, late=False) >= 2e-3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("rows", CUBIN_ROWS)
def test_the_first_choice_becomes_machine_code(rows: int, dtype: str) -> None:
    matrix = pruned(np.random.default_rng(0), 1024, 512, _numbers(dtype))
    of = compressed(product_case("NT", rows, 1024, 512, dtype), H200, matrix)
    choice = tiles_of(of.func, H200)[0]()
    assert choice is not None
    program = Builder(H200).build_functions({"product": choice.func})["product"]
    assert isinstance(program, Program), str(program)
    (kernel,) = program.kernels
    assert resources_of(kernel.binary).stack == 0  # nothing is spilled
    assert kernel.arg_types.count("tensormap") == 3
    assert "wgmma.mma_async.sp.sync.aligned" in kernel.source


@pytest.mark.parametrize("depth", [136, 200])  # rows of what is kept are no multiple of 16 bytes
def test_other_strides_are_refused(depth: int) -> None:
    of = compressed(
        product_case("NT", 24, 64, depth), SMALL, pruned(np.random.default_rng(0), 64, depth)
    )
    assert tiles_of(of.func, SMALL) == []


@pytest.mark.parametrize("device", ["nvidia/a100", "nvidia/b200"])
def test_other_devices_have_no_such_instructions(device: str) -> None:
    of = compressed(
        product_case("NT", 24, 64, 128), SMALL, pruned(np.random.default_rng(0), 64, 128)
    )
    assert tiles_of(of.func, find_device(device)) == []
