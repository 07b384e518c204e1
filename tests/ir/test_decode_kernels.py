"""Attention of few queries without a GPU: what the CUDA text computes, its races, what it reads,
its machine code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_bodies import attention, masked
from decode_cases import DECODE_CASES, decode_case, known
from emulated import Arguments, arguments, emulated_error, idle_barriers
from joined import function_and_choices, tile_of
from kernels import Input, rules_of
from tvm.relax import op
from warp_emulator import COMPILER

from tvm_tile.build import Builder, Program
from tvm_tile.build.cubin import resources_of
from tvm_tile.device import Device, find_device
from tvm_tile.schedule import Choice
from tvm_tile.schedule.decode import schedule_decode
from tvm_tile.tile.attention.decode import MOST_ROWS
from tvm_tile.tile.attention.decode_tile import DecodeTile

pytestmark = pytest.mark.bank(6)

A100, H200 = (find_device(f"nvidia/{name}") for name in ("a100", "h200"))
CASES = {case.name: case for case in DECODE_CASES}
EMULATED = (
    "8/2x1x1000x64 float16",
    "3/3x1x77x64 float32",
    "6/2x5x33x24 float32",
    "8/1x1x300x256 float16",
    "4/2x1x96x35 float16",
    "2/1x3x50x18 float32",
    "masked float16",
    "capped float32",
    "by position float16",
    "wide values float32",
    "normed 1 x float16",
    "normed 3 x float32",
    "sunk bare float16",
    "sunk masked float32",
    "sunk capped float16",
    "sunk by position float32",
    "sunk constant float32",
)
LIMITS = {"float32": 1e-5, "float16": 8e-3}
BARRIER = re.compile(
    r"tvm_builtin_(cuda_cta_sync|ptx_cp_async_wait_group|cuda_mbarrier_wait)\w*\([^;]*\);"
)


def decode_tile(choice: Choice) -> DecodeTile:
    tile = tile_of(choice)
    assert isinstance(tile, DecodeTile)
    return tile


def error_of(choice: Any, of: Arguments, device: Device, folder: Path, *, late: bool) -> float:
    folder.mkdir()
    cluster = decode_tile(choice).splits
    return emulated_error(choice(), of, device, folder, late=late, cluster=cluster)


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", EMULATED)
def test_the_text_computes_what_the_cpu_does(name: str, tmp_path: Path) -> None:
    """The first choice, with copies that come late, or one far from it, with early ones."""
    func, found = function_and_choices(CASES[name], H200, schedule_decode)
    of = arguments(func)
    late = list(EMULATED).index(name) % 2 == 0
    choice = found[0 if late else len(found) * 2 // 3]
    error = error_of(choice, of, H200, tmp_path / "own", late=late)
    assert error < LIMITS[CASES[name].inputs[0].dtype], choice.tile


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("seed", range(12))
def test_tensor_cores_multiply_what_is_drawn(seed: int, tmp_path: Path) -> None:
    """Sizes, types, masks and a tile of any rank; the last weights of a tile are zeros."""
    rng = np.random.default_rng(seed)
    shared, times, rows = (int(rng.integers(1, most)) for most in (4, 5, 5))
    keys, depth, width = int(rng.integers(8, 400)), *map(int, rng.integers(1, 10, 2) * 16)
    dtype = str(rng.choice(["float16", "bfloat16"]))
    is_masked = bool(rng.integers(2))
    others = [Input((2, 1, rows, keys), "bool")] if is_masked else []
    body = attention(0.3, masked) if is_masked else attention(0.3)
    sizes = (shared * times, shared, rows, keys, depth)
    case = decode_case(f"drawn {seed}", body, sizes, *others, dtype=dtype, width=width)
    func, found = function_and_choices(case, H200, schedule_decode)
    own = [choice for choice in found if decode_tile(choice).on_matrices]
    assert bool(own) is (rows * times <= MOST_ROWS)
    if not own:
        return
    choice = own[int(rng.integers(len(own)))]
    error = error_of(choice, arguments(func), H200, tmp_path / "own", late=bool(seed % 2))
    assert error < {"float16": 8e-3, "bfloat16": 6e-2}[dtype], choice.tile


def wide_weights(q: Any, k: Any, v: Any) -> Any:
    """Attention whose weights stay float32."""
    scores = known(op.matmul(q, known(op.permute_dims(k, [0, 1, 3, 2]))))
    weights = known(op.nn.softmax(known(op.astype(scores, "float32"))))
    summed = known(op.matmul(weights, known(op.astype(v, "float32"))))
    return op.astype(summed, "float16")


def test_weights_that_a_model_keeps_wide_are_not_rounded() -> None:
    case = decode_case("wide weights", wide_weights, (4, 2, 1, 96, 64), dtype="float16")
    _, found = function_and_choices(case, H200, schedule_decode)
    assert found
    assert not any(decode_tile(choice).on_matrices for choice in found)


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_the_text_for_devices_without_clusters(tmp_path: Path) -> None:
    func, found = function_and_choices(CASES["masked float32"], A100, schedule_decode)
    of = arguments(func)
    for number in (0, -1):
        error = error_of(found[number], of, A100, tmp_path / str(number), late=True)
        assert error < 1e-5, found[number].tile


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", ["masked float32", "sunk constant float32"])
def test_what_no_row_sees_is_not_read(name: str, tmp_path: Path) -> None:
    """Of a cache that is filled to a prefix only tiles with rows in use: others are no numbers.

    What a number hides is not read, either, where each row has a sink that outweighs it.
    """
    func, found = function_and_choices(CASES[name], H200, schedule_decode)
    of = arguments(func)
    (keep,) = (name for name, array in of.given.items() if array.shape == (2, 1, 2, 150))
    caches = [n for n in of.given if of.given[n].shape == (2, 2, 150, 32)]
    sinks = [n for n in of.given if of.given[n].shape == (2, 4, 2, 1)]
    of.given[keep][:] = np.arange(150) < 40
    for name in caches:
        of.given[name][:, :, 64:] = np.nan
    for number, choice in enumerate((found[0], found[-1])):
        cluster, folder = decode_tile(choice).splits, tmp_path / str(number)
        folder.mkdir()
        item = choice()
        wanted = _attention(of, caches, keep, *sinks)
        same = replace(of, wanted={**of.wanted, **wanted})
        error = emulated_error(item, same, H200, folder, late=True, cluster=cluster)
        assert error < 1e-5, choice.tile


def _attention(
    of: Arguments, caches: Sequence[str], keep: str, sinks: str = ""
) -> dict[str, np.ndarray]:
    """The case's result in float64, of the keys that are kept; with sinks scores are capped."""
    (output,) = of.outputs
    (query,) = set(of.given) - {*caches, keep, sinks, output}
    kept = of.given[keep][0, 0, 0].astype(bool)
    # In the order of the function's parameters, which is that of their use.
    k, v = (of.given[name][:, :, kept].astype("float64").repeat(2, 1) for name in _in_use(caches))
    scores = np.einsum("bhid,bhkd->bhik", of.given[query].astype("float64"), k) * 0.3
    if sinks:
        scores = np.append(5 * np.tanh(0.2 * scores), of.given[sinks], -1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = (weights / weights.sum(-1, keepdims=True))[..., : k.shape[2]]
    out = np.einsum("bhik,bhkd->bihd", weights, v)
    return {output: out.reshape(of.wanted[output].shape).astype("float32")}


def _in_use(caches: Sequence[str]) -> list[str]:
    return sorted(caches, key=lambda name: int(name.removeprefix("p")))


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(
    ("name", "on_matrices"),
    [
        ("8/2x1x1000x64 float16", True),
        ("8/2x1x1000x64 float16", False),
        ("3/3x1x77x64 float32", False),
    ],
)
def test_each_barrier_is_needed(name: str, on_matrices: bool, tmp_path: Path) -> None:
    """Of blocks of several workers, with several tiles each, that share a group."""
    func, found = function_and_choices(CASES[name], H200, schedule_decode)
    choice = next(
        own
        for own in found
        if (tile := decode_tile(own)).workers > 1
        and (tile.splits > 1 or tile.stages > 1)
        and tile.on_matrices is on_matrices
    )
    cluster, of = decode_tile(choice).splits, arguments(func)
    idle, count = idle_barriers(choice(), of, H200, tmp_path, BARRIER, cluster=cluster)
    assert count > 3
    # The last wait of a cluster keeps shared memory alive, which the emulator always is.
    assert [entry for entry in idle if "cluster" not in entry] == []
    assert len(idle) <= 1


@pytest.mark.parametrize("device", [A100, H200], ids=lambda device: device.name)
@pytest.mark.parametrize(
    "name",
    [
        "8/2x1x1000x64 bfloat16",
        "12/3x4x130x80 float16",
        "8/1x1x300x256 float32",
        "sunk bare bfloat16",
        "sunk constant float16",
    ],
)
def test_the_first_choice_becomes_machine_code_that_spills_nothing(
    name: str, device: Device
) -> None:
    _, found = function_and_choices(CASES[name], device, schedule_decode)
    choice = found[0]()
    program = Builder(device).build_functions({"t": choice.func})["t"]
    assert isinstance(program, Program), str(program)
    (kernel,) = program.kernels
    taken = resources_of(kernel.binary)
    assert taken.stack == 0, choice.tile
    assert choice.registers is not None
    assert taken.registers <= choice.registers + 40, choice.tile


@pytest.mark.parametrize(
    "name",
    ["8/2x1x1000x64 bfloat16", "capped float32", "by position float16", "sunk masked float16"],
)
def test_views_masks_and_products_become_one_kernel(name: str) -> None:
    """Where the model says that it pays, not only where it must; no cache is repeated."""
    assert rules_of(CASES[name], H200) == "decode"
