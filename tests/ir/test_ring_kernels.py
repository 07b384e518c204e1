"""Products with few vectors whose loads are on their way some steps ahead, without a GPU: what
their CUDA text computes, and its races."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from emulated import arguments, emulated_error, text_builder
from few_vectors_cases import gated, layer_norm, rms_norm, times
from joined import function_and_choices, tile_of
from kernel_bodies import case
from kernels import Case
from tvm.relax import op
from warp_emulator import COMPILER

from tvm_tile.build.early.dependent_launches import LetsGo, asked_ahead, mark
from tvm_tile.device import find_device
from tvm_tile.schedule import Choice
from tvm_tile.schedule.s_tir.matvec import schedule_matvec

pytestmark = [pytest.mark.bank(2), pytest.mark.skipif(COMPILER is None, reason="needs g++")]

# So few multiprocessors that blocks take several turns, and the last of them too many.
SMALL = replace(find_device("nvidia/h200"), multi_processor_count=2)
TILES = 4
LIMIT = 1e-5
CASES = (
    case("plain", "matvec", lambda x, w: times(x, w, turned=True), (1, 512), (96, 512)),
    # A thread has no place of its own in a row, and the last turn no row for some threads.
    case("ragged", "matvec", lambda x, g, b, w: times(layer_norm(x, g, b), w, turned=True),
         (1, 384), (384,), (384,), (101, 384)),
    case("residual", "matvec", lambda x, w, r: op.add(times(x, w, turned=True), r),
         (3, 256), (70, 256), (3, 70)),
    case("gated", "matvec", lambda x, g, w, v: gated(rms_norm(x, g), w, v, turned=True),
         (2, 512), (512,), (80, 512), (80, 512)),
    case("softmax", "matvec", lambda x, w: times(op.nn.softmax(x, -1), w, turned=True),
         (2, 768), (64, 768)),
)  # fmt: skip


def rings(choices: Sequence[Choice]) -> list[Choice]:
    return [choice for choice in choices if tile_of(choice).stages]


@pytest.mark.parametrize("entry", CASES, ids=lambda entry: entry.name)
@pytest.mark.parametrize("late", [True, False], ids=["late", "early"])
def test_the_text_computes_what_the_cpu_does(entry: Case, late: bool, tmp_path: Path) -> None:
    func, choices = function_and_choices(entry, SMALL, schedule_matvec)
    found = rings(choices)
    assert any(tile_of(choice).turns > 1 for choice in found)
    of = arguments(func)
    for number, choice in enumerate(found[late :: max(1, len(found) // TILES)]):
        written = choice()
        assert written is not None
        asked = asked_ahead(written.func)
        assert asked
        assert asked <= {str(param.name) for param in func.params[1:-1]}
        (folder := tmp_path / str(number)).mkdir()
        lanes = tile_of(choice).lanes
        error = emulated_error(written, of, SMALL, folder, late=late, columns=lanes)
        assert error <= LIMIT, tile_of(choice).describe()


def test_only_constants_are_asked_for_before_the_wait() -> None:
    func, choices = function_and_choices(CASES[0], SMALL, schedule_matvec)
    written = rings(choices)[0]()
    assert written is not None
    names = [str(param.name) for param in func.params]
    for constants in ([], names[1:2]):
        marked = mark(written.func, 0.0, constants, lets_go=LetsGo.FIRST)
        (kernel,) = text_builder(SMALL).build_functions({"f": marked})["f"].kernels
        body = kernel.source.rpartition("__global__")[2]
        places = [body.index(own) for own in ("_launch_dependents()", "_wait()", "cp_async_cg")]
        assert places == sorted(places) if not constants else places[2] < places[1]
