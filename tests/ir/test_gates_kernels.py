"""Recurrent cells as one kernel, without a GPU: what is taken, its text, and what that computes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import arguments, built, emulated_error, guarded, is_intact
from gates_cases import GATES_CASES, constant, lstm, parts, times
from kernels import Case, Input, offers, prim_functions, relative_difference, rules_of
from tvm.relax import op
from warp_emulator import COMPILER, emulate

from tvm_tile.build import code_object, cubin
from tvm_tile.build.program import Kernel
from tvm_tile.device import Device, find_device
from tvm_tile.device.rocm import MI300X, RX9070XT
from tvm_tile.graph.extract import extract
from tvm_tile.passes.scheduling.schedule_tiles import with_blocks_only
from tvm_tile.schedule import Scheduled, Task
from tvm_tile.schedule.gates import schedule_gates

pytestmark = pytest.mark.bank(6)

A100, H200 = find_device("nvidia/a100"), find_device("nvidia/h200")
BY_NAME = {entry.name: entry for entry in GATES_CASES}
# Every second case, on waves of either size by turns.
ON_WAVES = [
    pytest.param(name, (MI300X, RX9070XT)[number % 2], id=name)
    for number, name in enumerate(sorted(BY_NAME)[::2])
]


def function_of(entry: Case) -> Any:
    (func,) = prim_functions(entry, H200).values()
    return func


def choices(func: Any, device: Device = H200) -> list[Any]:
    """The rule's, best first."""
    graph = extract(func)
    return [] if graph is None else list(schedule_gates(Task(func, graph, device), 1000))


def limit(entry: Case) -> float:
    return 4e-3 if entry.inputs[0].dtype == "float16" else 1e-5


@pytest.mark.parametrize("name", BY_NAME)
def test_the_rule_takes_all_of_it(name: str) -> None:
    assert rules_of(BY_NAME[name], H200) == "gates"


