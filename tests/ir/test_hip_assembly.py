"""What AMD kernels must not have of the defects of TVM's own code generator for ROCm."""

from __future__ import annotations

import functools
import re

import pytest
from gates_cases import GATES_CASES
from hip_assembly import instructions, unfinished_stores
from hip_operators import CHIPS
from kernel_cases import CASES
from kernels import prim_functions
from matrix_core_cases import MATRIX_CORE_CASES
from tvm import IRModule

from tvm_tile.build import Builder, Program
from tvm_tile.build.code_object import resources_of
from tvm_tile.build.hip import assembly_of
from tvm_tile.build.program import Kernel
from tvm_tile.device import find_device
from tvm_tile.passes import FirstChoices, PlanFunction, schedule_module
from tvm_tile.tile.rules import rule_named

pytestmark = pytest.mark.bank(4)

KNOWN = {case.name: case for case in (*CASES, *GATES_CASES)} | MATRIX_CORE_CASES
# One case of each rule that writes kernels for AMD.
BY_RULE = {
    "elementwise": "large_vectorized",
    "transpose": "transpose_large",
    "row": "sum_long_rows",
    "column": "sum_even_columns",
    "rows": "layer_norm_long_rows",
    "window": "conv_depthwise",
    "matvec": "matvec_rows",
    "contraction": "conv_of_many_images",
    "matrix_cores": "NN_128x256x512_float16",
    "gates": "lstm_3x64x32x33_float32",
}
# Each rule meets several chips, each chip several rules.
PAIRS = [
    (rule, chip)
    for number, rule in enumerate(BY_RULE)
    for position, chip in enumerate(CHIPS)
    if (number + position) % 3 == 0
]
BARE = "__builtin_amdgcn_s_barrier();"


@functools.cache
def built(rule: str, chip: str) -> tuple[tuple[str, int, Kernel], ...]:
    """Rule, threads and kernel of all that a rule's case becomes, if by that rule."""
    device = find_device(chip)
    functions = prim_functions(KNOWN[BY_RULE[rule]], device)
    first = FirstChoices(device)
    for function in functions.values():
        first(function, (rule_named(rule),))  # whose answer stands
    plan = PlanFunction(device, first=first)
    scheduled, reports = schedule_module(IRModule(functions), device, plan=plan)
    functions = {var.name_hint: function for var, function in scheduled.functions.items()}
    programs = Builder(device).build_functions(functions)
    found = []
    for report in reports:
        program = programs[report.name]
        assert isinstance(program, Program), str(program)
        found += [(report.rule, report.block, kernel) for kernel in program.kernels]
    return tuple(found)


def arch_of(chip: str) -> str:
    return str(dict(find_device(chip).target)["mcpu"])


@pytest.mark.parametrize(("rule", "chip"), PAIRS)
def test_a_kernel_is_for_its_threads_and_waves(rule: str, chip: str) -> None:
    kernels = built(rule, chip)
    for taken, threads, kernel in kernels:
        assert taken == rule
        resources = resources_of(kernel.binary)
        assert len(kernels) > 1 or resources.most_threads == threads
        assert resources.warp == find_device(chip).warp_size


@pytest.mark.parametrize(("rule", "chip"), PAIRS)
def test_barriers_wait_for_what_was_stored(rule: str, chip: str) -> None:
    for _, _, kernel in built(rule, chip):
        assert unfinished_stores(assembly_of(kernel.source, arch_of(chip))) == []


@pytest.mark.parametrize("chip", CHIPS)
def test_barriers_alone_wait_for_nothing(chip: str) -> None:
    """TVM's own ROCm code has them: the check finds it out."""
    ((_, _, kernel),) = built("rows", chip)
    source = kernel.source.replace("__syncthreads();", BARE)
    assert unfinished_stores(assembly_of(source, arch_of(chip)))


@pytest.mark.parametrize("wait", ["s_waitcnt lgkmcnt(0)", "s_wait_dscnt 0x0"])
def test_waits_are_looked_for_on_all_paths(wait: str) -> None:
    text = (
        "ds_write_b32 v0, v1\n s_cbranch_vccz .LBB0_2\n {}\n.LBB0_2:\n {}\n s_barrier\n s_endpgm\n"
    )
    assert unfinished_stores(text.format("", wait)) == []
    assert unfinished_stores(text.format(wait, "")) == ["s_barrier"]
    loop = ".L1:\n s_barrier\n {}\n ds_store_b32 v0, v1\n s_cbranch_vccz .L1\n s_endpgm\n"
    assert unfinished_stores(loop.format(wait)) == ["s_barrier"]


@pytest.mark.parametrize("threads", [512, 1024])
@pytest.mark.parametrize("chip", CHIPS)
def test_large_blocks(chip: str, threads: int) -> None:
    """TVM's own ROCm code is for 256 threads at most."""
    kernel = f'extern "C" __global__ void __launch_bounds__({threads}) k(float* x) {{ x[0] = 1; }}'
    assembly = assembly_of(kernel, arch_of(chip))
    assert re.search(rf"\.max_flat_workgroup_size: {threads}\b", assembly)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("rule", ["elementwise", "rows"])
def test_memory_is_read_in_vectors(rule: str, chip: str) -> None:
    for _, _, kernel in built(rule, chip):
        loads = [
            line.split()[0]
            for line in instructions(assembly_of(kernel.source, arch_of(chip)))
            if line.startswith(("global_load", "buffer_load", "flat_load"))
        ]
        assert loads
        wide = {"global_load_dwordx4", "global_load_b128"}
        assert set(loads) <= wide | {"global_load_dwordx2", "global_load_b64"}
