"""Products that ask for constants before they wait for the kernel before: their text on the CPU."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from emulated import arguments, built, guarded, is_intact, text_builder
from kernels import Case, prim_functions, relative_difference
from warp_emulator import COMPILER, emulate, tensor_maps
from wgmma_cases import product_case

from tvm_tile.build.early.dependent_launches import asked_ahead, loaded_share, mark
from tvm_tile.build.program import Program
from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Scheduled, Task
from tvm_tile.schedule.scene import with_streamed
from tvm_tile.schedule.warp_products.rule import schedule_mma
from tvm_tile.schedule.wgmma import schedule_wgmma

pytestmark = pytest.mark.bank(4)

SMALL = replace(find_device("nvidia/h200"), multi_processor_count=2)
WAIT = "griddepcontrol_wait();"
EVERY = 1000
RULES = {"wgmma": schedule_wgmma, "mma": schedule_mma}
CASES = (
    product_case("NT", 328, 456, 200),
    product_case("NN", 512, 512, 64),  # one chunk a tile
    product_case("NN", 200, 640, 1032),  # more chunks a tile than there are stages
)


def choices(entry: Case, rule: str, constant: int) -> list[Scheduled]:
    """Three choices of a rule for a case, one of whose operands comes from memory."""
    (func,) = prim_functions(entry, SMALL).values()
    func = with_streamed(func, [constant])
    graph = extract(func)
    assert graph is not None
    found = RULES[rule](Task(func, graph, SMALL), EVERY)
    written = [found[place]() for place in sorted({0, len(found) // 2, len(found) - 1})]
    assert all(item is not None for item in written)
    return [item for item in written if item is not None]


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("constant", [0, 1])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("entry", CASES, ids=lambda entry: entry.name)
def test_they_compute_what_the_cpu_does(
    entry: Case, rule: str, constant: int, tmp_path: Path
) -> None:
    (func,) = prim_functions(entry, SMALL).values()
    of = arguments(func)
    for number, choice in enumerate(choices(entry, rule, constant)):
        memory = {n: guarded(a, is_output=n in of.outputs) for n, a in of.given.items()}
        arrays = {n: inside for n, (_, inside) in memory.items()}
        maps = tensor_maps(choice.func.script(), arrays)
        folder = tmp_path / str(number)
        folder.mkdir()
        order = {"late": bool(number), "backward": number > 1}
        kernel = built(choice, SMALL)
        emulate(kernel, choice.grid, choice.block, arrays, folder, **order, maps=maps)
        for n in of.outputs:
            assert relative_difference(arrays[n].reshape(of.wanted[n].shape), of.wanted[n]) < 2e-3
            assert is_intact(memory[n][0])


@pytest.mark.parametrize("constant", [0, 1])
@pytest.mark.parametrize("rule", RULES)
def test_only_the_constant_is_touched_before_the_wait(rule: str, constant: int) -> None:
    (func,) = prim_functions(CASES[0], SMALL).values()
    names = [str(param.name) for param in func.params]
    for choice in choices(CASES[0], rule, constant):
        assert asked_ahead(choice.func) == {names[constant]}
        assert rule == "mma" or loaded_share(choice.func, {names[constant]}) == 0.0
        marked = mark(choice.func, 0.0, [names[constant]])
        program = text_builder(SMALL).build_functions({"f": marked})["f"]
        assert isinstance(program, Program)
        kernel = program.kernels[0]
        text = kernel.source.rpartition('extern "C" __global__')[2].partition("{\n")[2]
        assert text.count(WAIT) == 1
        before = re.sub(r"tile_ask_for\w*\(.*\);", "", text.partition(WAIT)[0])
        touched = set(re.findall(r"\b(\w+)_(?:ptr|map)\b", before)) & set(names)
        assert touched == {names[constant]}