def check_text(name: str, device: Device, folder: Path) -> None:
    """The first choice, with copies that come late, or one far from it, with early ones."""
    func = function_of(BY_NAME[name])
    found, of = choices(func, device), arguments(func)
    late = list(BY_NAME).index(name) % 2 == 0
    choice = found[0 if late else len(found) * 2 // 3]()
    error = emulated_error(choice, of, device, folder, late=late)
    assert error < limit(BY_NAME[name]), choice.tile


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", BY_NAME)
def test_the_text_computes_what_the_cpu_does(name: str, tmp_path: Path) -> None:
    check_text(name, H200, tmp_path)


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(("name", "device"), ON_WAVES)
def test_the_text_computes_it_in_waves_of_any_size(
    name: str, device: Device, tmp_path: Path
) -> None:
    check_text(name, device, tmp_path)


@pytest.mark.parametrize("device", [A100, H200, MI300X, RX9070XT], ids=lambda device: device.name)
@pytest.mark.parametrize(
    "name", ["lstm_1x256x256x256_float32", "lstm_16x32x128x40_float32", "gru_1x100x60"]
)
def test_the_first_choice_becomes_machine_code_that_spills_nothing(
    name: str, device: Device
) -> None:
    choice = choices(function_of(BY_NAME[name]), device)[0]()
    read = code_object.resources_of if device.kernel_language == "rocm" else cubin.resources_of
    taken = read(built(choice, device).binary)
    assert taken.stack == 0, choice.tile
    assert taken.registers * choice.block <= device.registers_per_multi_processor


def test_no_two_choices_have_as_many_blocks_and_threads() -> None:
    found = [choice() for choice in choices(function_of(lstm(1, 256, 256)))]
    assert len({(item.grid, item.block) for item in found}) == len(found)
    assert {item.grid for item in found} >= {8, 13, 20, 26, 32, 64, 128, 256}


# Weights that stay in shared memory.


def one_after_the_other(choice: Scheduled, device: Device) -> Kernel:
    """A kernel that loads a block's weights and runs the block, both from their text."""
    assert choice.resident is not None
    kernels = [
        built(replace(choice, func=part), device)
        for part in (choice.resident.load, choice.resident.run)
    ]
    texts = [kernel.source[kernel.source.index('extern "C"') :] for kernel in kernels]
    names = [kernel.name for kernel in kernels]
    heads = [text[: text.index(";")].partition(f"{names[0]}(")[2].rstrip(")") for text in texts]
    calls = []
    for number, head in enumerate(heads):
        texts[number] = texts[number].replace(names[number], f"part_{number}")
        given = ", ".join(item.split()[-1] for item in head.split(","))
        calls.append(f"part_{number}({given});")
    whole = f'extern "C" __global__ void both_kernel({", ".join(heads)})'
    meet = "tvm_builtin_cuda_cta_sync();"
    text = f"{whole};\n{''.join(texts)}\n{whole} {{ {meet.join(calls)} }}\n"
    return replace(kernels[1], name="both_kernel", source=text)


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(
    "name", ["lstm_1x32x32x32_float32", "lstm_4x70x35x7_float32", "gru_5x32x9", "halves_1x300x129"]
)
def test_weights_that_stay_are_as_good(name: str, tmp_path: Path) -> None:
    func = function_of(BY_NAME[name])
    found, of = choices(func), arguments(func)
    choice = found[len(found) // 2]()
    memory = {n: guarded(a, is_output=n in of.outputs) for n, a in of.given.items()}
    arrays = {n: inside for n, (_, inside) in memory.items()}
    kernel = one_after_the_other(choice, H200)
    emulate(kernel, choice.grid, choice.block, arrays, tmp_path, late=True, backward=False)
    for n in of.outputs:
        assert is_intact(memory[n][0])
        found_there = arrays[n].reshape(of.wanted[n].shape)
        assert relative_difference(found_there, of.wanted[n]) < limit(BY_NAME[name])


def test_the_parts_of_weights_that_stay() -> None:
    func = function_of(lstm(1, 256, 256))
    choice = next(c for c in (one() for one in choices(func)) if c.grid == 26)
    resident = choice.resident
    names = {str(param.name) for param in func.params}
    load, run = (
        {str(param.name) for param in part.params} for part in (resident.load, resident.run)
    )
    assert load | run == names
    assert not load & run
    assert {len(param.ty.shape) for param in resident.load.params} == {2}
    # Ten units of a block, of eight sums each.
    assert resident.bytes == 10 * 8 * 256 * 4
    for part in (resident.load, resident.run):
        text = built(replace(choice, func=part), H200).source
        assert "float resident_ptr[];" in text
        assert "*(float4*)(resident_ptr + " in text
        assert text.count("extern __shared__") == 1
        assert f"__launch_bounds__({choice.block})" in text


def test_weights_that_do_not_fit_do_not_stay() -> None:
    found = [one() for one in choices(function_of(lstm(1, 256, 256)))]
    assert {item.grid for item in found if item.resident is None} == {
        item.grid for item in found if -(-256 // item.grid) * 8 * 256 * 4 > 227 * 1024 - 1024
    }


# What is not the rule's, each one thing away from what is.


@pytest.mark.parametrize("device", [with_blocks_only(H200), find_device("emulated")])
def test_other_devices(device: Device) -> None:
    assert choices(function_of(lstm(1, 32, 32)), device) == []


def test_a_single_product_is_a_rule_of_its_own() -> None:
    weights = constant(np.random.default_rng(0), 64, 128)
    entry = Case("", "matvec", lambda x: op.nn.relu(times(x, weights)), (Input((1, 64)),))
    func = function_of(entry)
    assert choices(func) == []
    assert "matvec" in offers(func, H200)


def test_outputs_of_several_widths() -> None:
    weights = constant(np.random.default_rng(0), 64, 96)

    def body(x: Any) -> tuple[Any, ...]:
        sums = times(x, weights)
        first, second, third = parts(sums, 3)
        return op.multiply(op.add(first, second), third), sums

    assert "gates" not in rules_of(Case("", "", body, (Input((1, 64)),)), H200).split()
