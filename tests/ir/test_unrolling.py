"""How far loops are unrolled in HIP's text."""

from __future__ import annotations

import re
from typing import Any

import tvm
from kernel_bodies import gelu, mm
from kernels import Case, Input, prim_functions
from wgmma_cases import product_case

from tvm_tile.build import Builder
from tvm_tile.build.code_object import resources_of
from tvm_tile.build.hip import compile_hip, hip_text
from tvm_tile.build.unrolling import limit_unrolling
from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.passes import schedule_module
from tvm_tile.schedule import Task, candidates
from tvm_tile.tile.rules import MATVEC

RDNA, MI300X = (find_device(f"amd/{name}") for name in ("rx7900xtx", "mi300x"))
_LOOP = re.compile(r"(#pragma unroll(?: (\d+))?\n)?\s*for \(int (\w+) = 0; \3 < (\d+);")


def product() -> str:
    """A product that RDNA computes without matrix units: a sum of many steps in one chunk."""
    case = product_case("NN", 256, 240, 960, dtype="float32")
    scheduled, (report,) = schedule_module(tvm.IRModule(prim_functions(case, RDNA)), RDNA)
    assert report.rule == "contraction"
    built = Builder(RDNA).build_functions({"product": scheduled[report.name]})["product"]
    return str(built.kernels[0].source)


def test_sums_go_eight_turns_at_a_time_and_registers_whole() -> None:
    text = hip_text(product())
    bounded = {
        loop: int(re.search(r"_by(\d+)", loop[3])[1])
        for loop in _LOOP.finditer(text)
        if "_by" in loop[3]
    }
    assert set(bounded.values()) == {1, 8}
    for loop, turns in bounded.items():
        assert int(loop[2]) == turns
        assert turns == 1 or int(loop[4]) > 8
    held = set(re.findall(r"_local_ptr\[[^\]]*?\b(ax\w+)\b", text))
    for loop in _LOOP.finditer(text):
        if loop[3] in held and "_by" not in loop[3]:
            assert loop[1], loop[0]


def test_registers_are_no_memory() -> None:
    taken = resources_of(compile_hip(product(), "gfx1100"))
    assert (taken.spilled, taken.stack) == (0, 0)


def test_only_marked_loops_are_bounded() -> None:
    text = "#pragma unroll\n  for (int k_by4_1 = 0; a\n#pragma unroll\n  for (int baby = 0; b\n"
    first, rest = text.split("\n", 1)
    assert limit_unrolling(text) == f"{first} 4\n{rest}"


def test_registers_are_no_memory_however_long_the_epilogue() -> None:
    def body(x: Any, w: Any) -> Any:
        return gelu(mm("NN")(x, w))

    case = Case("gelu", "contraction", body, (Input((3136, 96)), Input((96, 384))))
    scheduled, (report,) = schedule_module(tvm.IRModule(prim_functions(case, RDNA)), RDNA)
    assert report.rule == "contraction"
    (taken,) = Builder(RDNA).resources(scheduled)[report.name]
    assert (taken.spilled, taken.stack) == (0, 0)


def test_loops_around_unrolled_ones_go_as_the_tile_has_it() -> None:
    (func,) = prim_functions(product_case("NT", 1, 4096, 2048, dtype="float32"), MI300X).values()
    graph = extract(func)
    assert graph is not None
    tiles = candidates(Task(func, graph, MI300X), 300, (MATVEC,))
    chosen = next(tile for tile in tiles if "64 groups, 1 rows a thread, 1 loads" in tile.tile)
    built = Builder(MI300X).build_functions({"product": chosen.func})["product"]
    text = hip_text(built.kernels[0].source)
    free = re.sub(r"#pragma unroll \d+", "", text)
    ours, llvms = (resources_of(compile_hip(own, "gfx942")).registers for own in (text, free))
    assert ours < llvms / 2
